//! What an endpoint was told in confidence: what it says of a failure is stored, logged and shown, and may repeat it.

use mainstay_core::json;
use mainstay_core::secrets::{HIDDEN, is_secret};
use serde_json::Value;

/// Anything shorter stands in ordinary text as well.
const LEAST_CHARS: usize = 4;

/// Texts that are not told on.
pub(super) struct Confided(Vec<String>);

impl Confided {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// One text, in every way in which it may be repeated.
    pub(super) fn add(&mut self, text: &str) {
        if text.chars().count() < LEAST_CHARS {
            return;
        }
        let quoted = Value::from(text).to_string();
        let ways = [text, &quoted[1..quoted.len() - 1], &printable(text)].map(str::to_owned);
        self.0.extend(ways);
    }

    /// The query of a URL, and each of its values.
    pub(super) fn add_query(&mut self, query: &str) {
        self.add(query);
        query.split('&').filter_map(|pair| pair.split_once('=')).for_each(|(_, value)| self.add(value));
        form_urlencoded::parse(query.as_bytes()).for_each(|(_, value)| self.add(&value));
    }

    /// What is secret by its name in a body, if that is JSON; nothing if no parser that recurses should read it.
    pub(super) fn add_body(&mut self, body: &[u8]) -> Option<()> {
        json::check_readable(body, json::MAX_WRAPPED_DEPTH).ok()?;
        if let Ok(document) = serde_json::from_slice(body) {
            self.add_document(&document);
        }
        Some(())
    }

    /// What is secret by its name in a document.
    fn add_document(&mut self, document: &Value) {
        match document {
            Value::Array(items) => items.iter().for_each(|item| self.add_document(item)),
            Value::Object(members) => {
                for (name, member) in members {
                    if is_secret(name) { self.add_all(member) } else { self.add_document(member) }
                }
            }
            _ => {}
        }
    }

    fn add_all(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add_all(item)),
            Value::Object(members) => members.values().for_each(|member| self.add_all(member)),
            Value::String(text) => self.add(text),
            Value::Number(number) => self.add(&number.to_string()),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// The text without any of it, not even where its end was cut off.
    pub(super) fn hidden_in(mut self, text: &str) -> String {
        // What holds another goes before it.
        self.0.sort_by_key(|confided| std::cmp::Reverse(confided.len()));
        let mut told = self.0.iter().fold(text.to_owned(), |told, one| told.replace(one.as_str(), HIDDEN));
        if let Some(at) = self.0.iter().filter_map(|one| beginning_at_end(&told, one)).min() {
            told.replace_range(at.., HIDDEN);
        }
        told
    }
}

/// Where the text ends with the beginning of another.
fn beginning_at_end(text: &str, other: &str) -> Option<usize> {
    let ends = other.char_indices().map(|(at, _)| at).skip(LEAST_CHARS).take_while(|end| *end <= text.len());
    let longest = ends.filter(|end| text.ends_with(&other[..*end])).last()?;
    Some(text.len() - longest)
}

/// Text that somebody else sent, fit for a log line.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hidden(text: &str) -> String {
        let mut confided = Confided::new();
        confided.add("whsec_9");
        confided.add_query("key=a%2Fb%3Dcdef&page=2");
        confided.add_document(&json!({
            "order": "ord-1", "args": [{"apiKey": "k-123456", "pin": 1234}], "password": {"old": ["line\none"], "new": 77_001},
        }));
        confided.hidden_in(text)
    }

    #[test]
    fn what_was_told_in_confidence_is_not_repeated_in_any_way() {
        for repeated in [
            "whsec_9",
            "key=a%2Fb%3Dcdef&page=2",
            "a%2Fb%3Dcdef",
            "a/b=cdef",
            "k-123456",
            "line\none",
            r"line\none",
            "line one",
            "77001",
        ] {
            assert_eq!(hidden(&format!("bad {repeated}!")), "bad [hidden]!");
        }
        assert_eq!(
            hidden("no ord-1 on page 2, 1234"),
            "no ord-1 on page 2, 1234",
            "names count, and lengths"
        );
    }

    #[test]
    fn a_body_that_the_parser_would_read_ever_deeper_is_not_read() {
        let mut chain = "[]".to_owned();
        for _ in 0..5 {
            let inner = format!("{}{chain}{}", "[".repeat(100), "]".repeat(100));
            chain = json!({ "$serde_json::private::RawValue": inner }).to_string();
        }
        for body in [format!(r#"{{"args":{chain}}}"#), format!("{}1{}", "[".repeat(100), "]".repeat(100))] {
            assert_eq!(Confided::new().add_body(body.as_bytes()), None);
        }
        let mut confided = Confided::new();
        assert!(confided.add_body(br#"{"args":{"apiKey":"k-123456"}}"#).is_some());
        assert!(confided.add_body(b"no JSON").is_some());
        assert_eq!(confided.hidden_in("bad k-123456"), "bad [hidden]");
    }

    #[test]
    fn what_was_cut_off_is_not_told_either() {
        assert_eq!(hidden("bad key k-123"), "bad key [hidden]");
        assert_eq!(hidden("bad key k-1"), "bad key k-1", "that could be anything");
        assert_eq!(hidden("bad wört whse"), "bad wört [hidden]");
    }
}
