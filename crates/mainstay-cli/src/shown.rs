//! How values are shown to people.

use serde_json::Value;

/// A text that fits, and does nothing to the terminal it is shown on.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => plain(text),
        other => plain(&other.to_string()),
    }
}

/// The same without what would do something to a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The same of a text of several lines.
pub(crate) fn plain_lines(text: &str) -> String {
    text.lines().map(|line| plain(line) + "\n").collect()
}

/// Every member of an object on a line of its own.
pub(crate) fn members(value: &Value) -> String {
    let members = value.as_object().into_iter().flatten();
    let told: Vec<(&str, String)> = members.map(|(name, value)| (name.as_str(), text(value))).collect();
    lines(&told)
}

/// A text of at most so many letters.
pub(crate) fn short(value: &Value, most: usize) -> String {
    let whole = text(value);
    let is_long = whole.chars().count() > most;
    if is_long { whole.chars().take(most - 1).chain(['…']).collect() } else { whole }
}

/// A moment in milliseconds since the epoch.
pub(crate) fn moment(value: &Value) -> String {
    match value.as_i64().map(jiff::Timestamp::from_millisecond) {
        Some(Ok(moment)) => format!("{moment:.3}"),
        Some(Err(_)) => "never".to_owned(),
        None => "-".to_owned(),
    }
}

/// A while in milliseconds.
pub(crate) fn age(value: &Value) -> String {
    match value.as_u64() {
        None => "-".to_owned(),
        Some(ms @ ..1_000) => format!("{ms} ms"),
        Some(ms @ ..120_000) => format!("{:.1} s", ms as f64 / 1e3),
        Some(ms @ ..7_200_000) => format!("{:.1} min", ms as f64 / 60e3),
        Some(ms) => format!("{:.1} h", ms as f64 / 3_600e3),
    }
}

/// Lines of a name and what it is; those that say nothing are left out.
pub(crate) fn lines(lines: &[(&str, String)]) -> String {
    let told = lines.iter().filter(|(_, value)| value != "-");
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    told.map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}
