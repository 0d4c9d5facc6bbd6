//! Pages of the log. Events are lines of JSON here.

use crate::Result;
use crate::client::{Call, Client, segment};
use mainstay::events::Selection;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A part of the log.
pub(super) struct Page {
    /// The events, a line of JSON each.
    pub(super) lines: Vec<String>,
    /// Position of the next page, if there is one.
    pub(super) next: Option<u64>,
    /// The log's last position.
    pub(super) head: u64,
    /// Epoch of the log; a restored log has another.
    pub(super) epoch: u64,
}

/// Reads the first events of `selection`, at most `limit`. Of a stream, `after` and `next` are versions.
pub(super) async fn read(client: &Client, selection: &Selection, limit: usize) -> Result<Page> {
    let answer: Answer = client.send(Call::new(&format!("GET {}", path(selection, limit)), &[])).await?;
    let lines = answer.events.iter().map(|event| on_one_line(event.get())).collect();
    Ok(Page { lines, next: answer.next, head: answer.head, epoch: answer.epoch })
}

/// Response of the API.
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
