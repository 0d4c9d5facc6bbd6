//! Tells what the experiments of the demo found out.

use super::facts::{Facts, Refusal, Round};
use super::log;

/// The story, with bold headings or plain ones.
pub fn tell(facts: &Facts, is_bold: bool) -> String {
    let heading = |text: &str| if is_bold { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
    let of_the_store = [
        ("Many callers at once", many(facts)),
        ("A culprit harms only itself", culprits(facts)),
        ("A wake-up follows the commit", wakeup(facts)),
        ("A SQLite file has one owner", owner(facts)),
    ];
    let chapters = (1..).zip(log::tell(&facts.log).into_iter().chain(of_the_store));
    let chapters = chapters.map(|(number, (title, text))| (format!("{number}. {title}"), text));
    let all = std::iter::once(("Mainstay, what it stands on".to_owned(), opening(facts)))
        .chain(chapters)
        .chain([("What comes next".to_owned(), NEXT.to_owned())]);
    let all = all.map(|(title, text)| format!("{}\n{}", heading(&title), indented(&text)));
    all.collect::<Vec<_>>().join("\n")
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("   {line}").trim_end().to_owned() + "\n").collect()
}

fn opening(Facts { store, durability, .. }: &Facts) -> String {
    format!("store    {store}\ncommits  {durability}\n")
}

fn many(facts: &Facts) -> String {
    let (alone, together) = (&facts.one_by_one, &facts.together);
    let members = together.transactions as f64 / together.commits.max(1) as f64;
    let faster = alone.elapsed_us as f64 / together.elapsed_us.max(1) as f64;
    let how = if together.commits < together.transactions {
        format!("Those who wait for the writer share its next commit, {members:.0} to a commit here:")
    } else {
        "On this store every transaction has a commit of its own, and many run beside each other:".to_owned()
    };
    format!(
        "{}\n{}\n\n{how}\n{faster:.1} times as fast as one by one. A caller is answered after its commit, never before.\n",
        round(alone, "one by one"),
        round(together, "all at once"),
    )
}

fn round(round: &Round, how: &str) -> String {
    format!(
        "{} transactions {how:<12} {:>3} commits {:>10} in all {:>10} a commit",
        round.transactions,
        round.commits,
        time(round.elapsed_us),
        time(round.mean_commit_us)
    )
}

fn culprits(facts: &Facts) -> String {
    let culprits = &facts.with_culprits;
    format!(
        "64 transactions all at once; among them one that panics and one that waits for a timer.\n\n\
         {} committed in {} commits, and {} rows are there. The two were told:\n{}",
        culprits.round.transactions,
        culprits.round.commits,
        culprits.rows,
        culprits.refused.iter().map(refusal).collect::<String>()
    )
}

pub(super) fn refusal(Refusal { code, message }: &Refusal) -> String {
    format!("  {code}\n  {message}\n")
}

fn wakeup(facts: &Facts) -> String {
    // On PostgreSQL a new link to the server wakes everyone once, since something may have been missed.
    let rolled_back = if facts.wakeup.after_rollback { "woken, by something else" } else { "silence" };
    let committed = facts.wakeup.after_commit_us.map_or_else(
        || "silence, for five seconds".to_owned(),
        |micros| format!("woken {} after the call", time(micros)),
    );
    format!(
        "a transaction that was rolled back:  {rolled_back}\na transaction that committed:        {committed}\n"
    )
}

fn owner(facts: &Facts) -> String {
    match &facts.second_opening {
        Some(refused) => format!("A second opening of the store was told:\n{}", refusal(refused)),
        None if facts.store.starts_with("postgres") => {
            "This is PostgreSQL: a second opening is welcome, any number of nodes share the database.\n"
                .to_owned()
        }
        None => "This store is in memory: a second opening is another, empty store.\n".to_owned(),
    }
}

pub(super) fn time(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

const NEXT: &str = "\
This is the ground and the ledger: one store, one kind of transaction, one log of events. To go on:
  mainstay demo                    an application on it, at work
  README.md                        what Mainstay is, the library, and the server with curl
  docs/concepts/events.md          the log: conditions, conflicts, reading, following
  docs/concepts/commands.md        commands: deciders, dispatch, decisions that were overtaken
  docs/concepts/projections.md     read models that follow the log, replays, rebuilds
  docs/concepts/work.md            work: functions, pools, keys, retries, timers, crons
  docs/concepts/delivery.md        what goes to others and comes back: outbox, publications, webhooks, intents
  docs/operations/guards.md        limits and circuits, and what to do at night
  docs/reference/cli.md            every verb
  docs/errors/README.md            every error code, and what to do about it
";

#[cfg(test)]
mod tests {
    use super::super::facts::{Culprits, Wakeup};
    use super::super::log::{Done, LastLamp, Payment, RowAndEvent, Seen};
    use super::*;
    use mainstay::events::Status;

    fn lamps() -> log::Facts {
        let done = |event_type: &str, position| Done {
            event_type: event_type.to_owned(),
            position,
            status: Status::Appended,
            called_us: 0,
        };
        let refused = |code, message: &str| Refusal { code, message: message.to_owned() };
        let placed = vec![done("LampsStocked", 1), done("OrderPlaced", 2), done("OrderPlaced", 3)];
        let seen = |one: &Done| Seen {
            position: one.position,
            event_type: one.event_type.clone(),
            after_us: 310 * one.position,
        };
        log::Facts {
            store: "sqlite:log.db".to_owned(),
            seen: placed.iter().map(seen).collect(),
            placed,
            last_lamp: LastLamp {
                left: 1,
                winner: "order:4".to_owned(),
                won: done("OrderPlaced", 4),
                loser: "order:3".to_owned(),
                refused: refused("APPEND_CONDITION_FAILED", "an event is at position 4: OrderPlaced e4"),
                witness: 4,
                left_then: 0,
                decided_anew: done("OrderBackordered", 5),
            },
            payment: Payment {
                key: "payment:order-1".to_owned(),
                first: done("OrderPaid", 6),
                again: Done { status: Status::Duplicate, ..done("OrderPaid", 6) },
                other: Some(refused("IDEMPOTENCY_CONFLICT", "the key was used by e6")),
                head: 6,
            },
            row_and_event: RowAndEvent {
                done: done("OrderShipped", 7),
                refused: Some(refused(
                    "APPEND_CONDITION_FAILED",
                    "an event is at position 7: OrderShipped e7",
                )),
                rows: 1,
            },
            elapsed_us: 9_000,
        }
    }

    fn facts(store: &str, second_opening: Option<Refusal>) -> Facts {
        let round = |commits, elapsed_us| Round {
            transactions: 64,
            commits,
            elapsed_us,
            mean_commit_us: elapsed_us / commits,
        };
        Facts {
            store: store.to_owned(),
            durability: "SQLite 3.54.0, WAL, synchronous=FULL (fsync on every commit)".to_owned(),
            log: lamps(),
            one_by_one: round(64, 102_400),
            together: round(3, 6_150),
            with_culprits: Culprits {
                round: Round { transactions: 62, ..round(3, 7_000) },
                rows: 62,
                refused: vec![mainstay::store::Error::ForeignAwait.into()],
            },
            wakeup: Wakeup { after_rollback: false, after_commit_us: Some(870) },
            second_opening,
        }
    }

    #[test]
    fn the_story_of_a_file() {
        let refused = Refusal { code: "STORE_OWNED", message: "demo.db is held by process 7".to_owned() };
        insta::assert_snapshot!(tell(&facts("sqlite:demo.db", Some(refused)), false), @r#"
            Mainstay, what it stands on
               store    sqlite:demo.db
               commits  SQLite 3.54.0, WAL, synchronous=FULL (fsync on every commit)

            1. A log, and decisions that rest on it
               A shop has three lamps. Whoever sells one has read the events tagged item:lamp and counted, and
               appends on the condition that no such event came since: the tag is the boundary of the decision.

                 LampsStocked       appended at position 1
                 OrderPlaced        appended at position 2
                 OrderPlaced        appended at position 3

            2. Two want the last lamp
               order:3 and order:4 both count 1 lamp, and append at the same moment.

                 order:4            appended at position 4
                 order:3            APPEND_CONDITION_FAILED
                 an event is at position 4: OrderPlaced e4

               The refusal names the event that was first. order:3 counts again, no lamp, and decides otherwise:

                 OrderBackordered   appended at position 5

            3. Sent twice, done once
               A payment with the idempotency key payment:order-1, sent again because its answer was lost:

                 the first time     appended at position 6
                 once more          already applied, at position 6

               The log ends at position 6. The same key with another amount is refused:

                 IDEMPOTENCY_CONFLICT
                 the key was used by e6

            4. A row and its event in one transaction
               A row of the application's own table and an event, committed together:

                 OrderShipped       appended at position 7, and a row

               A second transaction writes its row too, but its event is refused, so the row is gone with it:

                 APPEND_CONDITION_FAILED
                 an event is at position 7: OrderShipped e7

               1 row in all.

            5. A follower sees it all
               It subscribed to the empty log. Every position, in order and without a gap:

                   1  LampsStocked          310 µs after its append was called
                   2  OrderPlaced           620 µs after its append was called
                   3  OrderPlaced           930 µs after its append was called

            6. Many callers at once
               64 transactions one by one    64 commits   102.4 ms in all     1.6 ms a commit
               64 transactions all at once    3 commits     6.2 ms in all     2.0 ms a commit

               Those who wait for the writer share its next commit, 21 to a commit here:
               16.7 times as fast as one by one. A caller is answered after its commit, never before.

            7. A culprit harms only itself
               64 transactions all at once; among them one that panics and one that waits for a timer.

               62 committed in 3 commits, and 62 rows are there. The two were told:
                 STORE_FOREIGN_AWAIT
                 the transaction awaited something other than its own Tx

            8. A wake-up follows the commit
               a transaction that was rolled back:  silence
               a transaction that committed:        woken 870 µs after the call

            9. A SQLite file has one owner
               A second opening of the store was told:
                 STORE_OWNED
                 demo.db is held by process 7

            What comes next
               This is the ground and the ledger: one store, one kind of transaction, one log of events. To go on:
                 mainstay demo                    an application on it, at work
                 README.md                        what Mainstay is, the library, and the server with curl
                 docs/concepts/events.md          the log: conditions, conflicts, reading, following
                 docs/concepts/commands.md        commands: deciders, dispatch, decisions that were overtaken
                 docs/concepts/projections.md     read models that follow the log, replays, rebuilds
                 docs/concepts/work.md            work: functions, pools, keys, retries, timers, crons
                 docs/concepts/delivery.md        what goes to others and comes back: outbox, publications, webhooks, intents
                 docs/operations/guards.md        limits and circuits, and what to do at night
                 docs/reference/cli.md            every verb
                 docs/errors/README.md            every error code, and what to do about it
            "#);
    }

    #[test]
    fn stores_that_may_be_opened_twice_say_why() {
        assert!(tell(&facts("postgres://h/d", None), false).contains("any number of nodes"));
        assert!(tell(&facts("sqlite::memory:", None), true).contains("another, empty store"));
        assert!(
            tell(&facts("sqlite::memory:", None), true)
                .contains("\x1b[1m9. A SQLite file has one owner\x1b[0m")
        );
    }
}
