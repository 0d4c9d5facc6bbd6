//! Which events a decision rests on.

use crate::commands::codec;
use crate::{Error, Result};
use mainstay_events::{Item, Query};

/// The events that a decision rests on: those with certain tags, of the types that the application's enum has. What is
/// outside of it may happen at the same time without disturbing the decision, so the narrower it is, the better.
///
/// ```
/// use mainstay_flows::commands::Boundary;
///
/// let order = Boundary::tag("order:1");
/// let stock = Boundary::any_of(["product:lamp", "product:bulb"]).types(["StockAdded", "StockReserved"]);
/// let both = order.or(stock);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary(Vec<Item>);

impl Boundary {
    /// Events with this tag.
    pub fn tag(tag: impl Into<String>) -> Self {
        Self::all_of([tag])
    }

    /// Events with all of these tags.
    pub fn all_of(tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(vec![Item { types: Vec::new(), tags: tags.into_iter().map(Into::into).collect() }])
    }

    /// Events with any of these tags.
    pub fn any_of(tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let item = |tag: String| Item { types: Vec::new(), tags: vec![tag] };
        Self(tags.into_iter().map(|tag| item(tag.into())).collect())
    }

    /// Only those of these types; without it, all types of the application's enum.
    pub fn types(mut self, types: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let types: Vec<String> = types.into_iter().map(Into::into).collect();
        for item in &mut self.0 {
            item.types.clone_from(&types);
        }
        self
    }

    /// These, and those of another boundary.
    pub fn or(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The query over the log. What says no types gets those of `E`, so that a tag may also be on events of others.
    pub(crate) fn query<E: codec::DomainEvent>(mut self) -> Result<Query> {
        for item in self.0.iter_mut().filter(|item| item.types.is_empty()) {
            item.types = codec::types::<E>()?.iter().map(|&name| name.to_owned()).collect();
        }
        Query::new(self.0).map_err(|error| Error::invalid("boundary", error.to_string()))
    }
}

impl From<Query> for Boundary {
    fn from(query: Query) -> Self {
        Self(query.into())
    }
}
