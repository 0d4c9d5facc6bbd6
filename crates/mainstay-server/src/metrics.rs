//! Figures as Prometheus reads them: the text format, version 0.0.4.

use mainstay_core::measure::{HistogramSnapshot, Labelled, Measured, Reading};
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

/// Most rows of a figure with labels that are read from the database: a page that nobody can read helps nobody.
const MOST_ROWS: usize = 1_000;

/// A figure that is read from the database, without rows when nothing was.
pub(crate) struct Table<'a> {
    pub(crate) name: &'a str,
    pub(crate) meaning: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) label: &'a str,
}

/// Writes a figure that each of several has, told apart by a label.
pub(crate) fn labelled(text: &mut String, table: &Table<'_>, rows: impl IntoIterator<Item = (String, f64)>) {
    let Table { name, meaning, kind, label } = table;
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP mainstay_{name} {meaning}\n# TYPE mainstay_{name} {kind}");
    for (of, value) in rows.into_iter().take(MOST_ROWS) {
        let _ = writeln!(text, "mainstay_{name}{{{label}=\"{}\"}} {value}", escaped(&of));
    }
}

/// Writes a gauge without labels, if it has a value.
pub(crate) fn plain(text: &mut String, (name, meaning): (&str, &str), value: impl IntoIterator<Item = f64>) {
    let _ = writeln!(text, "# HELP mainstay_{name} {meaning}\n# TYPE mainstay_{name} gauge");
    for value in value {
        let _ = writeln!(text, "mainstay_{name} {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// `name="value"` for each label.
fn pairs(labels: &[&str], values: &[String]) -> String {
    let pairs = labels.iter().zip(values).map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    pairs.collect::<Vec<_>>().join(",")
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
            histogram(text, &name, "", snapshot, PER_SECOND, ALL);
        }
        Reading::Sizes(snapshot) => {
            let name = head("", "histogram");
            histogram(text, &name, "", snapshot, 1.0, ALL);
        }
        Reading::Counters(Labelled { labels, rows }) => {
            let name = head("_total", "counter");
            for (values, count) in rows {
                let _ = writeln!(text, "{name}{{{}}} {count}", pairs(labels, values));
            }
        }
        Reading::Times(Labelled { labels, rows }) => {
            let name = head("_seconds", "histogram");
            for (values, snapshot) in rows {
                histogram(text, &name, &pairs(labels, values), snapshot, PER_SECOND, FEW);
            }
        }
    }
}

/// Every bucket.
const ALL: (usize, usize) = (0, usize::MAX);
/// From 128 µs to 33 s: with labels there are many histograms, and what is faster or slower needs no bucket of its own.
const FEW: (usize, usize) = (7, 25);

fn histogram(
    text: &mut String,
    name: &str,
    labels: &str,
    snapshot: &HistogramSnapshot,
    per_unit: f64,
    (first, last): (usize, usize),
) {
    let mut seen = 0;
    let (comma, braces) = match labels {
        "" => ("", String::new()),
        some => (",", format!("{{{some}}}")),
    };
    // The last bucket also holds whatever is larger, so it has no bound.
    let bounded = snapshot.buckets.len().saturating_sub(1);
    for (magnitude, count) in snapshot.buckets.iter().take(bounded).enumerate() {
        seen += count;
        if (first..=last).contains(&magnitude) {
            let bound = (1_u64 << magnitude) as f64 / per_unit;
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {seen}");
        }
    }
    let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", snapshot.count);
    let _ = writeln!(text, "{name}_sum{braces} {}", snapshot.sum as f64 / per_unit);
    let _ = writeln!(text, "{name}_count{braces} {}", snapshot.count);
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
        let table = Table { name: "kitchen_heat", meaning: "How hot it is.", kind: "gauge", label: "of" };
        labelled(&mut text, &table, rows);
        insta::assert_snapshot!(text, @r#"
            # HELP mainstay_kitchen_heat How hot it is.
            # TYPE mainstay_kitchen_heat gauge
            mainstay_kitchen_heat{of="oven"} 1.5
            mainstay_kitchen_heat{of="a \"b\" \\ c"} 0
            "#);
    }

    struct Menu;

    impl Measured for Menu {
        fn measure(&self, visit: &mut dyn FnMut(&'static str, &'static str, Reading)) {
            let times = Histogram::default();
            times.record_duration(Duration::from_micros(3));
            times.record_duration(Duration::from_secs(1));
            times.record_duration(Duration::from_secs(3_600));
            let labels = &["dish", "size"];
            let row = |dish: &str| vec![dish.to_owned(), "a\n\"b\"\\".to_owned()];
            let counts = Labelled { labels, rows: vec![(row("soup"), 1), (row("other"), 2)] };
            visit("menu_orders", "Dishes ordered.", Reading::Counters(counts));
            let times = Labelled { labels, rows: vec![(row("soup"), times.snapshot())] };
            visit("menu_wait", "Time until a dish comes.", Reading::Times(times));
        }
    }

    #[test]
    fn labels_are_escaped_and_their_histograms_have_few_buckets() {
        let text = render(&[&Menu]);
        let few = text.lines().filter(|line| {
            !line.contains("_bucket")
                || ["0.000128", "0.5", "1.0", "33.5", "Inf"].iter().any(|le| line.contains(le))
        });
        insta::assert_snapshot!(few.collect::<Vec<_>>().join("\n"), @r#"
            # HELP mainstay_menu_orders_total Dishes ordered.
            # TYPE mainstay_menu_orders_total counter
            mainstay_menu_orders_total{dish="soup",size="a\n\"b\"\\"} 1
            mainstay_menu_orders_total{dish="other",size="a\n\"b\"\\"} 2
            # HELP mainstay_menu_wait_seconds Time until a dish comes.
            # TYPE mainstay_menu_wait_seconds histogram
            mainstay_menu_wait_seconds_bucket{dish="soup",size="a\n\"b\"\\",le="0.000128"} 1
            mainstay_menu_wait_seconds_bucket{dish="soup",size="a\n\"b\"\\",le="0.524288"} 1
            mainstay_menu_wait_seconds_bucket{dish="soup",size="a\n\"b\"\\",le="1.048576"} 2
            mainstay_menu_wait_seconds_bucket{dish="soup",size="a\n\"b\"\\",le="33.554432"} 2
            mainstay_menu_wait_seconds_bucket{dish="soup",size="a\n\"b\"\\",le="+Inf"} 3
            mainstay_menu_wait_seconds_sum{dish="soup",size="a\n\"b\"\\"} 3601.000003
            mainstay_menu_wait_seconds_count{dish="soup",size="a\n\"b\"\\"} 3
            "#);
        assert_eq!(text.lines().filter(|line| line.contains("_bucket")).count(), 20);
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
