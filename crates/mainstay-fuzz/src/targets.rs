//! The targets.

use mainstay_cli::config::{self as configuration, Config};
use mainstay_core::schedule::Schedule;
use mainstay_core::trace::TraceContext;
use mainstay_server::extract::MAX_DEPTH;
use mainstay_server::fuzz::{self as edge, Order, Parameters};
use mainstay_store::fuzz as store;
use mainstay_work::http::{Secret, SignatureError, sign, verify_signature};
use serde::de::IgnoredAny;
use serde_json::Value;
use std::str;

/// The edge of JSON: what a route accepts is JSON that every reader can take.
pub fn json(data: &[u8]) {
    let Some(body) = edge::body(data) else { return };
    let text = str::from_utf8(data).expect("an accepted body is UTF-8");
    serde_json::from_str::<IgnoredAny>(text).expect("an accepted body is JSON");
    assert!(depth(text) <= MAX_DEPTH, "an accepted body nests too deep");
    if let Some(args) = body.args {
        assert!(levels(&args) <= MAX_DEPTH, "an accepted value is deeper than its text");
        let written = serde_json::to_string(&args).expect("a value can be written");
        let again: Value = serde_json::from_str(&written).expect("what was written can be read");
        assert!(is_same(&again, &args), "{args} became {again}");
    }
    if let Some(data) = body.data {
        serde_json::from_str::<Value>(data.get()).expect("a stored payload can be read");
    }
}

/// Depth of nesting in a value.
fn levels(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}

/// Whether two values are the same. The parser may be off by the last bit of a number that has more digits than a double.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let (Some(first), Some(second)) = (one.as_f64(), other.as_f64()) else { return false };
            one == other || (first - second).abs() <= first.abs() * 2.0 * f64::EPSILON
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same =
                |(key, one): (&String, &Value)| other.get(key).is_some_and(|other| is_same(one, other));
            one.len() == other.len() && one.iter().all(same)
        }
        _ => one == other,
    }
}

/// Depth of nesting in a text of JSON.
fn depth(text: &str) -> usize {
    let (mut depth, mut most, mut in_text, mut is_escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => depth += 1,
            b']' | b'}' if !in_text => depth -= 1,
            _ => {}
        }
        most = most.max(depth);
    }
    most
}

/// Query strings: what is accepted means the same when it is written again.
pub fn query(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Some(found) = edge::parameters(text) else { return };
    for value in found.types.iter().chain(&found.text) {
        assert!(!value.contains(['\0', char::REPLACEMENT_CHARACTER]), "{value:?} was accepted");
    }
    let again = written(&found);
    assert_eq!(edge::parameters(&again).as_ref(), Some(&found), "{again}");
}

fn written(parameters: &Parameters) -> String {
    let Parameters { after, before, types, text, verbose, order } = parameters;
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (key, value) in
        [("after", after.map(|at| at.to_string())), ("before", before.map(|at| at.to_string()))]
    {
        query.extend_pairs(value.map(|value| (key, value)));
    }
    query.extend_pairs(types.iter().map(|value| ("type", value)));
    query.extend_pairs(text.iter().map(|value| ("text", value)));
    query.append_pair("verbose", if *verbose { "true" } else { "false" });
    let order = order.as_ref().map(|order| match order {
        Order::Up => "up",
        Order::Down => "down",
    });
    query.extend_pairs(order.map(|order| ("order", order)));
    query.finish()
}

/// Cursors of pages: what is accepted leads to one place, however often it is written again.
pub fn cursor(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    for (kind, read) in edge::CURSORS {
        let Some(again) = read(text) else { continue };
        assert_eq!(read(&again).as_ref(), Some(&again), "a cursor of {kind}: {text:?}");
    }
}

/// Instants to ask schedules about: the epoch, a leap day, a change of clocks in Berlin, and the ends of time.
const INSTANTS_MS: [i64; 6] =
    [0, 1_709_164_800_000, 1_774_746_000_000 - 1, 253_402_300_799_000, i64::MIN, i64::MAX];

/// Cron expressions, with a time zone in the second line: the next time comes later, and nothing is due before it.
pub fn cron(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let (text, zone) = text.split_once('\n').unwrap_or((text, "Europe/Berlin"));
    let Ok(schedule) = Schedule::cron(text, zone) else { return };
    let written = serde_json::to_string(&schedule).expect("a schedule can be written");
    assert_eq!(serde_json::from_str::<Schedule>(&written).expect("what was written can be read"), schedule);
    for at_ms in INSTANTS_MS {
        let Some(next_ms) = schedule.next_after(at_ms) else { continue };
        assert!(next_ms > at_ms, "{next_ms} is not after {at_ms}");
        assert_eq!(schedule.next_after(next_ms - 1), Some(next_ms), "after {at_ms}");
        assert!(schedule.next_after(next_ms).is_none_or(|later_ms| later_ms > next_ms), "after {next_ms}");
    }
}

/// Statements: rewriting for SQLite changes `$n` to `?n` and nothing else.
pub fn sql(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Some(found) = store::statement(text) else { return };
    assert_eq!(found.text, text);
    assert_eq!(found.sqlite_text.len(), text.len());
    let mut highest = 0;
    for (at, (before, after)) in text.bytes().zip(found.sqlite_text.bytes()).enumerate() {
        if before == after {
            continue;
        }
        let digits: String = text[at + 1..].chars().take_while(char::is_ascii_digit).collect();
        assert!((before, after) == (b'$', b'?') && !digits.is_empty(), "byte {at} of {text:?}");
        highest = highest.max(digits.parse().expect("an accepted number is small"));
    }
    assert_eq!(found.parameters, highest, "{text:?}");
}

const NOW_MS: i64 = 1_700_000_000_500;
const TOLERANCE_MS: u64 = 300_000;

/// Signatures, with the header in the first line and the body behind it: a header is accepted for one body and one secret.
pub fn signature(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (header, body) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let secrets = ["whsec", "the other"].map(|text| Secret::new(text).expect("it is not empty"));
    let other = [Secret::new("not shared").expect("it is not empty")];
    let verify = |secrets: &[Secret], header: &str, body: &[u8]| {
        verify_signature(secrets, header, body, NOW_MS, TOLERANCE_MS)
    };
    let mut changed = body.to_vec();
    changed.push(b' ');
    if let Ok(header) = str::from_utf8(header)
        && verify(&secrets, header, body).is_ok()
    {
        assert_eq!(verify(&secrets, header, &changed), Err(SignatureError::Mismatch));
        assert_eq!(verify(&other, header, body), Err(SignatureError::Mismatch));
    }
    let signed = sign(&secrets, body, NOW_MS);
    assert_eq!(verify(&secrets[..1], &signed, body), Ok(()));
    assert_eq!(verify(&secrets[1..], &signed, body), Ok(()));
    assert_eq!(verify(&other, &signed, body), Err(SignatureError::Mismatch));
    assert_eq!(verify(&secrets, &signed, &changed), Err(SignatureError::Mismatch));
}

/// `traceparent` headers: what is accepted can be sent on.
pub fn traceparent(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(context) = TraceContext::from_traceparent(text) else { return };
    context.validate().expect("accepted ids are plain");
    let header = context.to_traceparent().expect("an accepted header can be written");
    assert_eq!(TraceContext::from_traceparent(&header), Ok(context));
}

/// `mainstay.toml`: each mistake has a code and a sentence, and a file that is accepted has a value for every setting.
pub fn config(data: &[u8]) {
    match Config::parse(data) {
        Ok(config) => assert_eq!(config.entries().len(), configuration::settings().count()),
        Err(problems) => {
            assert!(!problems.is_empty(), "it was refused without a reason");
            for problem in problems {
                let code = problem.entry().code;
                assert!(code.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'), "{code}");
                assert!(
                    !problem.to_string().is_empty() && !problem.hint().is_empty(),
                    "{code} has no sentence"
                );
            }
        }
    }
}
