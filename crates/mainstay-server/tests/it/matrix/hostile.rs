//! Values that break careless servers.

use serde_json::{Value, json};

/// Texts. Each of them goes into every parameter of a path and a query, and into every field of a body.
pub(super) fn texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        " ",
        "a\0b",
        "a\r\nX-Injected: 1",
        "\u{1b}[2J",
        "../../../etc/passwd",
        "' OR 1=1; DROP TABLE mainstay_audit; --",
        "\"; DROP TABLE mainstay_tokens; --",
        "$1 ?1 {table} %s %00",
        "\u{202e}\u{feff}\u{200b}ｍainstay",
        "18446744073709551616",
        "-1",
    ]
    .map(str::to_owned)
    .to_vec();
    // Under the limit of a request's head, and over every limit of a name.
    texts.push("x".repeat(6_000));
    texts
}

/// Headers that a handler or a guard reads.
pub(super) const HEADERS: [&str; 3] = ["Idempotency-Key", "Last-Event-ID", "traceparent"];

/// Values of headers: every text, and forms that are almost right.
pub(super) fn header_values() -> Vec<String> {
    let mut values = texts();
    values.extend(
        [
            "\"unended",
            "\"\"",
            "\"a\\\"; x=1",
            "a, b",
            "00-00000000000000000000000000000000-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01-more",
            "9223372036854775807",
            "1e3",
            "+1",
        ]
        .map(str::to_owned),
    );
    values
}

/// Values of other types, for fields of a body.
pub(super) fn values() -> Vec<Value> {
    let nested = (0..70).fold(json!(1), |inner, _| json!([inner]));
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e308),
        json!([]),
        json!({}),
        json!([[["x"]]]),
        nested,
        json!("\u{10ffff}".repeat(3_000)),
    ]
}

/// Whole bodies.
pub(super) fn bodies() -> Vec<String> {
    let mut bodies: Vec<String> = [
        "",
        "null",
        "true",
        "[]",
        "\"text\"",
        "{",
        "{}{}",
        "\u{feff}{}",
        r#"{"a":1}"#,
        r#"{"\u0000":1}"#,
        "{\"a\":1e999}",
        "NaN",
    ]
    .map(str::to_owned)
    .to_vec();
    bodies.push(format!("{}{}", "[".repeat(30_000), "]".repeat(30_000)));
    bodies.push("{\"a\":".repeat(30_000));
    bodies
}

/// Names that belong to the platform, as a caller may spell them.
pub(super) const RESERVED: [&str; 3] = ["mainstay.replay.tidy", "MAINSTAY.Replay.Tidy", " mainstay.x "];

/// A text as it stands in a path or a query.
pub(super) fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
