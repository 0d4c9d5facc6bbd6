//! Reads the environment variables that begin with `MAINSTAY__`.
//!
//! A variable has one spelling, derived from the key: sections and keys are parted by two underscores, the words
//! of a key by one. Everything else with the prefix is refused, because a setting that silently does nothing is
//! worse than a program that does not start.

use super::{Draft, Error, Place, settings};
use std::ffi::OsString;

const PREFIX: &str = "MAINSTAY__";

/// Takes what the environment says into the draft.
pub(super) fn apply(variables: impl Iterator<Item = (OsString, OsString)>, draft: &mut Draft) {
    let mut ours: Vec<_> = variables
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, _)| name.starts_with(PREFIX))
        .collect();
    ours.sort();
    for (name, value) in ours {
        let Some(setting) = settings().find(|setting| setting.variable() == name) else {
            draft.problems.push(Error::UnknownVariable { name });
            continue;
        };
        let value = value.to_string_lossy();
        draft.take(setting, setting.kind.read(&value), Place::Environment(name), || {
            format!("the text {value:?}")
        });
    }
}
