//! Reads docs/concepts/sql.md: its `sql` blocks are the contract, and what stands below a statement is what must
//! come of it. The page explains the notation to its readers; this is the other half.

use mainstay_store::{Result, Row, Value};
use mainstay_testkit::stores::Kind;

const PAGE: &str = include_str!("../../../../../docs/concepts/sql.md");

/// A part of the page with statements in it, run in order on one store.
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) statements: Vec<Statement>,
}

/// A statement and what must come of it.
#[derive(Default)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) params: Vec<Value>,
    expected: Vec<(Where, Expected)>,
}

/// What must come of a statement.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expected {
    Row(Vec<Value>),
    NoRows,
    Changed(u64),
    Refused(String),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Where {
    Everywhere,
    Sqlite,
    Postgres,
}

impl Statement {
    /// What must come of it on a store of this kind.
    pub(super) fn expected_on(&self, kind: Kind) -> Vec<&Expected> {
        let here = if kind == Kind::Postgres { Where::Postgres } else { Where::Sqlite };
        let applies = |place: Where| place == Where::Everywhere || place == here;
        self.expected.iter().filter(|(place, _)| applies(*place)).map(|(_, expected)| expected).collect()
    }
}

/// The sections of the page that have statements.
pub(super) fn sections() -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let (mut title, mut block): (&'static str, Option<Vec<&str>>) = ("", None);
    for line in PAGE.lines() {
        match (&mut block, line) {
            (None, "```sql") => block = Some(Vec::new()),
            (None, _) => title = line.strip_prefix("## ").unwrap_or(title),
            (Some(lines), "```") => {
                let statements = read_block(lines);
                match sections.last_mut().filter(|section| section.title == title) {
                    Some(section) => section.statements.extend(statements),
                    None => sections.push(Section { title, statements }),
                }
                block = None;
            }
            (Some(lines), _) => lines.push(line),
        }
    }
    sections
}

/// The section with this title.
pub(super) fn section(title: &str) -> Section {
    let found = sections().into_iter().find(|section| section.title == title);
    found.unwrap_or_else(|| panic!("the page has no section {title:?} with statements"))
}

/// Reads the lines of a block.
pub(super) fn read_block(lines: &[&str]) -> Vec<Statement> {
    let mut statements: Vec<Statement> = Vec::new();
    let mut sql = String::new();
    for line in lines {
        if let Some(note) = line.strip_prefix("-- ") {
            assert!(sql.is_empty(), "a note inside of a statement (a comment there is indented): {note}");
            statements.last_mut().expect("a statement above the note").note(note);
        } else if !line.is_empty() {
            sql = if sql.is_empty() { (*line).to_owned() } else { format!("{sql}\n{line}") };
            if line.ends_with(';') {
                statements.push(Statement { sql: std::mem::take(&mut sql), ..Statement::default() });
            }
        }
    }
    assert!(sql.is_empty(), "a statement without its semicolon: {sql}");
    statements
}

impl Statement {
    fn note(&mut self, note: &str) {
        let (what, text) = note.split_once(": ").unwrap_or((note, ""));
        let (what, place) = match what.split_once(" on ") {
            Some((what, "SQLite")) => (what, Where::Sqlite),
            Some((what, "PostgreSQL")) => (what, Where::Postgres),
            _ => (what, Where::Everywhere),
        };
        let expected = match what {
            "with" => return self.params = values(text),
            "row" => Expected::Row(values(text)),
            "no rows" => Expected::NoRows,
            "changed" => Expected::Changed(text.parse().expect("a number of rows")),
            "refused" => Expected::Refused(text.to_owned()),
            _ => panic!("the page says {note:?}, which is no notation"),
        };
        self.expected.push((place, expected));
    }
}

/// Reads `1, 2.5, 'it''s', true, null, bytes 00ff`.
fn values(text: &str) -> Vec<Value> {
    let mut values = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (value, after) = one_value(rest);
        values.push(value);
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
    }
    values
}

fn one_value(text: &str) -> (Value, &str) {
    if let Some(quoted) = text.strip_prefix('\'') {
        let mut end = quoted.find('\'').expect("a closing quote");
        while quoted[end + 1..].starts_with('\'') {
            end += 2 + quoted[end + 2..].find('\'').expect("a closing quote");
        }
        return (Value::Text(quoted[..end].replace("''", "'")), &quoted[end + 1..]);
    }
    let (word, after) = text.split_at(text.find(',').unwrap_or(text.len()));
    let value = match word {
        "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match word.strip_prefix("bytes ") {
            Some(hex) => Value::Blob(bytes(hex)),
            None if word.contains(['.', 'e']) => Value::Real(word.parse().expect("a float")),
            None => Value::Int(word.parse().unwrap_or_else(|_| panic!("{word:?} is no value"))),
        },
    };
    (value, after)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("two hexadecimal digits");
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// The row's values, each read as the type of what is expected in its place: what an author's `get` would give.
pub(super) fn read_like(row: &Row, expected: &Expected) -> Result<Vec<Value>> {
    let Expected::Row(expected) = expected else { return Ok(row.clone().into_values()) };
    assert_eq!(row.columns().len(), expected.len(), "columns: {:?}", row.columns());
    let read = |(at, expected): (usize, &Value)| {
        Ok(match expected {
            Value::Null => row.get::<&Value>(at)?.clone(),
            Value::Bool(_) => row.get::<bool>(at)?.into(),
            Value::Int(_) => row.get::<i64>(at)?.into(),
            Value::Real(_) => row.get::<f64>(at)?.into(),
            Value::Text(_) => row.get::<String>(at)?.into(),
            Value::Blob(_) => row.get::<Vec<u8>>(at)?.into(),
        })
    };
    expected.iter().enumerate().map(read).collect()
}

#[test]
fn the_notation_reads_as_it_is_written() {
    let expected = [
        Value::Int(-1),
        Value::Real(2.5),
        Value::Text("it's, $1".to_owned()),
        Value::Bool(true),
        Value::Null,
        Value::Blob(vec![0, 255]),
        Value::Text(String::new()),
    ];
    assert_eq!(values("-1, 2.5, 'it''s, $1', true, null, bytes 00ff, ''"), expected);
    let block =
        read_block(&["SELECT 1", "  -- $1", ", 2;", "-- with: 7", "-- row on SQLite: 1", "-- no rows"]);
    assert_eq!((block[0].sql.as_str(), &block[0].params), ("SELECT 1\n  -- $1\n, 2;", &vec![Value::Int(7)]));
    assert_eq!(block[0].expected_on(Kind::Postgres), [&Expected::NoRows]);
    assert_eq!(block[0].expected_on(Kind::SqliteFile).len(), 2);
}
