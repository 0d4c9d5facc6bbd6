//! What a call was given, without secrets and bounded.

use crate::recorded;
use mainstay_core::secrets::{HIDDEN, is_secret};
use serde_json::{Map, Value, json};

/// Longest text that is written down as it is.
const MAX_TEXT_BYTES: usize = 512;
/// Most bytes of all arguments.
const MAX_BYTES: usize = 8 << 10;
/// Deepest nesting that is written down.
const MAX_DEPTH: usize = 8;
/// Deepest nesting that is read. Routes take less.
const MAX_READ_DEPTH: usize = 100;

/// Members in which an application keeps what it knows. The audit is never erased, so it does not repeat them: of calls below
/// `/v1` it tells how long they were.
const PAYLOAD: [&str; 8] =
    ["data", "metadata", "payload", "args", "context", "returnValue", "result", "error"];
/// Path prefix of the calls of applications.
const APPLICATION: &str = "/v1/";

/// What is written down of a call: its path, its query and its body.
pub(super) fn of(path: &str, query: Option<&str>, body: Option<&[u8]>) -> Value {
    let payload: &[&str] = if path.starts_with(APPLICATION) { &PAYLOAD } else { &[] };
    let mut args = Map::new();
    let path = &*recorded::path(path);
    args.insert("path".to_owned(), text(path));
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        let parsed = form_urlencoded::parse(query.as_bytes());
        let members = parsed.map(|(name, value)| (name.to_string(), hide(&name, &json!(value), 0, &[])));
        args.insert("query".to_owned(), Value::Object(members.collect()));
    }
    if let Some(body) = body.filter(|body| !body.is_empty()) {
        let told = match readable(body) {
            Some(value) => hide("", &value, 0, payload),
            None => json!(format!("{} bytes that are no JSON", body.len())),
        };
        args.insert("body".to_owned(), told);
    }
    let args = Value::Object(args);
    if args.to_string().len() <= MAX_BYTES {
        return args;
    }
    json!({ "path": text(path), "isCut": true })
}

/// A body that the parser takes without recursing deeper than is usual, also one that its route has refused.
fn readable(body: &[u8]) -> Option<Value> {
    mainstay_core::json::check_readable(body, MAX_READ_DEPTH).ok()?;
    serde_json::from_slice(body).ok()
}

fn hide(name: &str, value: &Value, depth: usize, payload: &[&str]) -> Value {
    if is_secret(name) {
        return json!(HIDDEN);
    }
    if payload.contains(&name) {
        return json!(format!("[{} bytes]", value.to_string().len()));
    }
    match value {
        Value::String(value) => text(value),
        _ if depth >= MAX_DEPTH => json!("[deep]"),
        Value::Array(items) => items.iter().map(|item| hide(name, item, depth + 1, payload)).collect(),
        Value::Object(members) => {
            let members =
                members.iter().map(|(name, value)| (name.clone(), hide(name, value, depth + 1, payload)));
            Value::Object(members.collect())
        }
        // As text: a fraction need not be printed as it was when it has been read again, and its hash would differ.
        Value::Number(number) if number.is_f64() => json!(number.to_string()),
        other => other.clone(),
    }
}

fn text(value: &str) -> Value {
    if value.len() <= MAX_TEXT_BYTES {
        return json!(value);
    }
    let mut end = MAX_TEXT_BYTES;
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    json!(format!("{}…", &value[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_wherever_they_stand() {
        let body = json!({
            "name": "ci", "clientSecret": "canary", "nested": [{"API-Key": "canary", "password": {"a": "canary"}}],
            "tokens": ["canary"], "limit": 5,
        });
        let told = of("/admin/x", Some("token=canary&limit=5"), Some(body.to_string().as_bytes()));
        assert!(!told.to_string().contains("canary"), "{told}");
        assert_eq!((&told["body"]["name"], &told["body"]["limit"]), (&json!("ci"), &json!(5)));
        assert_eq!(told["query"], json!({"token": HIDDEN, "limit": "5"}));
    }

    #[test]
    fn what_an_application_keeps_is_not_repeated() {
        let body = json!({"events": [{"type": "Placed", "data": {"to": "canary"}, "metadata": "canary"}]});
        let told = of("/v1/events", None, Some(body.to_string().as_bytes()));
        assert!(!told.to_string().contains("canary"), "{told}");
        assert_eq!(told["body"]["events"][0]["data"], "[15 bytes]");
        assert_eq!(told["body"]["events"][0]["type"], "Placed");
        assert!(of("/admin/x", None, Some(body.to_string().as_bytes())).to_string().contains("canary"));
    }

    /// A document in which each level is JSON in a string, which the parser reads again from a depth of its own.
    fn chained(most_bytes: usize) -> String {
        let (mut chain, mut levels) = ("[]".to_owned(), 0);
        loop {
            let inner = format!("{}{chain}{}", "[".repeat(100), "]".repeat(100));
            let next = json!({ "$serde_json::private::RawValue": inner }).to_string();
            if next.len() > most_bytes {
                assert!(levels > 5, "{levels}");
                return chain;
            }
            (chain, levels) = (next, levels + 1);
        }
    }

    #[test]
    fn a_body_that_the_parser_would_read_ever_deeper_is_not_read() {
        let hostile = [chained(64 << 10), format!("{}1{}", "[".repeat(120), "]".repeat(120))];
        for body in hostile {
            let told = of("/admin/x", None, Some(body.as_bytes()));
            assert_eq!(told["body"], json!(format!("{} bytes that are no JSON", body.len())));
        }
    }

    #[test]
    fn what_is_written_down_is_the_same_when_it_is_read() {
        for number in [
            "2.1688045621966405e-20",
            "123456789012345678901234567890",
            "1e300",
            "0.1",
            "-7",
            "18446744073709551615",
        ] {
            let body = format!(r#"{{"reason":[{number}]}}"#);
            let told = of("/admin/x", None, Some(body.as_bytes()));
            let read: Value = serde_json::from_str(&told.to_string()).unwrap();
            assert_eq!(read.to_string(), told.to_string());
        }
    }

    #[test]
    fn what_is_long_is_cut_and_what_is_large_is_left_out() {
        let long = json!({ "text": "ä".repeat(1_000) });
        let told = of("/admin/x", None, Some(long.to_string().as_bytes()));
        assert!(told["body"]["text"].as_str().unwrap().len() < 600);
        let large: Vec<String> = (0..1_000).map(|number| format!("item {number}")).collect();
        let told = of("/admin/x", None, Some(json!(large).to_string().as_bytes()));
        assert_eq!(told, json!({"path": "/admin/x", "isCut": true}));
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        assert!(of("/admin/x", None, Some(deep.as_bytes())).to_string().contains("[deep]"));
        assert_eq!(
            of("/admin/x", None, Some(b"{")),
            json!({"path": "/admin/x", "body": "1 bytes that are no JSON"})
        );
    }
}
