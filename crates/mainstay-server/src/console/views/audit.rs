//! Audit: who did what, the newest first.

use super::super::api::Fault;
use super::super::page::Sheet;
use super::super::parts::{
    Column, Told, badge, choice, code, count, field, filters, moment, next, short, table,
};
use super::super::visit::Visit;
use maud::html;

pub(super) async fn list(visit: &Visit) -> Result<Sheet, Fault> {
    let asked = visit.asked.only("/admin/audit", &["userId", "outcome", "before"], &[("limit", "100")]);
    let page = visit.get(&asked).await?;
    let drawn = page.list("entries").iter().map(|entry| {
        let args = if entry["args"].is_null() { String::new() } else { entry["args"].to_string() };
        vec![
            html! { (count(entry.number("number"))) },
            moment(entry.number("timestamp")),
            html! { (code(entry.text("userId"))) " " span.hint { (entry.text("role")) } },
            code(entry.text("action")),
            html! { (badge(entry.text("outcome"))) " " (entry.text("code")) },
            html! { code { (short(&args, 120)) } },
        ]
    });
    let columns = [
        Column::Number("Number"),
        Column::Text("When (UTC)"),
        Column::Text("Who"),
        Column::Text("What"),
        Column::Text("Outcome"),
        Column::Text("With"),
    ];
    let live = html! {
        p.hint { "Each entry holds a hash of itself and of the one before; " code { "mainstay audit verify" } " finds what was changed." }
        (table(&columns, drawn.collect(), "Nothing was written down yet."))
        (next(visit, "before", page.maybe("next").map(|next| next.to_string()).as_deref()))
    };
    let fields = html! {
        (field(visit, "userId", "Token"))
        (choice(visit, "outcome", "Outcome", &["done", "refused", "failed"]))
    };
    Ok(Sheet::new("Audit", live).controls(filters(visit, fields)))
}
