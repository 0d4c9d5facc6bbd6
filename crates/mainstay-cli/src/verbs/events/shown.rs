//! An event as a line for people.

use serde::Deserialize;
use serde_json::value::RawValue;

/// What a person is told of an event.
#[derive(Deserialize)]
struct Shown<'a> {
    position: u64,
    timestamp: i64,
    #[serde(rename = "type")]
    event_type: String,
    stream: Option<Stream>,
    tags: Vec<String>,
    #[serde(borrow)]
    data: &'a RawValue,
    #[serde(default)]
    erased: bool,
}

#[derive(Deserialize)]
struct Stream {
    #[serde(rename = "type")]
    stream_type: String,
    id: String,
    version: u64,
}

const COLUMNS: usize = 6;
const HEADING: [&str; COLUMNS] = ["POSITION", "TIME", "TYPE", "STREAM", "TAGS", "DATA"];
/// The longest cells that are shown whole: a line of short names fits a wide terminal.
const LONGEST: [usize; COLUMNS] = [20, 30, 32, 40, 40, 60];

/// The width of columns, which only grows, so that what comes later stands below what came before.
#[derive(Default)]
pub(super) struct Layout {
    widths: Option<[usize; COLUMNS]>,
}

impl Layout {
    /// Lines for events, below a heading the first time.
    pub(super) fn page(&mut self, lines: &[String]) -> String {
        let mut rows: Vec<[String; COLUMNS]> = lines.iter().map(|line| cells(line)).collect();
        if self.widths.is_none() && !rows.is_empty() {
            rows.insert(0, HEADING.map(str::to_owned));
        }
        let widths = self.widths.get_or_insert([0; COLUMNS]);
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let line = |row: &[String; COLUMNS]| {
            let padded = row.iter().zip(*widths).map(|(cell, width)| format!("{cell:<width$}"));
            format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
        };
        rows.iter().map(line).collect()
    }
}

fn cells(line: &str) -> [String; COLUMNS] {
    let Ok(event) = serde_json::from_str::<Shown<'_>>(line) else {
        // Of a newer server, perhaps: better whole than not at all.
        let mut cells: [String; COLUMNS] = Default::default();
        cells[COLUMNS - 1] = line.to_owned();
        return cells;
    };
    let time = jiff::Timestamp::from_millisecond(event.timestamp);
    let stream = event.stream.map(|of| format!("{}/{}@{}", of.stream_type, of.id, of.version));
    let data = if event.erased { "(erased)" } else { event.data.get() };
    let cells = [
        event.position.to_string(),
        time.map_or_else(|_| format!("{} ms", event.timestamp), |time| format!("{time:.3}")),
        event.event_type,
        stream.unwrap_or("-".to_owned()),
        if event.tags.is_empty() { "-".to_owned() } else { event.tags.join(" ") },
        data.to_owned(),
    ];
    let mut longest = LONGEST.into_iter();
    cells.map(|cell| shortened(&cell, longest.next().unwrap_or(usize::MAX)))
}

/// A text that fits, and does nothing to the terminal it is shown on.
fn shortened(text: &str, most: usize) -> String {
    let is_long = text.chars().count() > most;
    let kept = text.chars().take(if is_long { most - 1 } else { most });
    let plain = kept.map(|letter| if letter.is_control() { ' ' } else { letter });
    plain.chain(is_long.then_some('…')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(position: u64, tail: &str) -> String {
        format!(
            r#"{{"position":{position},"type":"OrderPlaced","timestamp":1800000000000,"eventId":"e",{tail}}}"#
        )
    }

    #[test]
    fn events_are_lines_and_long_data_is_shortened() {
        let mut layout = Layout::default();
        let long = format!(r#""tags":["order:1"],"data":"{}""#, "é".repeat(80));
        let first = layout.page(&[
            event(9, r#""tags":[],"data":{"a": [1,	2]}"#),
            event(10, r#""tags":["order:1","item:lamp"],"stream":{"type":"order","id":"1","version":2},"data":null,"erased":true"#),
            event(11, &long),
        ]);
        let then = layout.page(&[event(12, "\"tags\":[],\"data\":\"\u{9b}2J\"")]);
        insta::assert_snapshot!(first + &then, @"
            POSITION  TIME                      TYPE         STREAM     TAGS               DATA
            9         2027-01-15T08:00:00.000Z  OrderPlaced  -          -                  {\"a\": [1, 2]}
            10        2027-01-15T08:00:00.000Z  OrderPlaced  order/1@2  order:1 item:lamp  (erased)
            11        2027-01-15T08:00:00.000Z  OrderPlaced  -          order:1            \"éééééééééééééééééééééééééééééééééééééééééééééééééééééééééé…
            12        2027-01-15T08:00:00.000Z  OrderPlaced  -          -                  \" 2J\"
            ");
        assert_eq!(Layout::default().page(&[]), "");
    }

    #[test]
    fn what_is_not_understood_is_shown_whole() {
        assert!(
            Layout::default().page(&["{\"of\":\"tomorrow\"}".to_owned()]).contains("{\"of\":\"tomorrow\"}")
        );
    }
}
