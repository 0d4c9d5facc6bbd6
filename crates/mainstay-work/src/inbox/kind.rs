//! Kinds of dead letters.

use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;

/// A kind of dead letter. It says which [`Source`](super::Source) keeps the letter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An item of work.
    Work,
    /// An item that reports the end of another item.
    OnComplete,
    /// An event that was to be appended.
    Append,
    /// An event that was not delivered to another context.
    Publication,
    /// An event that a projection could not apply.
    Projection,
    /// An event that a projection with poison handling could not apply.
    QuarantinedEvent,
    /// An item of work whose application named the kind, see [`NewWork::letter_kind`](crate::NewWork::letter_kind).
    #[non_exhaustive]
    Named(String),
}

/// Names of kinds to come. Applications cannot take them.
const RESERVED: [&str; 2] = ["compensation", "queueMessage"];

impl Kind {
    /// Kinds that the platform names.
    pub const ALL: [Self; 6] = [
        Self::Work,
        Self::OnComplete,
        Self::Append,
        Self::Publication,
        Self::Projection,
        Self::QuarantinedEvent,
    ];

    /// The name in rows, JSON and queries.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Work => "work",
            Self::OnComplete => "onComplete",
            Self::Append => "append",
            Self::Publication => "publication",
            Self::Projection => "projection",
            Self::QuarantinedEvent => "quarantinedEvent",
            Self::Named(name) => name,
        }
    }

    /// Whether letters of this kind are items of work.
    pub fn is_of_work(&self) -> bool {
        match self {
            Self::Work | Self::OnComplete | Self::Append | Self::Named(_) => true,
            Self::Publication | Self::Projection | Self::QuarantinedEvent => false,
        }
    }

    /// Checks a kind that a caller filters by.
    pub(crate) fn check(&self) -> Result<()> {
        crate::item::name("kind", self.as_str())
    }

    /// Checks a kind that a caller gives to an item of work.
    pub(crate) fn check_of_work(&self, field: &str) -> Result<()> {
        crate::item::name(field, self.as_str())?;
        match self.is_of_work() && !RESERVED.contains(&self.as_str()) {
            true => Ok(()),
            false => Err(Error::invalid(field, format!("{self} is not a kind for work"))),
        }
    }
}

impl From<&str> for Kind {
    fn from(name: &str) -> Self {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == name);
        known.unwrap_or_else(|| Self::Named(name.to_owned()))
    }
}

impl From<String> for Kind {
    fn from(name: String) -> Self {
        Self::from(name.as_str())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq<str> for Kind {
    fn eq(&self, name: &str) -> bool {
        self.as_str() == name
    }
}

impl PartialEq<&str> for Kind {
    fn eq(&self, name: &&str) -> bool {
        self.as_str() == *name
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_as_it_is_written() {
        for kind in Kind::ALL.into_iter().chain([Kind::Named("refund".to_owned())]) {
            assert_eq!(Kind::from(kind.as_str()), kind);
            let text = serde_json::to_string(&kind).unwrap();
            assert_eq!(text, format!("\"{kind}\""));
            assert_eq!(serde_json::from_str::<Kind>(&text).unwrap(), kind);
        }
    }

    #[test]
    fn applications_name_kinds_of_work_and_no_others() {
        for name in ["work", "append", "onComplete", "refund"] {
            assert!(Kind::from(name).check_of_work("letterKind").is_ok(), "{name}");
        }
        for name in
            ["projection", "publication", "quarantinedEvent", "compensation", "queueMessage", "", "a b"]
        {
            let refused = Kind::from(name).check_of_work("letterKind").unwrap_err();
            assert_eq!(refused.code(), "WORK_INVALID", "{name}");
        }
    }
}
