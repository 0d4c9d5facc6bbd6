//! Figures as Prometheus reads them: the text format, version 0.0.4.

use mainstay_core::measure::{HistogramSnapshot, Measured, Reading};
use std::fmt::Write;

/// The media type of the text format.
pub(crate) const MEDIA_TYPE: &str = "text/plain; version=0.0.4";

/// The buckets of a histogram double; these count microseconds.
const PER_SECOND: f64 = 1e6;

/// Writes every figure of every part.
pub(crate) fn render(parts: &[&dyn Measured]) -> String {
    let mut text = String::new();
    for part in parts {
        part.measure(&mut |name, meaning, reading| figure(&mut text, name, meaning, &reading));
    }
    text
}

/// Writes a figure that each of several has, as a gauge with a label.
pub(crate) fn labelled(
    text: &mut String,
    (name, meaning): (&str, &str),
    label: &str,
    rows: impl IntoIterator<Item = (String, f64)>,
) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP mainstay_{name} {meaning}\n# TYPE mainstay_{name} gauge");
    for (of, value) in rows {
        let of = of.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = writeln!(text, "mainstay_{name}{{{label}=\"{of}\"}} {value}");
    }
}

fn figure(text: &mut String, name: &str, meaning: &str, reading: &Reading) {
    // Writing to a String cannot fail.
    let mut head = |suffix: &str, kind: &str| {
        let name = format!("mainstay_{name}{suffix}");
        let _ = writeln!(text, "# HELP {name} {meaning}\n# TYPE {name} {kind}");
        name
    };
    match reading {
        Reading::Counter(count) => {
            let name = head("_total", "counter");
            let _ = writeln!(text, "{name} {count}");
        }
        Reading::Gauge(value) => {
            let name = head("", "gauge");
            let _ = writeln!(text, "{name} {value}");
        }
        Reading::Microseconds(snapshot) => {
            let name = head("_seconds", "histogram");
            histogram(text, &name, snapshot, PER_SECOND);
        }
        Reading::Sizes(snapshot) => {
            let name = head("", "histogram");
            histogram(text, &name, snapshot, 1.0);
        }
    }
}

fn histogram(text: &mut String, name: &str, snapshot: &HistogramSnapshot, per_unit: f64) {
    let mut seen = 0;
    // The last bucket also holds whatever is larger, so it has no bound.
    let bounded = snapshot.buckets.len().saturating_sub(1);
    for (magnitude, count) in snapshot.buckets.iter().take(bounded).enumerate() {
        seen += count;
        let bound = (1_u64 << magnitude) as f64 / per_unit;
        let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {seen}");
    }
    let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {}", snapshot.count);
    let _ = writeln!(text, "{name}_sum {}", snapshot.sum as f64 / per_unit);
    let _ = writeln!(text, "{name}_count {}", snapshot.count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_core::measure::Histogram;
    use std::time::Duration;

    struct Kitchen;

    impl Measured for Kitchen {
        fn measure(&self, visit: &mut dyn FnMut(&'static str, &'static str, Reading)) {
            let times = Histogram::default();
            times.record_duration(Duration::from_micros(3));
            times.record_duration(Duration::from_secs(2));
            times.record(u64::MAX >> 8);
            visit("kitchen_meals", "Meals served.", Reading::Counter(3));
            visit("kitchen_guests", "Guests seated.", Reading::Gauge(-1));
            visit("kitchen_wait", "Time guests waited.", Reading::Microseconds(times.snapshot()));
        }
    }

    #[test]
    fn what_several_have_is_told_apart_by_a_label() {
        let mut text = String::new();
        let rows = [("oven".to_owned(), 1.5), ("a \"b\" \\ c".to_owned(), 0.0)];
        labelled(&mut text, ("kitchen_heat", "How hot it is."), "of", rows);
        insta::assert_snapshot!(text, @r#"
            # HELP mainstay_kitchen_heat How hot it is.
            # TYPE mainstay_kitchen_heat gauge
            mainstay_kitchen_heat{of="oven"} 1.5
            mainstay_kitchen_heat{of="a \"b\" \\ c"} 0
            "#);
    }

    #[test]
    fn writes_the_text_format() {
        let text = render(&[&Kitchen]);
        let few: Vec<&str> = text
            .lines()
            .filter(|line| {
                !line.contains("_bucket")
                    || ["\"0.000002\"", "\"0.000004\"", "\"2.097152\"", "Inf"]
                        .iter()
                        .any(|le| line.contains(le))
            })
            .collect();
        insta::assert_snapshot!(few.join("\n"), @r#"
            # HELP mainstay_kitchen_meals_total Meals served.
            # TYPE mainstay_kitchen_meals_total counter
            mainstay_kitchen_meals_total 3
            # HELP mainstay_kitchen_guests Guests seated.
            # TYPE mainstay_kitchen_guests gauge
            mainstay_kitchen_guests -1
            # HELP mainstay_kitchen_wait_seconds Time guests waited.
            # TYPE mainstay_kitchen_wait_seconds histogram
            mainstay_kitchen_wait_seconds_bucket{le="0.000002"} 0
            mainstay_kitchen_wait_seconds_bucket{le="0.000004"} 1
            mainstay_kitchen_wait_seconds_bucket{le="2.097152"} 2
            mainstay_kitchen_wait_seconds_bucket{le="+Inf"} 3
            mainstay_kitchen_wait_seconds_sum 72057594039.92793
            mainstay_kitchen_wait_seconds_count 3
            "#);
    }
}
