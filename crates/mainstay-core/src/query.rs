//! Queries over events, as the specification of dynamic consistency boundaries (dcb.events) has them.
//!
//! A query is a list of items of which any may match; an item matches an event whose type is one of its types and
//! which carries all of its tags. An item without types and tags matches every event; a query without items could
//! only be a mistake, and is refused.

use crate::keys::has_control;
use serde::{Deserialize, Serialize};

/// Most items in a query, and most types or tags in an item.
pub const MAX_PARTS: usize = 64;
/// Longest type or tag.
pub const MAX_NAME_BYTES: usize = 512;

/// Which events are meant. Only valid ones exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Item>", into = "Vec<Item>")]
pub struct Query(Vec<Item>);

/// One way to match: any of the types and all of the tags.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// The event's type is one of these; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// The event has all of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// Why a query was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// It has no items.
    #[error("a query needs at least one item; an item without types and tags matches every event")]
    Empty,
    /// It has too many parts.
    #[error("{what}: {count} are more than {MAX_PARTS}")]
    TooMany {
        /// Items, types or tags.
        what: &'static str,
        /// How many there are.
        count: usize,
    },
    /// A type or tag is empty, too long, or has control characters.
    #[error("a {what} has 1 to {MAX_NAME_BYTES} bytes and no control characters")]
    BadName {
        /// Type or tag.
        what: &'static str,
    },
}

impl Query {
    /// Checks a query. What is said twice is kept once.
    pub fn new(items: Vec<Item>) -> Result<Self, QueryError> {
        if items.is_empty() {
            return Err(QueryError::Empty);
        }
        count("items", items.len())?;
        items.into_iter().map(Item::checked).collect::<Result<_, _>>().map(Self)
    }

    /// The items, each with its types and tags in order.
    pub fn items(&self) -> &[Item] {
        &self.0
    }

    /// Whether an event of this type with these tags is meant.
    pub fn matches(&self, event_type: &str, tags: &[impl AsRef<str>]) -> bool {
        self.matches_where(event_type, has(tags))
    }

    /// As [`matches`](Self::matches), for an event that tells whether it has a tag.
    pub fn matches_where(&self, event_type: &str, has: impl Fn(&str) -> bool) -> bool {
        self.0.iter().any(|item| item.matches_where(event_type, &has))
    }
}

impl Item {
    /// Whether an event of this type with these tags is meant.
    pub fn matches(&self, event_type: &str, tags: &[impl AsRef<str>]) -> bool {
        self.matches_where(event_type, &has(tags))
    }

    fn matches_where(&self, event_type: &str, has: &impl Fn(&str) -> bool) -> bool {
        (self.types.is_empty() || self.types.iter().any(|one| one == event_type))
            && self.tags.iter().all(|tag| has(tag))
    }

    fn checked(mut self) -> Result<Self, QueryError> {
        for (what, plural, names) in [("type", "types", &mut self.types), ("tag", "tags", &mut self.tags)] {
            names.sort_unstable();
            names.dedup();
            count(plural, names.len())?;
            if !names.iter().all(|name| is_name(name)) {
                return Err(QueryError::BadName { what });
            }
        }
        Ok(self)
    }
}

fn has(tags: &[impl AsRef<str>]) -> impl Fn(&str) -> bool {
    |wanted| tags.iter().any(|tag| tag.as_ref() == wanted)
}

/// Whether a text can be a type or a tag.
pub fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&text.len()) && !has_control(text)
}

fn count(what: &'static str, count: usize) -> Result<(), QueryError> {
    if count > MAX_PARTS { Err(QueryError::TooMany { what, count }) } else { Ok(()) }
}

impl TryFrom<Vec<Item>> for Query {
    type Error = QueryError;

    fn try_from(items: Vec<Item>) -> Result<Self, QueryError> {
        Self::new(items)
    }
}

impl From<Query> for Vec<Item> {
    fn from(query: Query) -> Self {
        query.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(types: &[&str], tags: &[&str]) -> Item {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Item { types: owned(types), tags: owned(tags) }
    }

    fn query(items: &[Item]) -> Query {
        Query::new(items.to_vec()).unwrap()
    }

    #[test]
    fn types_are_any_of_tags_are_all_of_items_are_ored() {
        let both = query(&[item(&["A", "B"], &["x", "y"])]);
        assert!(both.matches("A", &["x", "y", "z"]) && both.matches("B", &["y", "x"]));
        assert!(!both.matches("A", &["x"]) && !both.matches("C", &["x", "y"]));
        let either = query(&[item(&["A"], &[]), item(&[], &["y"])]);
        assert!(either.matches("A", &[] as &[&str]) && either.matches("Z", &["y"]));
        assert!(!either.matches("Z", &["x"]));
        assert!(query(&[item(&[], &[])]).matches("anything", &[] as &[&str]));
    }

    #[test]
    fn refuses_what_is_dangerous_or_boundless() {
        assert_eq!(Query::new(vec![]), Err(QueryError::Empty));
        let many: Vec<String> = (0..65).map(|number| format!("t{number}")).collect();
        let too_many = Item { tags: many, ..Item::default() };
        assert_eq!(Query::new(vec![too_many]), Err(QueryError::TooMany { what: "tags", count: 65 }));
        assert!(matches!(
            Query::new(vec![Item::default(); 65]),
            Err(QueryError::TooMany { what: "items", .. })
        ));
        for bad in ["", "a\nb", "a\0b", &"x".repeat(513)] {
            assert_eq!(Query::new(vec![item(&[bad], &[])]), Err(QueryError::BadName { what: "type" }));
            assert_eq!(Query::new(vec![item(&[], &[bad])]), Err(QueryError::BadName { what: "tag" }));
        }
    }

    #[test]
    fn reads_and_writes_the_wire_form() {
        let text = r#"[{"types":["A"],"tags":["x"]},{}]"#;
        let parsed: Query = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&parsed).unwrap(), text);
        assert!(serde_json::from_str::<Query>("[]").is_err());
        assert!(serde_json::from_str::<Query>(r#"[{"type":["A"]}]"#).is_err(), "an unknown field is a typo");
    }

    proptest! {
        #[test]
        fn more_tags_on_an_item_never_match_more(tags in proptest::collection::vec("[a-c]", 0..4),
                                                 wanted in proptest::collection::vec("[a-c]", 0..3)) {
            let wide = Item { types: vec![], tags: wanted.clone() };
            let mut narrow = wide.clone();
            narrow.tags.push("a".to_owned());
            prop_assert!(!narrow.matches("T", &tags) || wide.matches("T", &tags));
        }
    }
}
