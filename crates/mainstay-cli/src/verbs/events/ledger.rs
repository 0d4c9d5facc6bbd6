//! The log in the store, or at the server that holds it. Events are lines of JSON here, whichever of the two they come
//! from.

use crate::Result;
use crate::arguments::Global;
use crate::reach::Reached;
use crate::remote::{Remote, segment};
use crate::verbs::refuse_missing;
use mainstay::events::{self, Append, Appended, Event, Log, Selection};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;

/// The log, wherever it is.
pub(super) enum Ledger {
    Store(Log),
    Server(Arc<Remote>),
}

/// A part of the log.
pub(super) struct Page {
    /// The events, a line of JSON each.
    pub(super) lines: Vec<String>,
    /// Where to go on, when there is more.
    pub(super) next: Option<u64>,
    /// The log's last position.
    pub(super) head: u64,
    /// Which life of the log it is.
    pub(super) epoch: u64,
}

impl Ledger {
    /// As [`reach`](Self::reach), but makes no store where there is none.
    pub(super) async fn reach_existing(global: &Global) -> Result<Self> {
        if global.server.is_none() {
            refuse_missing(&global.load()?)?;
        }
        Self::reach(global).await
    }

    pub(super) async fn reach(global: &Global) -> Result<Self> {
        match global.reach().await? {
            Reached::Server(server) => Ok(Self::Server(Arc::new(server))),
            Reached::Store(store) => match Log::open(&store).await {
                Ok(log) => Ok(Self::Store(log)),
                Err(error) => {
                    store.close().await;
                    Err(error.into())
                }
            },
        }
    }

    /// Leaves the store in order.
    pub(super) async fn close(self) {
        if let Self::Store(log) = self {
            log.store().clone().close().await;
        }
    }

    pub(super) async fn append(&self, append: Append) -> Result<Appended> {
        match self {
            Self::Store(log) => Ok(log.append(append).await?),
            Self::Server(server) => server.post("/v1/events", &append),
        }
    }

    /// The first events of `selection`, at most `limit`. Of a stream, `after` and `next` are versions.
    pub(super) async fn read(&self, selection: &Selection, limit: usize) -> Result<Page> {
        match self {
            Self::Store(log) => read_store(log, selection, limit).await,
            Self::Server(server) => {
                let answer: Answer = server.get(&path(selection, limit))?;
                let lines = answer.events.iter().map(|event| on_one_line(event.get())).collect();
                Ok(Page { lines, next: answer.next, head: answer.head, epoch: answer.epoch })
            }
        }
    }
}

async fn read_store(log: &Log, selection: &Selection, limit: usize) -> Result<Page> {
    let (page, next) = match &selection.stream {
        None => {
            let page = log.read(selection, limit).await?;
            let next = page.next;
            (page, next)
        }
        Some((stream_type, id)) => {
            let page = log.read_stream(stream_type, id, selection.after, limit).await?.page;
            let last = page.events.last().and_then(Event::stream).map(|place| place.version);
            let next = page.next.and(last);
            (page, next)
        }
    };
    let events::Page { events, head, epoch, .. } = page;
    Ok(Page { lines: events.iter().map(line).collect(), next, head, epoch })
}

/// What a server answers.
#[derive(Deserialize)]
struct Answer {
    events: Vec<Box<RawValue>>,
    next: Option<u64>,
    head: u64,
    epoch: u64,
}

fn path(selection: &Selection, limit: usize) -> String {
    let limit = ("limit", limit.to_string());
    match &selection.stream {
        None => address("/v1/events", selection, [limit]),
        Some((stream_type, id)) => {
            let route = format!("/v1/streams/{}/{}", segment(stream_type), segment(id));
            address(&route, &Selection::all().after(selection.after), [limit])
        }
    }
}

/// The address of a route that takes a selection.
pub(super) fn address(
    route: &str,
    selection: &Selection,
    others: impl IntoIterator<Item = (&'static str, String)>,
) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("after", &selection.after.to_string());
    if let Some(asked) = &selection.query {
        query.append_pair("query", &serde_json::to_string(asked).expect("texts in lists are always JSON"));
    }
    if let Some(id) = &selection.correlation_id {
        query.append_pair("correlationId", id);
    }
    for (name, time) in [("since", selection.since_ms), ("before", selection.before_ms)] {
        if let Some(time) = time {
            query.append_pair(name, &time.to_string());
        }
    }
    format!("{route}?{}", query.extend_pairs(others).finish())
}

/// An event as a line of JSON.
pub(super) fn line(event: &Event) -> String {
    let mut json = Vec::with_capacity(event.bytes() + 256);
    event.write_json(&mut json);
    on_one_line(&String::from_utf8_lossy(&json))
}

/// JSON may be written over several lines, and between its texts a line break means nothing.
fn on_one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_servers_read_them() {
        let selection = Selection::all().after(7).tagged("a b&c").unwrap().correlated("x=y").since_ms(5);
        insta::assert_snapshot!(path(&selection, 10), @"/v1/events?after=7&query=%5B%7B%22tags%22%3A%5B%22a+b%26c%22%5D%7D%5D&correlationId=x%3Dy&since=5&limit=10");
        let stream = Selection::all().after(2).of_stream("an order", "1+1/ü");
        insta::assert_snapshot!(path(&stream, 10), @"/v1/streams/an%20order/1%2B1%2F%C3%BC?after=2&limit=10");
    }
}
