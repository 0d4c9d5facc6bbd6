//! Tells what the experiments on guards found out.

use super::facts::{Facts, Outage, Rush};

/// The chapters: their headings and texts.
pub(crate) fn chapters(facts: &Facts) -> [(&'static str, String); 2] {
    [
        ("A limit gives no more than there is", rush(&facts.rush)),
        ("A service that is down is left alone", outage(&facts.outage)),
    ]
}

fn rush(rush: &Rush) -> String {
    let Rush { calls, capacity, allowed, retry_after_ms, commits } = rush;
    let seconds = *retry_after_ms as f64 / 1e3;
    format!(
        "{calls} calls at the same moment want of one budget that has {capacity}, and gets one more every 6 seconds:\n\n  \
         {allowed} were allowed, and the others told to come back in {seconds:.1} s\n\n\
         The budget is in the store: it outlives the process, and nodes share it. {calls} decisions took {commits} \
         commit{}.\n",
        if *commits == 1 { "" } else { "s" },
    )
}

fn outage(outage: &Outage) -> String {
    let Outage { items, calls_until_open, calls_while_open, waiting, probes, succeeded } = outage;
    format!(
        "{items} items of work are for a service that does not answer. They stand behind a circuit:\n\n  \
         {calls_until_open} calls failed, and the circuit opened\n  \
         {calls_while_open} calls were made while it was open; {waiting} items waited, and had spent no attempt\n  \
         {probes} call was let through when somebody had mended the service, to see whether it is well\n\n\
         It was, and {succeeded} of {items} items were carried out.\n"
    )
}
