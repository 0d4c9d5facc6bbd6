//! Filters, and actions that ask first.

use super::super::visit::Visit;
use crate::access::Role;
use crate::tokens::hex;
use maud::{Markup, html};
use sha2::{Digest, Sha256};

/// Filters of a list: a form that asks for the same view again.
pub(in super::super) fn filters(visit: &Visit, fields: Markup) -> Markup {
    let here = visit.here();
    let path = here.split('?').next().unwrap_or_default().to_owned();
    html! {
        form.filters method="get" action=(path) {
            (fields)
            button type="submit" { "Filter" }
            @if visit.asked.pairs().next().is_some() { a.quiet href=(path) { "All" } }
        }
    }
}

/// A filter that is typed.
pub(in super::super) fn field(visit: &Visit, name: &str, title: &str) -> Markup {
    html! { label { (title) input type="text" name=(name) value=[visit.asked.get(name)] autocomplete="off"; } }
}

/// A filter that is chosen.
pub(in super::super) fn choice(visit: &Visit, name: &str, title: &str, choices: &[&str]) -> Markup {
    let chosen = visit.asked.get(name).unwrap_or_default();
    html! {
        label { (title)
            select name=(name) {
                option value="" { "any" }
                @for choice in choices { option value=(choice) selected[*choice == chosen] { (choice.replace('_', " ")) } }
            }
        }
    }
}

/// A form that changes something.
pub(in super::super) fn post(visit: &Visit, action: &str, fields: Markup) -> Markup {
    html! {
        form method="post" action=(action) {
            input type="hidden" name="csrf" value=(visit.session.csrf);
            (fields)
        }
    }
}

/// An action that says what it will do, and is done when one agrees.
pub(in super::super) struct Ask<'a> {
    /// Who may do it.
    pub(in super::super) role: Role,
    /// What the button says.
    pub(in super::super) verb: &'a str,
    /// What will happen.
    pub(in super::super) meaning: &'a str,
    /// The call of the API.
    pub(in super::super) call: String,
    /// What the call is told: `set.NAME` and `number.NAME`.
    pub(in super::super) with: Vec<(&'a str, String)>,
    /// Further fields, for what is to be typed.
    pub(in super::super) fields: Markup,
    /// What is told when it is done.
    pub(in super::super) said: &'a str,
    /// Whether something is lost by it.
    pub(in super::super) is_grave: bool,
    /// Where to go when it is done: an address, and the member of the answer that completes it.
    pub(in super::super) onward: Option<&'a str>,
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Self {
            role: Role::Operator,
            verb: "",
            meaning: "",
            call: String::new(),
            with: Vec::new(),
            fields: html! {},
            said: "Done.",
            is_grave: false,
            onward: None,
        }
    }
}

impl Ask<'_> {
    /// What it does has the same id whenever it is drawn. While a page follows a list, rows come and go around a question that
    /// is open, and it must stay with the row it was asked about.
    fn id(&self) -> String {
        let mut hasher = Sha256::new();
        for part in
            [self.verb, &self.call].into_iter().chain(self.with.iter().map(|(_, value)| value.as_str()))
        {
            hasher.update(part);
            hasher.update([0]);
        }
        format!("ask-{}", &hex(&hasher.finalize())[..16])
    }

    /// As a button that opens what it will do. Nothing for who may not.
    pub(in super::super) fn draw(self, visit: &Visit) -> Markup {
        if !visit.may(self.role) {
            return html! {};
        }
        let id = self.id();
        let fields = html! {
            input type="hidden" name="call" value=(self.call);
            input type="hidden" name="back" value=(visit.here());
            input type="hidden" name="said" value=(self.said);
            @if let Some(onward) = self.onward { input type="hidden" name="onward" value=(onward); }
            @for (name, value) in &self.with { input type="hidden" name=(name) value=(value); }
            p { (self.meaning) }
            (self.fields)
            button.grave[self.is_grave] type="submit" { (self.verb) }
        };
        html! {
            details.ask id=(id) {
                summary.grave[self.is_grave] { (self.verb) "…" }
                div.panel { (post(visit, "/console/act", fields)) }
            }
        }
    }
}
