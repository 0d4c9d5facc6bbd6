//! Tells what the experiments on work found out.

use super::super::story::time;
use super::facts::{Attempt, Facts};

/// The chapters: their headings and texts.
pub(crate) fn chapters(facts: &Facts) -> [(&'static str, String); 3] {
    [
        ("A call that fails is made again, and its end is told once", payment(facts)),
        ("One key, one at a time, in order", parcels(facts)),
        ("What fails for good is kept", letter(facts)),
    ]
}

fn payment(facts: &Facts) -> String {
    let payment = &facts.payment;
    let rows = if payment.rows == 1 { "1 row".to_owned() } else { format!("{} rows", payment.rows) };
    format!(
        "A payment is enqueued, with a mutation that is told its end. The provider is away at first:\n\n{}\n\
         The end and the mutation's row were committed together: {}, {rows}.\n",
        payment.attempts.iter().map(attempt).collect::<String>(),
        payment.result,
    )
}

fn attempt(one: &Attempt) -> String {
    let came = one.failed.as_deref().unwrap_or("done");
    format!("  execution {}  {:>9} after it was enqueued  {came}\n", one.number, time(one.after_us))
}

fn parcels(facts: &Facts) -> String {
    let parcels = &facts.parcels;
    let sent = parcels.sent.iter().map(|(customer, parcels)| {
        let parcels: Vec<String> = parcels.iter().map(ToString::to_string).collect();
        format!("  {customer:<6} {}\n", parcels.join(" "))
    });
    format!(
        "Parcels of three customers, enqueued in turns with the customer as their key. As they were sent:\n\n{}\n\
         Up to {} were on their way at once, and never more than {} of one customer.\n",
        sent.collect::<String>(),
        parcels.at_once,
        parcels.at_once_of_one,
    )
}

fn letter(facts: &Facts) -> String {
    let letter = &facts.letter;
    format!(
        "A label cannot be printed, and trying again would not help. A dead letter keeps what is needed:\n\n  \
         {} {}\n  {}, after {} execution{}\n\n\
         Somebody mends the cause and lets it be tried again: {}.\n",
        letter.function,
        letter.args,
        letter.error,
        letter.attempts,
        if letter.attempts == 1 { "" } else { "s" },
        letter.tried_again,
    )
}
