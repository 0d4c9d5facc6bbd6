//! Moments and durations, as people say them.

use jiff::Timestamp;
use maud::{Markup, html};

/// How long ago a moment was, with the moment itself behind.
pub(in super::super) fn ago(at_ms: i64, now_ms: i64) -> Markup {
    let away = now_ms - at_ms;
    let told = if away < -999 { format!("in {}", span(-away)) } else { format!("{} ago", span(away.max(0))) };
    html! { time datetime=(exact(at_ms)) title=(exact(at_ms)) { (told) } }
}

/// A moment to the millisecond.
pub(in super::super) fn moment(at_ms: i64) -> Markup {
    let exact = exact(at_ms);
    let told = exact.get(..23).map_or_else(|| exact.clone(), |text| text.replace('T', " "));
    html! { time datetime=(exact) title=(exact) { (told) } }
}

fn exact(at_ms: i64) -> String {
    Timestamp::from_millisecond(at_ms).map_or_else(|_| format!("{at_ms} ms"), |time| format!("{time:.3}"))
}

/// A duration in its largest unit or two.
pub(in super::super) fn span(ms: i64) -> String {
    const SECOND: i64 = 1_000;
    const MINUTE: i64 = 60 * SECOND;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    match ms {
        ..SECOND => format!("{ms} ms"),
        SECOND..10_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        10_000..MINUTE => format!("{} s", ms / SECOND),
        MINUTE..HOUR => format!("{} min {} s", ms / MINUTE, ms % MINUTE / SECOND),
        HOUR..DAY => format!("{} h {} min", ms / HOUR, ms % HOUR / MINUTE),
        DAY.. => format!("{} d {} h", ms / DAY, ms % DAY / HOUR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_their_largest_units() {
        let told = [7, 1_500, 59_999, 61_000, 3_600_000, 90_000_000].map(span);
        assert_eq!(told, ["7 ms", "1.5 s", "59 s", "1 min 1 s", "1 h 0 min", "1 d 1 h"]);
    }

    #[test]
    fn what_is_still_to_come_is_told_as_such() {
        assert!(ago(10_000, 0).into_string().contains(">in 10 s<"));
        assert!(ago(0, 10_000).into_string().contains(">10 s ago<"));
    }
}
