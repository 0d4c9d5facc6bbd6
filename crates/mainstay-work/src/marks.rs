//! Marks of calls that the platform makes of its own functions.
//!
//! Names of the platform are refused where callers enqueue, and the platform marks its own items. So what was enqueued
//! before names were reserved runs only when it is the platform's.

use crate::enqueue;
use crate::functions::Functions;
use crate::inbox::Kind;
use crate::item::Item;
use mainstay_core::names::{RESERVED_PREFIX, Reserved};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The function that appends the event in its args. All others take ids, and read the rest from their own tables.
const APPEND: &str = "mainstay.append";
/// Functions of the platform's crons. They have no args.
const OF_CRONS: [&str; 3] =
    ["mainstay.command.prune", "mainstay.letters.upkeep", "mainstay.publication.upkeep"];

/// The context of an item that a cron has enqueued.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tick {
    #[serde(rename = "cron")]
    _cron: String,
    #[serde(rename = "scheduledAt")]
    _scheduled_at: i64,
}

impl Item {
    /// Whether code of the platform has enqueued this call of a function of the platform. The telling of an end is no such call.
    ///
    /// Version 0.1 marked nothing. Its own items are told from those that a caller could make there:
    ///
    /// | made by | trace | context | correlation, letter of its own |
    /// |---|---|---|---|
    /// | a request | always | any | never |
    /// | a cron | never | `{cron, scheduledAt}` | never |
    /// | the platform, about an event, an intent or a command | | | always |
    /// | the platform otherwise | never | ids, or none | |
    pub(crate) fn is_of_platform(&self) -> bool {
        if self.is_platform || self.completes.is_some() {
            return self.is_platform;
        }
        let is_append = self.letter_kind == Some(Kind::Append);
        match self.function.as_str() {
            APPEND => is_append,
            function if OF_CRONS.contains(&function) => true,
            _ => {
                // An item without a correlation begins one, which is its id.
                let is_correlated =
                    self.correlation.as_deref().is_some_and(|id| enqueue::parse(id).is_none());
                let is_plain = self.trace.is_none() && !self.context.as_deref().is_some_and(is_tick);
                self.is_unlisted || is_correlated || is_plain
            }
        }
    }
}

fn is_tick(context: &RawValue) -> bool {
    serde_json::from_str::<Tick>(context.get()).is_ok()
}

impl Functions {
    /// Refuses the call of a function of the platform that the platform has not made. A function that is told of ends checks
    /// the end itself; one of another node is checked there.
    pub(crate) fn check_call(&self, item: &Item) -> Result<(), Reserved> {
        let is_told = || {
            let may_be_told = self.get(&item.function).is_none_or(|function| function.is_told);
            item.completes.is_some() && may_be_told
        };
        match !item.function.starts_with(RESERVED_PREFIX) || item.is_of_platform() || is_told() {
            true => Ok(()),
            false => Err(Reserved { field: "function".to_owned() }),
        }
    }
}
