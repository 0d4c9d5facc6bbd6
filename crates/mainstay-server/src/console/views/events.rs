//! Events: the newest first, by type, tag, stream, correlation and time; one in full; a stream.

use super::super::api::{Fault, path, tenant_of, with_tenant};
use super::super::page::Sheet;
use super::super::parts::{
    Column, Told, code, count, field, filters, link, moment, next, pretty, rows, short, table,
};
use super::super::visit::{Asked, Visit};
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

pub(super) async fn list(visit: &Visit) -> Result<Sheet, Fault> {
    let live = match parameters(&visit.asked) {
        Ok(further) => found(visit, &further).await?,
        Err(wrong) => html! {
            @for wrong in wrong { p.notice.bad { (wrong) } }
            p.nothing { "Nothing was looked for." }
        },
    };
    let fields = html! {
        (field(visit, "type", "Type"))
        (field(visit, "tag", "Tag"))
        label { "Stream" input type="text" name="stream" value=[visit.asked.get("stream")] placeholder="Order/order-1" autocomplete="off"; }
        (field(visit, "correlationId", "Correlation"))
        label { "From (UTC)" input type="datetime-local" step="1" name="from" value=[visit.asked.get("from")]; }
        label { "Until (UTC)" input type="datetime-local" step="1" name="to" value=[visit.asked.get("to")]; }
    };
    Ok(Sheet::new("Events", live).controls(filters(visit, fields)))
}

/// A page of the events that are like what was asked.
async fn found(visit: &Visit, further: &[(&str, String)]) -> Result<Markup, Fault> {
    let mut parameters = vec![("order", "backward"), ("limit", "50")];
    parameters.extend(further.iter().map(|(name, value)| (*name, value.as_str())));
    let asked = visit.asked.only("/v1/events", &["type", "tag", "correlationId", "until"], &parameters);
    let page = visit.get(&asked).await?;
    Ok(html! {
        p.hint { "The log has " (count(page.number("head"))) " events." }
        (drawn(page.list("events")))
        (next(visit, "until", page.maybe("next").map(|next| next.to_string()).as_deref()))
    })
}

/// What fields of the form mean that the API knows by other names, or what could not be read. Whoever asks for something must
/// not be shown everything because of a slip.
fn parameters(asked: &Asked) -> Result<Vec<(&'static str, String)>, Vec<String>> {
    let (mut further, mut wrong) = (Vec::new(), Vec::new());
    if let Some(text) = asked.get("stream") {
        match text.split_once('/').filter(|(kind, id)| !kind.is_empty() && !id.is_empty()) {
            Some((kind, id)) => {
                further.extend([("streamType", kind.to_owned()), ("streamId", id.to_owned())]);
            }
            None => wrong.push(format!(
                "“{text}” is no stream: that is a type and an id with a slash between, such as Order/order-1."
            )),
        }
    }
    for (field, parameter) in [("from", "since"), ("to", "before")] {
        let Some(text) = asked.get(field) else { continue };
        match instant(text) {
            Some(instant) => further.push((parameter, instant)),
            None => wrong.push(format!("“{text}” is no time: that is one of UTC, such as 2026-01-31T13:30.")),
        }
    }
    if wrong.is_empty() { Ok(further) } else { Err(wrong) }
}

/// A moment of UTC as a browser's field has it, in milliseconds.
fn instant(text: &str) -> Option<String> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let whole = if text.len() == 16 { format!("{text}:00Z") } else { format!("{text}Z") };
    Some(whole.parse::<Timestamp>().ok()?.as_millisecond().to_string())
}

fn drawn(events: &[Value]) -> Markup {
    let rows = events.iter().map(|event| {
        let tags = event.list("tags").iter().filter_map(Value::as_str);
        vec![
            html! { (count(event.number("position"))) },
            link(&with_tenant(path(&["console", "events", event.text("eventId")]), tenant_of(event)), event.text("type")),
            stream_link(event),
            html! { @for tag in tags.take(4) { a.tag href={ "/console/events?tag=" (escaped(tag)) } { (short(tag, 32)) } " " } },
            link(&path(&["console", "traces", event.text("correlationId")]), event.text("correlationId")),
            moment(event.number("timestamp")),
        ]
    });
    let columns = [
        Column::Number("Position"),
        Column::Text("Type"),
        Column::Text("Stream"),
        Column::Text("Tags"),
        Column::Text("Correlation"),
        Column::Text("When (UTC)"),
    ];
    table(&columns, rows.collect(), "No event is like that.")
}

fn escaped(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn stream_link(event: &Value) -> Markup {
    let Some(stream) = event.get("stream").filter(|stream| !stream.is_null()) else { return html! {} };
    let (kind, id) = (stream.text("type"), stream.text("id"));
    html! { (link(&path(&["console", "streams", kind, id]), &format!("{kind}/{id}"))) " " span.hint { (stream.number("version")) } }
}

pub(super) async fn one(visit: &Visit, id: &str) -> Result<Sheet, Fault> {
    let event = visit.get(&visit.asked.only(&path(&["v1", "events", id]), &["tenant"], &[])).await?;
    let published = visit.asked.only(&path(&["v1", "publications", id]), &["tenant"], &[]);
    let published = visit.get(&published).await.unwrap_or_default();
    let text = |name: &str| event.get(name).and_then(Value::as_str).map(code);
    let tags = event.list("tags").iter().filter_map(Value::as_str);
    let trace = event.get("trace").filter(|trace| !trace.is_null());
    let live = html! {
        (rows(vec![
            ("Event", text("eventId")),
            ("Position", Some(html! { (count(event.number("position"))) })),
            ("When (UTC)", Some(moment(event.number("timestamp")))),
            ("Stream", Some(stream_link(&event))),
            ("Tags", Some(html! { @for tag in tags { a.tag href={ "/console/events?tag=" (escaped(tag)) } { (tag) } " " } })),
            ("Correlation", Some(link(&path(&["console", "traces", event.text("correlationId")]), event.text("correlationId")))),
            ("Caused by", text("causationId")),
            ("Category", text("category")),
            ("Schema version", event.maybe("schemaVersion").map(|version| html! { (version) })),
            ("Context", text("boundedContext")),
            ("Tenant", text("tenantId")),
            ("Idempotency key", text("idempotencyKey")),
            ("Trace", trace.map(|trace| code(trace.text("traceId")))),
        ]))
        section { h2 { "Data" }
            @if event.is("erased") { p.nothing { "The data of this event was erased." } } @else { (pretty(&event["data"])) }
        }
        @if event.get("metadata").is_some_and(|metadata| !metadata.is_null()) { section { h2 { "Metadata" } (pretty(&event["metadata"])) } }
        section { h2 { "Publications" } (super::publications::drawn(visit, published.list("publications"))) }
    };
    Ok(Sheet::new(event.text("type"), live))
}

pub(super) async fn stream(visit: &Visit, kind: &str, id: &str) -> Result<Sheet, Fault> {
    let asked = visit.asked.only(&path(&["v1", "streams", kind, id]), &["after"], &[("limit", "100")]);
    let page = visit.get(&asked).await?;
    let live = html! {
        p.hint { "Version " (page.number("version")) "." }
        (drawn(page.list("events")))
        (next(visit, "after", page.maybe("next").map(|next| next.to_string()).as_deref()))
    };
    Ok(Sheet::new(format!("Stream {kind}/{id}"), live))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_is_passed_on_and_what_cannot_is_named() {
        let read = |query: &str| parameters(&Asked::parse(query));
        let pair = |name, value: &str| (name, value.to_owned());
        assert_eq!(read("type=a&stream="), Ok(vec![]));
        let stream = vec![pair("streamType", "Order"), pair("streamId", "a/b")];
        assert_eq!(read("stream=Order/a/b"), Ok(stream));
        for moment in ["1970-01-01T00:01", "1970-01-01T00:01:00", "1970-01-01T00:01:00.000Z"] {
            assert_eq!(read(&format!("from={moment}")), Ok(vec![pair("since", "60000")]));
        }
        for wrong in ["stream=Order", "stream=/a", "stream=Order/", "from=yesterday", "to=2026-02-30T00:00"] {
            assert_eq!(read(wrong).unwrap_err().len(), 1, "{wrong}");
        }
        assert_eq!(read("stream=Order&from=x&to=1970-01-01T00:01").unwrap_err().len(), 2);
    }
}
