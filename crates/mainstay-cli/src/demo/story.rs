//! Tells what the experiments of the demo found out.

use super::facts::{Facts, Refusal, Round};

/// The story, with bold headings or plain ones.
pub(crate) fn tell(facts: &Facts, is_bold: bool) -> String {
    let heading = |text: &str| if is_bold { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
    let chapters = [
        (heading("Mainstay, what is there so far"), opening(facts)),
        (heading("1. Many callers at once"), many(facts)),
        (heading("2. A culprit harms only itself"), culprits(facts)),
        (heading("3. A wake-up follows the commit"), wakeup(facts)),
        (heading("4. A SQLite file has one owner"), owner(facts)),
        (heading("What comes next"), NEXT.to_owned()),
    ];
    chapters.map(|(heading, text)| format!("{heading}\n{}", indented(&text))).join("\n")
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

fn refusal(Refusal { code, message }: &Refusal) -> String {
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

fn time(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

const NEXT: &str = "\
This is the ground: one store and one kind of transaction. The event log, work, guards
and the server are built on it. To go on:
  README.md                        what Mainstay is, and the library in ten lines
  docs/reference/cli.md            every verb
  docs/reference/configuration.md  every setting of mainstay.toml
  docs/errors/README.md            every error code, and what to do about it
";

#[cfg(test)]
mod tests {
    use super::super::facts::{Culprits, Wakeup};
    use super::*;

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
        insta::assert_snapshot!(tell(&facts("sqlite:demo.db", Some(refused)), false), @"
            Mainstay, what is there so far
               store    sqlite:demo.db
               commits  SQLite 3.54.0, WAL, synchronous=FULL (fsync on every commit)

            1. Many callers at once
               64 transactions one by one    64 commits   102.4 ms in all     1.6 ms a commit
               64 transactions all at once    3 commits     6.2 ms in all     2.0 ms a commit

               Those who wait for the writer share its next commit, 21 to a commit here:
               16.7 times as fast as one by one. A caller is answered after its commit, never before.

            2. A culprit harms only itself
               64 transactions all at once; among them one that panics and one that waits for a timer.

               62 committed in 3 commits, and 62 rows are there. The two were told:
                 STORE_FOREIGN_AWAIT
                 the transaction awaited something other than its own Tx

            3. A wake-up follows the commit
               a transaction that was rolled back:  silence
               a transaction that committed:        woken 870 µs after the call

            4. A SQLite file has one owner
               A second opening of the store was told:
                 STORE_OWNED
                 demo.db is held by process 7

            What comes next
               This is the ground: one store and one kind of transaction. The event log, work, guards
               and the server are built on it. To go on:
                 README.md                        what Mainstay is, and the library in ten lines
                 docs/reference/cli.md            every verb
                 docs/reference/configuration.md  every setting of mainstay.toml
                 docs/errors/README.md            every error code, and what to do about it
            ");
    }

    #[test]
    fn stores_that_may_be_opened_twice_say_why() {
        assert!(tell(&facts("postgres://h/d", None), false).contains("any number of nodes"));
        assert!(tell(&facts("sqlite::memory:", None), true).contains("another, empty store"));
        assert!(
            tell(&facts("sqlite::memory:", None), true)
                .contains("\x1b[1m4. A SQLite file has one owner\x1b[0m")
        );
    }
}
