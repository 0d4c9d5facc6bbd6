//! What there is after everything has ended, and what of it is wrong.

use super::node::Node;
use crate::delivery::support::{Payment, data};
use mainstay_events::{Log, Selection};
use mainstay_flows::delivery::intents::{IntentStatus, Orphans, Policy};
use mainstay_store::Tx;
use mainstay_work::{LetterFilter, OnComplete, Work};
use std::collections::{BTreeMap, BTreeSet};

/// What there is in a store after everything has ended.
#[derive(Default)]
pub(super) struct Found {
    /// The type of the event of each payment, and the keys of all events.
    pub(super) events: BTreeMap<String, String>,
    /// The intents that were begun, and what each ended with.
    pub(super) intents: BTreeMap<String, Vec<String>>,
    /// How often each letter is there, by what it is about.
    pub(super) letters: BTreeMap<String, usize>,
    /// How often each was told.
    pub(super) told: BTreeMap<String, usize>,
    /// The intents that nobody has completed.
    pub(super) orphans: BTreeSet<String>,
    pub(super) wrong: Vec<String>,
}

impl Found {
    pub(super) async fn load(node: &Node) -> Self {
        let mut found = Self::default();
        found.load_events(&node.log).await;
        found.load_letters(&node.work).await;
        let told = async |tx: Tx| {
            let rows = tx.query("SELECT id FROM told", &[]).await?;
            rows.iter().map(|row| row.get(0)).collect::<mainstay_store::Result<Vec<String>>>()
        };
        for id in node.store.read(told).await.unwrap() {
            *found.told.entry(id).or_default() += 1;
        }
        let mut orphans = Orphans::default();
        loop {
            let page = node.intents.orphans(orphans.clone(), 100).await.unwrap();
            found.orphans.extend(page.intents.into_iter().map(|intent| intent.intent_key));
            let Some(next) = page.next else { break };
            orphans.after = Some(next);
        }
        for (key, ends) in found.intents.clone() {
            let intent = node.intents.get(&key).await.unwrap();
            let policy = intent.on_timeout.policy;
            let (status, times) = match policy {
                Policy::Alert => (IntentStatus::Pending, 1),
                Policy::Retry => (IntentStatus::Abandoned, 2),
                Policy::Abandon => (IntentStatus::Abandoned, 1),
            };
            let is_listed = found.orphans.contains(&key) == (status == IntentStatus::Pending);
            let has_ended = ends == ["SubmissionAbandoned"] || ends.is_empty() && policy == Policy::Alert;
            let is_told = (1..=3).all(|number| {
                let count = found.told.get(&format!("{key} {number}")).copied().unwrap_or_default();
                count == usize::from(number <= times)
            });
            if intent.status != status || !is_listed || !has_ended || !is_told {
                found.wrong.push(format!("intent {key} ({policy:?}): {:?} {ends:?}", intent.status));
            }
        }
        found
    }

    async fn load_events(&mut self, log: &Log) {
        let mut selection = Selection::all();
        loop {
            let page = log.read(&selection, 1_000).await.unwrap();
            for event in &page.events {
                let (key, event_type) = (event.idempotency_key().unwrap(), event.event_type().to_owned());
                if let Some(intent_key) = data(event)["intentKey"].as_str() {
                    let ends = self.intents.entry(intent_key.to_owned()).or_default();
                    ends.extend(Some(event_type.clone()).filter(|name| name != "SubmissionStarted"));
                }
                if self.events.insert(key.to_owned(), event_type).is_some() {
                    self.wrong.push(format!("{key} is there twice"));
                }
            }
            let Some(next) = page.next else { return };
            selection.after = next;
        }
    }

    async fn load_letters(&mut self, work: &Work) {
        let mut after = Some(0);
        while let Some(last) = after {
            let filter = LetterFilter { after, ..LetterFilter::default() };
            let letters = work.letters(filter, 100).await.unwrap();
            after = letters.last().map(|letter| letter.number).filter(|number| *number > last);
            for letter in letters {
                let about = match letter.kind.as_str() {
                    "onComplete" => serde_json::from_str::<OnComplete<Payment>>(letter.args.get())
                        .ok()
                        .and_then(|told| told.context)
                        .map(|payment| payment.order_id),
                    "append" => {
                        letter.context.as_ref().and_then(|context| serde_json::from_str(context.get()).ok())
                    }
                    // An action that fails is an event, and leaves nothing to retry beside it.
                    _ => None,
                };
                match about {
                    Some(about) => *self.letters.entry(about).or_default() += 1,
                    None => self.wrong.push(format!("{} is a letter: {}", letter.function, letter.error)),
                }
            }
        }
    }

    pub(super) fn event_of(&self, payment: &str) -> Option<&str> {
        self.events.get(&format!("payment:{payment}")).map(String::as_str)
    }

    /// Whether what was promised is so.
    pub(super) fn holds(&self, what: &str, id: &str) -> bool {
        let is_letter = self.letters.contains_key(id);
        match what {
            "failed" => self.event_of(id) == Some("PaymentFailed") && !is_letter,
            "ended" => self.event_of(id).is_some() && !is_letter,
            "letter" => is_letter && self.event_of(id).is_none(),
            "intent" => self.intents.contains_key(id),
            other => panic!("{other} was never promised"),
        }
    }
}
