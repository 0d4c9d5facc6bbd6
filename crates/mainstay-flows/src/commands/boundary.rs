//! Which events a decision rests on.

use super::codec::{self, DomainEvent};
use crate::{Error, Result};
use mainstay_core::query::MAX_PARTS;
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
    pub(crate) fn query<E: DomainEvent>(self) -> Result<Query> {
        let mut items = Vec::with_capacity(self.0.len());
        for Item { types, tags } in self.0 {
            if !types.is_empty() {
                items.push(Item { types, tags });
                continue;
            }
            // An item takes so many types, and an enum may have more.
            for types in codec::types::<E>()?.chunks(MAX_PARTS) {
                let types = types.iter().map(|&name| name.to_owned()).collect();
                items.push(Item { types, tags: tags.clone() });
            }
        }
        Query::new(items).map_err(|error| Error::invalid("boundary", error.to_string()))
    }
}

impl From<Query> for Boundary {
    fn from(query: Query) -> Self {
        Self(query.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    enum Sky {
        SunRose,
        SunSet,
    }

    impl DomainEvent for Sky {
        fn tags(&self) -> Vec<String> {
            vec!["sky".to_owned()]
        }
    }

    fn means(boundary: Boundary, event_type: &str, tags: &[&str]) -> bool {
        boundary.query::<Sky>().unwrap().matches(event_type, tags)
    }

    #[test]
    fn means_the_events_of_the_enum_with_its_tags() {
        let both = || Boundary::all_of(["a", "b"]);
        assert!(means(both(), "SunRose", &["a", "b", "c"]) && means(both(), "SunSet", &["b", "a"]));
        assert!(!means(both(), "SunRose", &["a"]) && !means(both(), "MoonRose", &["a", "b"]));
        let either = || Boundary::any_of(["a", "b"]);
        assert!(means(either(), "SunRose", &["a"]) && means(either(), "SunRose", &["b"]));
        assert!(!means(either(), "SunRose", &["c"]));
    }

    #[test]
    fn types_narrow_what_was_said_before_them() {
        let narrow = || Boundary::tag("a").types(["SunSet"]).or(Boundary::tag("b"));
        assert!(means(narrow(), "SunSet", &["a"]) && !means(narrow(), "SunRose", &["a"]));
        assert!(means(narrow(), "SunRose", &["b"]));
    }

    #[test]
    fn a_query_is_a_boundary_too() {
        let query = Query::new(vec![Item { types: vec!["Rain".to_owned()], tags: Vec::new() }]).unwrap();
        assert_eq!(Boundary::from(query.clone()).query::<Sky>().unwrap(), query);
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        let endless = Boundary::any_of((0..65).map(|number| number.to_string()));
        for bad in [Boundary::tag(""), Boundary::tag("a\nb"), Boundary::any_of([] as [&str; 0]), endless] {
            let error = bad.query::<Sky>().unwrap_err();
            assert!(error.code() == "FLOW_INVALID" && error.to_string().starts_with("boundary: "), "{error}");
        }
    }

    #[test]
    fn an_enum_may_have_more_types_than_an_item_takes() {
        macro_rules! long {
            ($($name:ident)*) => {
                #[derive(Serialize, Deserialize)]
                enum Long { $($name),* }
            };
        }
        long! {
            A00 A01 A02 A03 A04 A05 A06 A07 A08 A09 A10 A11 A12 A13 A14 A15 A16 A17 A18 A19 A20 A21 A22 A23
            A24 A25 A26 A27 A28 A29 A30 A31 A32 A33 A34 A35 A36 A37 A38 A39 A40 A41 A42 A43 A44 A45 A46 A47
            A48 A49 A50 A51 A52 A53 A54 A55 A56 A57 A58 A59 A60 A61 A62 A63 A64
        }
        impl DomainEvent for Long {
            fn tags(&self) -> Vec<String> {
                Vec::new()
            }
        }
        let query = Boundary::tag("a").query::<Long>().unwrap();
        assert!(
            query.matches("A00", &["a"]) && query.matches("A64", &["a"]) && !query.matches("A65", &["a"])
        );
    }
}
