//! The flags that choose events.

use crate::{Error, Result};
use clap::Args;
use mainstay::events::{Item, Query, Selection};
use serde::de::DeserializeOwned;

/// Which events are wanted. Everything that is given must hold.
#[derive(Debug, Default, Args)]
pub(super) struct Filters {
    /// Only events of this type; given several times, of any of them
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only events with this tag; given several times, with all of them
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Only events that this query means: [{"types":[…],"tags":[…]}, …], of which any may match
    #[arg(long, value_name = "JSON", conflicts_with_all = ["types", "tags"])]
    query: Option<String>,
    /// Only events that belong together under this id
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
}

impl Filters {
    /// What the log is asked for.
    pub(super) fn selection(&self) -> Result<Selection> {
        Ok(Selection {
            query: self.query()?,
            correlation_id: self.correlation_id.clone(),
            ..Selection::default()
        })
    }

    fn query(&self) -> Result<Option<Query>> {
        if let Some(text) = &self.query {
            return json("--query", text).map(Some);
        }
        if self.types.is_empty() && self.tags.is_empty() {
            return Ok(None);
        }
        let flag = if self.types.is_empty() { "--tag" } else { "--type or --tag" };
        let item = Item { types: self.types.clone(), tags: self.tags.clone() };
        let query = Query::new(vec![item]).map_err(|error| Error::Argument(format!("{flag}: {error}")))?;
        Ok(Some(query))
    }
}

/// The JSON that a flag was given.
pub(super) fn json<T: DeserializeOwned>(flag: &str, text: &str) -> Result<T> {
    crate::verbs::json(flag, text)
}

/// A stream's type and id; only the id may contain a slash.
pub(super) fn stream(text: &str) -> Result<(String, String)> {
    match text.split_once('/') {
        Some((stream_type, id)) if !stream_type.is_empty() && !id.is_empty() => {
            Ok((stream_type.to_owned(), id.to_owned()))
        }
        _ => Err(Error::Argument(format!("--stream: {text:?} is not TYPE/ID, as in order/1"))),
    }
}

/// A moment as people or programs write it, in milliseconds since the epoch.
pub(in crate::verbs) fn moment(text: &str) -> std::result::Result<i64, String> {
    if let Ok(millis) = text.parse() {
        return Ok(millis);
    }
    let time: jiff::Timestamp = text.parse().map_err(|_| {
        format!("{text:?} is not a time such as 2027-01-15T08:00:00Z, nor milliseconds since the epoch")
    })?;
    Ok(time.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_texts_or_numbers() {
        for text in
            ["1800000000000", "2027-01-15T08:00:00Z", "2027-01-15T09:00:00.000+01:00", "2027-01-15 08:00Z"]
        {
            assert_eq!(moment(text), Ok(1_800_000_000_000), "{text}");
        }
        for bad in ["", "yesterday", "2027-01-15", "08:00", "2027-01-15T08:00:00"] {
            assert!(moment(bad).unwrap_err().contains("is not a time such as"), "{bad}");
        }
    }

    #[test]
    fn a_stream_is_a_type_and_an_id() {
        assert_eq!(stream("order/a/b").unwrap(), ("order".to_owned(), "a/b".to_owned()));
        for bad in ["order", "order/", "/1", ""] {
            assert!(stream(bad).is_err(), "{bad}");
        }
    }
}
