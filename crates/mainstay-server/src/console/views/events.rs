//! Events: the newest first, by type, tag, correlation and time; one in full; a stream.

use super::super::api::{Fault, path};
use super::super::page::Sheet;
use super::super::parts::{
    Column, Told, code, count, field, filters, link, moment, next, pretty, rows, short, table,
};
use super::super::visit::Visit;
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

pub(super) async fn list(visit: &Visit) -> Result<Sheet, Fault> {
    if let Some((kind, id)) = visit.asked.get("stream").and_then(|stream| stream.split_once('/')) {
        return stream(visit, kind, id).await;
    }
    let since = visit.asked.get("from").and_then(instant);
    let before = visit.asked.get("to").and_then(instant);
    let mut further = vec![("order", "backward"), ("limit", "50")];
    further.extend(since.as_deref().map(|since| ("since", since)));
    further.extend(before.as_deref().map(|before| ("before", before)));
    let asked = visit.asked.only("/v1/events", &["type", "tag", "correlationId", "until"], &further);
    let page = visit.get(&asked).await?;
    let live = html! {
        p.hint { "The log has " (count(page.number("head"))) " events." }
        (drawn(page.list("events")))
        (next(visit, "until", page.maybe("next").map(|next| next.to_string()).as_deref()))
    };
    let fields = html! {
        (field(visit, "type", "Type"))
        (field(visit, "tag", "Tag"))
        (field(visit, "correlationId", "Correlation"))
        label { "From" input type="datetime-local" step="1" name="from" value=[visit.asked.get("from")]; }
        label { "Until" input type="datetime-local" step="1" name="to" value=[visit.asked.get("to")]; }
        label { "Stream" input type="text" name="stream" placeholder="Order/order-1" autocomplete="off"; }
    };
    Ok(Sheet::new("Events", live).controls(filters(visit, fields)))
}

/// A moment of UTC as a browser's field has it, in milliseconds.
fn instant(text: &str) -> Option<String> {
    let whole = if text.len() == 16 { format!("{text}:00Z") } else { format!("{text}Z") };
    Some(whole.parse::<Timestamp>().ok()?.as_millisecond().to_string())
}

fn drawn(events: &[Value]) -> Markup {
    let rows = events.iter().map(|event| {
        let tags = event.list("tags").iter().filter_map(Value::as_str);
        vec![
            html! { (count(event.number("position"))) },
            link(&path(&["console", "events", event.text("eventId")]), event.text("type")),
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
    let event = visit.get(&path(&["v1", "events", id])).await?;
    let published = visit.get(&path(&["v1", "publications", id])).await.unwrap_or_default();
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
