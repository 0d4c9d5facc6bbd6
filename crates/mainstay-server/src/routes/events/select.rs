//! The parameters that choose events.

use crate::{Answer, Problem};
use mainstay_core::query::MAX_NAME_BYTES;
use mainstay_events::{Item, Query, Selection};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

/// Longest `query`, in bytes: what fits in a request's head beside the rest.
const MAX_QUERY_BYTES: usize = 8 << 10;

/// Which events are wanted. Everything that is given must hold.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Parameters {
    /// After this position.
    #[param(minimum = 0, maximum = 9223372036854775807_i64)]
    after: Option<u64>,
    /// Up to this position, itself included.
    #[param(minimum = 0, maximum = 9223372036854775807_i64)]
    until: Option<u64>,
    /// `forward` from the oldest on, or `backward` from the newest on; forward unless given.
    #[serde(default)]
    #[param(inline)]
    order: Order,
    /// At most so many events.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Of one of these types. Types and tags make one item of a query.
    #[serde(default, rename = "type")]
    #[param(rename = "type", explode, style = Form)]
    types: Vec<String>,
    /// With all of these tags.
    #[serde(default, rename = "tag")]
    #[param(rename = "tag", explode, style = Form)]
    tags: Vec<String>,
    /// A query as JSON: a list of items `{"types":[…],"tags":[…]}`, of which any may match. Not together with type and
    /// tag.
    query: Option<String>,
    /// Of a stream of this type; together with `streamId`.
    stream_type: Option<String>,
    /// Of the stream of this id; together with `streamType`.
    stream_id: Option<String>,
    /// That belong together under this id.
    correlation_id: Option<String>,
    /// Committed at this time or later, in milliseconds since the epoch.
    since: Option<i64>,
    /// Committed before this time, in milliseconds since the epoch.
    before: Option<i64>,
    /// Only in this epoch of the log; refused when it was restored from a backup since.
    epoch: Option<u64>,
}

/// Which end of the log a page begins at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ReadOrder)]
pub(super) enum Order {
    /// The oldest first.
    #[default]
    Forward,
    /// The newest first.
    Backward,
}

/// Events of a page, unless the client says otherwise.
const USUAL_PAGE: usize = 100;

impl Parameters {
    pub(super) fn limit(&self) -> Answer<usize> {
        limit(self.limit)
    }

    pub(super) fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    pub(super) fn order(&self) -> Order {
        self.order
    }

    /// The same, for who can only go forward and without an end.
    pub(super) fn following(self) -> Answer<Self> {
        let only = "is for pages; what is followed goes forward and has no end";
        match (self.order, self.until) {
            (Order::Backward, _) => Err(Problem::invalid_parameter("order", only)),
            (_, Some(_)) => Err(Problem::invalid_parameter("until", only)),
            _ => Ok(self),
        }
    }

    fn stream(&self) -> Answer<Option<(String, String)>> {
        let (Some(stream_type), Some(id)) = (&self.stream_type, &self.stream_id) else {
            return match (&self.stream_type, &self.stream_id) {
                (Some(_), None) => Err(Problem::invalid_parameter("streamType", "needs a streamId")),
                (None, Some(_)) => Err(Problem::invalid_parameter("streamId", "needs a streamType")),
                _ => Ok(None),
            };
        };
        for (field, text) in [("streamType", stream_type), ("streamId", id)] {
            if text.len() > MAX_NAME_BYTES || text.contains(char::is_control) {
                let wrong = format!("has at most {MAX_NAME_BYTES} bytes and no control characters");
                return Err(Problem::invalid_parameter(field, wrong));
            }
        }
        Ok(Some((stream_type.clone(), id.clone())))
    }

    pub(super) fn selection(self) -> Answer<Selection> {
        let (query, stream) = (self.query()?, self.stream()?);
        if let Some(id) = &self.correlation_id {
            let fits =
                (1..=mainstay_events::MAX_ID_BYTES).contains(&id.len()) && !id.contains(char::is_control);
            if !fits {
                return Err(Problem::invalid_parameter(
                    "correlationId",
                    "must be 1 to 256 bytes, no control characters",
                ));
            }
        }
        let after = position("after", self.after.unwrap_or(0))?;
        let until = self.until.map(|until| position("until", until)).transpose()?;
        Ok(Selection {
            after,
            until,
            query,
            stream,
            correlation_id: self.correlation_id,
            since_ms: self.since,
            before_ms: self.before,
        })
    }

    fn query(&self) -> Answer<Option<Query>> {
        let Some(text) = &self.query else {
            if self.types.is_empty() && self.tags.is_empty() {
                return Ok(None);
            }
            let item = Item { types: self.types.clone(), tags: self.tags.clone() };
            let field = if self.types.is_empty() { "tag" } else { "type" };
            let query = Query::new(vec![item]);
            return query.map(Some).map_err(|error| Problem::invalid_parameter(field, error));
        };
        if !self.types.is_empty() || !self.tags.is_empty() {
            return Err(Problem::invalid_parameter("query", "cannot be given together with type or tag"));
        }
        if text.len() > MAX_QUERY_BYTES {
            return Err(Problem::invalid_parameter(
                "query",
                format!("is longer than {MAX_QUERY_BYTES} bytes"),
            ));
        }
        serde_json::from_str(text).map(Some).map_err(|error| Problem::invalid_parameter("query", error))
    }
}

/// A position or version that the log can have.
pub(super) fn position(field: &str, number: u64) -> Answer<u64> {
    if i64::try_from(number).is_ok() {
        return Ok(number);
    }
    Err(Problem::invalid_parameter(field, "is larger than any position"))
}

/// How many events a page may have.
pub(super) fn limit(asked: Option<usize>) -> Answer<usize> {
    let limit = asked.unwrap_or(USUAL_PAGE);
    if (1..=mainstay_events::MAX_PAGE).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::invalid_parameter("limit", "must be a number from 1 to 1000"))
}
