//! Tells what the experiments on the log found out.

use super::super::story::{refusal, time};
use super::facts::{Done, Facts, Seen};
use mainstay::events::Status;

/// The chapters: their headings and texts.
pub(crate) fn chapters(facts: &Facts) -> [(&'static str, String); 5] {
    [
        ("A log, and decisions that rest on it", decisions(facts)),
        ("Two want the last lamp", race(facts)),
        ("Sent twice, done once", payment(facts)),
        ("A row and its event in one transaction", row_and_event(facts)),
        ("A follower sees it all", follower(facts)),
    ]
}

fn decisions(facts: &Facts) -> String {
    format!(
        "A shop has three lamps. Whoever sells one has read the events tagged item:lamp and counted, and\n\
         appends on the condition that no such event came since: the tag is the boundary of the decision.\n\n{}",
        facts
            .placed
            .iter()
            .map(|one| format!("  {:<18} {}\n", one.event_type, place(one)))
            .collect::<String>()
    )
}

fn race(facts: &Facts) -> String {
    let race = &facts.last_lamp;
    format!(
        "order:3 and order:4 both count {}, and append at the same moment.\n\n  \
         {:<18} {}\n  {:<18} {}\n  {}\n\n\
         The refusal names the event that was first. {} counts again, {}, and decides otherwise:\n\n  {:<18} {}\n",
        lamps(race.left),
        race.winner,
        place(&race.won),
        race.loser,
        race.refused.code,
        race.refused.message,
        race.loser,
        lamps(race.left_then),
        race.decided_anew.event_type,
        place(&race.decided_anew),
    )
}

fn payment(facts: &Facts) -> String {
    let payment = &facts.payment;
    format!(
        "A payment with the idempotency key {}, sent again because its answer was lost:\n\n  \
         {:<18} {}\n  {:<18} {}\n\nThe log ends at position {}. The same key with another amount is refused:\n\n{}",
        payment.key,
        "the first time",
        place(&payment.first),
        "once more",
        place(&payment.again),
        payment.head,
        payment.other.iter().map(refusal).collect::<String>(),
    )
}

fn row_and_event(facts: &Facts) -> String {
    let both = &facts.row_and_event;
    let rows = if both.rows == 1 { "1 row".to_owned() } else { format!("{} rows", both.rows) };
    format!(
        "A row of the application's own table and an event, committed together:\n\n  {:<18} {}, and a row\n\n\
         A second transaction writes its row too, but its event is refused, so the row is gone with it:\n\n\
         {}\n{rows} in all.\n",
        both.done.event_type,
        place(&both.done),
        both.refused.iter().map(refusal).collect::<String>(),
    )
}

fn follower(facts: &Facts) -> String {
    let line = |Seen { position, event_type, after_us }: &Seen| {
        format!("  {position:>3}  {event_type:<18} {:>9} after its append was called\n", time(*after_us))
    };
    format!(
        "It subscribed to the empty log. Every position, in order and without a gap:\n\n{}",
        facts.seen.iter().map(line).collect::<String>()
    )
}

fn place(done: &Done) -> String {
    match done.status {
        Status::Appended => format!("appended at position {}", done.position),
        Status::Duplicate => format!("already applied, at position {}", done.position),
    }
}

fn lamps(count: usize) -> String {
    match count {
        0 => "no lamp".to_owned(),
        1 => "1 lamp".to_owned(),
        several => format!("{several} lamps"),
    }
}
