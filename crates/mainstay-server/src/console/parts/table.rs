//! Rows, and the way to the next page.

use super::super::visit::Visit;
use super::{Told, moment, short};
use maud::{Markup, html};
use serde_json::Value;

/// How a column is set.
#[derive(Clone, Copy)]
pub(in super::super) enum Column {
    Text(&'static str),
    /// To the right.
    Number(&'static str),
    /// Buttons.
    Actions,
}

impl Column {
    fn class(self) -> Option<&'static str> {
        match self {
            Self::Text(_) => None,
            Self::Number(_) => Some("number"),
            Self::Actions => Some("actions"),
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Text(title) | Self::Number(title) => title,
            Self::Actions => "",
        }
    }
}

/// A table; `nothing` is said when it has no rows.
pub(in super::super) fn table(columns: &[Column], rows: Vec<Vec<Markup>>, nothing: &str) -> Markup {
    if rows.is_empty() {
        return html! { p.nothing { (nothing) } };
    }
    html! {
        // What can be scrolled must be reached by keyboard.
        div.scroll tabindex="0" role="group" aria-label="Table" {
            table {
                thead { tr {
                    @for column in columns {
                        th scope="col" class=[column.class()] { (column.title()) @if column.title().is_empty() { span.hidden { "Actions" } } }
                    }
                } }
                tbody {
                    @for row in rows {
                        tr { @for (column, cell) in columns.iter().zip(row) { (self::cell(*column, &cell)) } }
                    }
                }
            }
        }
    }
}

/// What has failed, attempt by attempt.
pub(in super::super) fn attempts(failures: &[Value], nothing: &str) -> Markup {
    let rows = failures.iter().map(|attempt| {
        vec![
            html! { (attempt.number("attempt")) },
            moment(attempt.number("atMs")),
            html! { (attempt["failure"].text("class")) },
            short(attempt["failure"].text("message"), 300),
        ]
    });
    let columns =
        [Column::Number("Attempt"), Column::Text("When (UTC)"), Column::Text("Class"), Column::Text("Error")];
    table(&columns, rows.collect(), nothing)
}

/// One cell; what is in it stays together where rows become cards.
fn cell(column: Column, content: &Markup) -> Markup {
    let is_empty = content.0.is_empty();
    // In one attribute: browsers take the first and leave the second.
    let class = if is_empty { Some("empty") } else { column.class() };
    html! { td class=[class] data-title=(column.title()) { @if !is_empty { div { (content) } } } }
}

/// What is known of one thing, line by line. Lines without a value are left out.
pub(in super::super) fn rows(lines: Vec<(&str, Option<Markup>)>) -> Markup {
    html! {
        dl.rows {
            @for (name, value) in lines {
                @if let Some(value) = value { div { dt { (name) } dd { (value) } } }
            }
        }
    }
}

/// The way to the next page, if there is one, and back to the first.
pub(in super::super) fn next(visit: &Visit, name: &str, next: Option<&str>) -> Markup {
    let here = visit.here();
    let path = here.split('?').next().unwrap_or_default();
    html! {
        nav.pages aria-label="Pages" {
            @if visit.asked.get(name).is_some() { a href=(visit.asked.without(path, name)) { "First page" } }
            @if let Some(next) = next { a rel="next" href=(visit.asked.with(path, &[(name, next)])) { "Next page" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_of_one_class() {
        let drawn = |column, text: &str| cell(column, &html! { (text) }).into_string();
        assert_eq!(
            drawn(Column::Number("Items"), "7"),
            r#"<td class="number" data-title="Items"><div>7</div></td>"#
        );
        assert_eq!(drawn(Column::Text("Key"), "a"), r#"<td data-title="Key"><div>a</div></td>"#);
        assert_eq!(drawn(Column::Actions, ""), r#"<td class="empty" data-title=""></td>"#);
    }
}
