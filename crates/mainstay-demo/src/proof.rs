//! What the demo claims, held against what is in the log and in the books of the provider.

use super::look::{Letters, Look};
use super::provider::Booked;
use crate::{Failure, Result};
use mainstay::events::{Log, Selection};
use mainstay::flows::commands::decode;
use order_management::payments::PaymentEvent;
use serde::Serialize;
use std::collections::BTreeMap;

const PAGE: usize = 1_000;

/// Everything that came of it. With `--json` this is the answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// Where the server was.
    pub(super) url: String,
    /// Where the shop's store was.
    pub(super) store: String,
    /// How long customers ordered.
    pub(super) seconds: f64,
    /// How it ended.
    pub(super) ended: Ended,
    /// The last position of the log.
    pub(super) events: u64,
    /// What became of orders.
    pub(super) orders: Orders,
    /// What became of payments.
    pub(super) payments: Payments,
    /// What the circuit before the provider did.
    pub(super) circuit: Circuit,
    /// What became of dead letters.
    pub(super) letters: Letters,
    /// Events that a read model has put aside.
    pub(super) quarantined: u64,
    /// What the server said of itself, in the order in which it did so first.
    pub(super) health: Vec<String>,
    /// What is claimed, and whether it holds.
    pub(super) claims: Vec<Claim>,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Ended {
    /// Everything that was under way was finished.
    Settled,
    /// Somebody had enough; what was under way is left as it was.
    Stopped,
    /// What was under way did not come to an end.
    Late,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Orders {
    pub(super) placed: u64,
    pub(super) confirmed: u64,
    pub(super) cancelled: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Payments {
    /// Events that say so.
    pub(super) completed: u64,
    pub(super) declined: u64,
    pub(super) refunded: u64,
    /// How often the provider was called, and how often it failed.
    pub(super) calls: u64,
    pub(super) failed_calls: u64,
    /// What is in its books.
    pub(super) charged: u64,
    /// What is in its books and not in the log, or in the log and not in its books, or there twice.
    pub(super) differences: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Circuit {
    pub(super) opened: u64,
    pub(super) closed: u64,
}

/// Something that is claimed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Claim {
    /// Its name, for programs.
    pub(super) name: &'static str,
    /// What is claimed.
    pub(super) claim: &'static str,
    /// Whether it holds.
    pub(super) holds: bool,
}

impl Facts {
    /// An error if a payment was lost or doubled; and if anything else that is claimed was not to be seen, where the demo ran
    /// until it was.
    pub fn verdict(&self, is_everything: bool) -> Result<()> {
        let wrong = match (self.ended, self.payments.differences) {
            // What was under way may be in one and not yet in the other.
            (Ended::Stopped, _) => return Ok(()),
            (Ended::Late, _) => "what was under way did not come to an end".to_owned(),
            (Ended::Settled, 0) => String::new(),
            (Ended::Settled, several) => format!("payments that differ between log and books: {several}"),
        };
        if !wrong.is_empty() {
            return Err(Failure::Unproven(wrong).into());
        }
        let missing = self.claims.iter().find(|claim| is_everything && !claim.holds);
        missing.map_or(Ok(()), |claim| Err(Failure::Unproven(format!("not seen: {}", claim.claim)).into()))
    }
}

/// Whether all that there is to see was to be seen.
pub(super) fn is_all_seen(look: &Look) -> bool {
    claims(look, 0).iter().all(|claim| claim.holds)
}

/// What is claimed, of what was seen last and of the differences between log and books.
pub(super) fn claims(look: &Look, differences: u64) -> Vec<Claim> {
    let claim = |name, claim, holds| Claim { name, claim, holds };
    let (opened, closed) = look.changes;
    let Letters { pending, retrying, resolved } = look.letters;
    vec![
        claim("ordersFlowed", "orders were placed and confirmed", look.count.confirmed > 0),
        claim("circuitOpenedAndClosed", "the circuit opened, and closed again", opened > 0 && closed > 0),
        claim(
            "lettersRetried",
            "dead letters appeared, and succeeded when they were tried again",
            resolved > 0 && pending + retrying == 0,
        ),
        claim(
            "poisonQuarantined",
            "an event that a read model cannot take was put aside",
            look.quarantined > 0,
        ),
        claim(
            "paidExactlyOnce",
            "whatever was lost and repeated: every payment is in the log once and in the books once",
            look.count.completed > 0 && differences == 0,
        ),
    ]
}

/// Holds the log, from a position on, against the books of the provider.
pub(super) async fn differences(log: &Log, books: &BTreeMap<String, Booked>, from: u64) -> Result<u64> {
    let mut paid = BTreeMap::<String, Paid>::new();
    for event_type in ["PaymentCompleted", "PaymentRefunded"] {
        read(log, Selection::all().of_type(event_type)?, from, &mut paid).await?;
    }
    Ok(compare(&paid, books))
}

/// Reads what the log says of payments.
async fn read(log: &Log, those: Selection, from: u64, paid: &mut BTreeMap<String, Paid>) -> Result<()> {
    let mut after = Some(0);
    while let Some(position) = after {
        let page = log.read(&those.clone().after(position), PAGE).await?;
        after = page.next;
        for event in &page.events {
            let is_ours = event.position() > from;
            match decode(event) {
                Ok(PaymentEvent::PaymentCompleted { payment_id, amount_cents, .. }) => {
                    let paid = paid.entry(payment_id).or_default();
                    (paid.times, paid.amount_cents) = (paid.times + 1, amount_cents);
                    paid.is_ours |= is_ours;
                }
                Ok(PaymentEvent::PaymentRefunded { payment_id, .. }) => {
                    paid.entry(payment_id).or_default().refunds += 1;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// A payment, as the log tells it.
#[derive(Debug, Clone, Copy, Default)]
struct Paid {
    times: u64,
    amount_cents: i64,
    refunds: u64,
    /// Whether it was made in this run. Books may be younger than the log.
    is_ours: bool,
}

fn compare(paid: &BTreeMap<String, Paid>, books: &BTreeMap<String, Booked>) -> u64 {
    let is_wrong = |(id, paid): &(&String, &Paid)| match books.get(*id) {
        Some(booked) => {
            paid.times != 1
                || paid.amount_cents != booked.amount_cents
                || paid.refunds != u64::from(booked.is_refunded)
        }
        None => paid.is_ours,
    };
    let unheard_of = books.keys().filter(|id| !paid.contains_key(*id));
    (paid.iter().filter(is_wrong).count() + unheard_of.count()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paid(times: u64, amount_cents: i64, refunds: u64) -> Paid {
        Paid { times, amount_cents, refunds, is_ours: true }
    }

    fn differences(paid: &[(&str, Paid)], books: &[(&str, i64, bool)]) -> u64 {
        let paid = paid.iter().map(|(id, paid)| ((*id).to_owned(), *paid)).collect();
        let books = books.iter().map(|(id, amount_cents, is_refunded)| {
            let (amount_cents, is_refunded) = (*amount_cents, *is_refunded);
            ((*id).to_owned(), Booked { amount_cents, is_refunded })
        });
        compare(&paid, &books.collect())
    }

    #[test]
    fn log_and_books_that_agree_do_not_differ() {
        let log = [("p-1", paid(1, 500, 0)), ("p-2", paid(1, 700, 1))];
        assert_eq!(differences(&log, &[("p-1", 500, false), ("p-2", 700, true)]), 0);
        let before = Paid { is_ours: false, ..paid(1, 500, 0) };
        assert_eq!(differences(&[("p-0", before)], &[]), 0, "the books are younger");
    }

    #[test]
    fn whatever_is_lost_doubled_or_changed_is_found() {
        let books = [("p-1", 500, false)];
        for wrong in [paid(2, 500, 0), paid(1, 501, 0), paid(1, 500, 1), paid(0, 500, 0)] {
            assert_eq!(differences(&[("p-1", wrong)], &books), 1, "{wrong:?}");
        }
        assert_eq!(differences(&[], &books), 1, "charged, and nobody knows");
        assert_eq!(differences(&[("p-1", paid(1, 500, 0))], &[]), 1, "never charged");
    }
}
