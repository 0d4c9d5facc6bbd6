//! Values of documents, as texts.

use maud::{Markup, html};
use serde_json::Value;

/// A document that is told to people. What is not there is nothing, not a mistake.
pub(in super::super) trait Told {
    /// A member that is a text.
    fn text(&self, name: &str) -> &str;
    /// A member that is a number.
    fn number(&self, name: &str) -> i64;
    /// A member that is a list.
    fn list(&self, name: &str) -> &[Value];
    /// A member that is a number, if it is there.
    fn maybe(&self, name: &str) -> Option<i64>;
    fn is(&self, name: &str) -> bool;
}

impl Told for Value {
    fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Self::as_str).unwrap_or_default()
    }

    fn number(&self, name: &str) -> i64 {
        self.maybe(name).unwrap_or(0)
    }

    fn list(&self, name: &str) -> &[Value] {
        self.get(name).and_then(Self::as_array).map_or(&[], Vec::as_slice)
    }

    fn maybe(&self, name: &str) -> Option<i64> {
        let value = self.get(name)?;
        value.as_i64().or_else(|| value.as_f64().map(|number| number as i64))
    }

    fn is(&self, name: &str) -> bool {
        self.get(name).and_then(Self::as_bool).unwrap_or(false)
    }
}

/// A number, its thousands apart.
pub(in super::super) fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut told = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            told.push('\u{202f}');
        }
        told.push(digit);
    }
    if number < 0 { format!("\u{2212}{told}") } else { told }
}

/// A state, coloured by what it means.
pub(in super::super) fn badge(state: &str) -> Markup {
    let tone = match state {
        "healthy" | "active" | "closed" | "delivered" | "completed" | "executed" | "success" | "done"
        | "resolved" | "running" | "replayed" => "good",
        "unhealthy" | "open" | "failed" | "dead_letter" | "error" | "quarantined" | "refused"
        | "rejected" | "failing" => "bad",
        "degraded" | "half_open" | "paused" | "rebuilding" | "retrying" | "warning" | "abandoned"
        | "delayed" | "behind" => "fair",
        _ => "plain",
    };
    let told = state.replace('_', " ");
    html! { span class={ "badge " (tone) } { (told) } }
}

/// A long text, cut, with all of it behind.
pub(in super::super) fn short(text: &str, most: usize) -> Markup {
    match text.char_indices().nth(most) {
        None => html! { (text) },
        Some((end, _)) => html! { span title=(text) { (&text[..end]) "…" } },
    }
}

/// An id, cut in its middle if it is long.
pub(in super::super) fn code(text: &str) -> Markup {
    html! { code { (short(text, 40)) } }
}

/// A way to another view.
pub(in super::super) fn link(to: &str, text: &str) -> Markup {
    html! { a href=(to) { (short(text, 48)) } }
}

/// A document as people read it.
pub(in super::super) fn pretty(value: &Value) -> Markup {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    html! { pre.json tabindex="0" { (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(count(-1_000), "\u{2212}1\u{202f}000");
    }

    #[test]
    fn what_is_cut_is_cut_between_letters() {
        assert!(short(&"ü".repeat(20), 10).into_string().contains(&format!(">{}…", "ü".repeat(10))));
    }
}
