//! Data of older versions, brought up to date as they are read.
//!
//! The log is never rewritten: an event stays as it was written, and says by its `schemaVersion` how.

use super::codec::Unreadable;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::BTreeMap;

type Upcaster = Box<dyn Fn(&str) -> serde_json::Result<String> + Send + Sync>;

/// The steps from each older version of an event's data to the next. The last of them leads to today's version, which is
/// also the one that new events are written in; a type without any is at version 1.
///
/// ```
/// use mainstay_flows::commands::Upcasters;
/// use serde_json::{Value, json};
///
/// let upcasters = Upcasters::new().on("OrderSubmitted", 1, |mut data: Value| {
///     data["customer"] = json!({"id": data["customer_id"]});
///     data
/// });
/// assert_eq!(upcasters.current("OrderSubmitted"), 2);
/// ```
#[derive(Default)]
pub struct Upcasters(BTreeMap<String, BTreeMap<u32, Upcaster>>);

impl Upcasters {
    /// None.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// How data of version `from` become those of the next. `step` takes and gives anything that serde knows: a
    /// [`serde_json::Value`], or types that say what each version was.
    ///
    /// # Panics
    /// When there is a step from this version of this type already: the program says two things.
    pub fn on<A, B>(
        mut self,
        event_type: impl Into<String>,
        from: u32,
        step: impl Fn(A) -> B + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned,
        B: Serialize,
    {
        let event_type = event_type.into();
        let upcaster = move |data: &str| serde_json::to_string(&step(serde_json::from_str(data)?));
        let steps = self.0.entry(event_type.clone()).or_default();
        let before = steps.insert(from, Box::new(upcaster));
        assert!(before.is_none(), "two upcasters of {event_type} from version {from}");
        self
    }

    /// Today's version of a type.
    pub fn current(&self, event_type: &str) -> u32 {
        let steps = self.0.get(event_type).and_then(BTreeMap::last_key_value);
        steps.map_or(1, |(last, _)| last.saturating_add(1))
    }

    /// The data in today's version; untouched if that is what they are.
    pub fn apply<'a>(
        &self,
        event_type: &str,
        version: u32,
        data: &'a str,
    ) -> Result<Cow<'a, str>, Unreadable> {
        let current = self.current(event_type);
        if version > current {
            return Err(Unreadable::FutureVersion { version, current });
        }
        let mut data = Cow::Borrowed(data);
        for from in version..current {
            let step = self.0.get(event_type).and_then(|steps| steps.get(&from));
            let step = step.ok_or(Unreadable::MissingMigration { version, missing: from })?;
            let next =
                step(&data).map_err(|error| Unreadable::Invalid(format!("version {from}: {error}")))?;
            data = Cow::Owned(next);
        }
        Ok(data)
    }
}

impl std::fmt::Debug for Upcasters {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let steps = self.0.iter().map(|(name, steps)| (name, steps.keys().collect::<Vec<_>>()));
        out.debug_map().entries(steps).finish()
    }
}
