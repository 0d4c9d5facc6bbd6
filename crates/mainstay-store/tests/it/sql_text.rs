//! Places that put the text of a statement together.
//!
//! A row, an argument or a request must never become a part of a statement's text: it is a parameter. Two kinds of places
//! can break that rule, and each of them is reviewed:
//!
//! - a literal of SQL into which something other than a constant is written,
//! - a call that runs a text which is neither a literal nor a constant, however the text was put together: by a helper,
//!   `push_str`, `write!`, `replace`, `join` or `+`.
//!
//! Reviewed places write numbers of parameters, names of columns that the code lists, and checked identifiers.

use std::fs;
use std::path::{Path, PathBuf};

/// Reviewed files, each with the number of its places: a new one needs a review, too.
const REVIEWED: &[(&str, usize)] = &[
    ("mainstay-bench/src/store.rs", 2),
    ("mainstay-demo/src/provider/desk.rs", 2),
    ("mainstay-events/src/index/lookup.rs", 11),
    ("mainstay-events/src/index/sql.rs", 1),
    ("mainstay-events/src/keep/repair.rs", 1),
    ("mainstay-events/src/keep/walk.rs", 3),
    ("mainstay-flows/src/commands/record.rs", 1),
    ("mainstay-work/src/dead_letters/operations/row.rs", 4),
    ("mainstay-flows/src/delivery/intents/record.rs", 5),
    ("mainstay-flows/src/delivery/publications/letters.rs", 4),
    ("mainstay-flows/src/delivery/publications/look.rs", 5),
    ("mainstay-flows/src/delivery/publications/record.rs", 5),
    ("mainstay-flows/src/projections/failures/by_hand.rs", 1),
    ("mainstay-flows/src/projections/failures/count.rs", 2),
    ("mainstay-flows/src/projections/failures/letters.rs", 8),
    ("mainstay-flows/src/projections/failures/listing.rs", 5),
    ("mainstay-flows/src/projections/failures/many.rs", 8),
    ("mainstay-flows/src/projections/failures/poison.rs", 5),
    ("mainstay-flows/src/projections/failures/record.rs", 3),
    ("mainstay-flows/src/projections/failures/retry.rs", 3),
    ("mainstay-flows/src/projections/failures/source.rs", 1),
    ("mainstay-flows/src/projections/replay/row.rs", 3),
    // The only one that writes names: those of managed tables, which are identifiers.
    ("mainstay-flows/src/projections/tables.rs", 12),
    // A constant with the braces of a regular expression.
    ("mainstay-flows/src/tenants.rs", 1),
    ("mainstay-guards/src/limits/store/directory.rs", 1),
    ("mainstay-guards/src/once/store.rs", 1),
    ("mainstay-server/src/audit/table.rs", 3),
    ("mainstay-store/src/bulk.rs", 6),
    ("mainstay-store/src/drivers/postgres/lend.rs", 1),
    ("mainstay-store/src/drivers/postgres/transaction.rs", 4),
    ("mainstay-store/src/drivers/sqlite/connection.rs", 7),
    ("mainstay-store/src/drivers/sqlite/keep.rs", 2),
    ("mainstay-store/src/drivers/sqlite/open.rs", 2),
    ("mainstay-store/src/drivers/sqlite/writer.rs", 2),
    ("mainstay-store/src/migrations/run.rs", 2),
    // The way of every statement to its driver.
    ("mainstay-store/src/tx.rs", 10),
    ("mainstay-work/src/bounds.rs", 1),
    ("mainstay-work/src/claim.rs", 6),
    ("mainstay-work/src/delete.rs", 1),
    ("mainstay-work/src/engine/keeper.rs", 2),
    ("mainstay-work/src/engine/timekeeper.rs", 2),
    ("mainstay-work/src/inbox/look.rs", 16),
    ("mainstay-work/src/inbox/write.rs", 4),
    ("mainstay-work/src/letters/look.rs", 5),
    ("mainstay-work/src/letters/table.rs", 1),
    ("mainstay-work/src/listing/queues.rs", 3),
    ("mainstay-work/src/listing/sources.rs", 8),
    ("mainstay-work/src/many.rs", 3),
    ("mainstay-work/src/simulation/sight.rs", 2),
    ("mainstay-work/src/simulation/world.rs", 1),
];
/// Files that may define or remove something under a name that is written in.
const DEFINING: &[&str] = &["mainstay-flows/src/projections/tables.rs", "mainstay-flows/src/tenants.rs"];

const WORDS: [&str; 12] = [
    "SELECT ",
    "INSERT INTO ",
    "UPDATE ",
    "DELETE FROM ",
    " FROM ",
    " WHERE ",
    " AND ",
    " ORDER BY ",
    "CREATE ",
    "DROP ",
    "ALTER ",
    "PRAGMA ",
];
const DEFINITIONS: [&str; 4] = ["CREATE ", "DROP ", "ALTER ", "TRUNCATE "];
/// Places that a statement's own helper fills, unless a macro does: rows and lists of parameters, and the name of a managed table.
const FILLED: [&str; 3] = ["rows", "values", "table"];
/// Macros that write names into a literal.
const WRITING: [&str; 4] = ["format!(", "format_args!(", "write!(", "writeln!("];
/// Calls that run the statement that is their first argument, or keep it to be run.
const RUNNING: [&str; 18] = [
    ".execute(",
    ".execute_many(",
    ".execute_batch(",
    ".batch_execute(",
    ".simple_query(",
    ".query(",
    ".query_one(",
    ".query_optional(",
    ".query_opt(",
    ".query_holding(",
    ".query_raw(",
    ".query_row(",
    ".prepare_cached(",
    "Bulk::insert(",
    "Bulk::among(",
    "Bulk::rows(",
    "Bulk::numbers(",
    "Bulk::list(",
];

/// A literal, and the code before it.
struct Literal<'a> {
    text: &'a str,
    before: &'a str,
}

/// The string literals of a source, without comments.
fn literals(source: &str) -> Vec<Literal<'_>> {
    let (mut found, mut rest) = (Vec::new(), source);
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let (kind, after) = (rest.as_bytes()[at], &rest[at + 1..]);
        rest = match kind {
            b'/' if after.starts_with('/') => after.find('\n').map_or("", |end| &after[end..]),
            // A character, and not a lifetime.
            b'\'' if after.starts_with("\\") => after[2..].find('\'').map_or("", |end| &after[end + 3..]),
            b'\'' if after.chars().nth(1) == Some('\'') => {
                &after[after.chars().next().map_or(0, char::len_utf8) + 1..]
            }
            b'"' => {
                let hashes = rest[..at].bytes().rev().take_while(|byte| *byte == b'#').count();
                let is_raw = rest[..at - hashes].ends_with('r');
                let (text, left) = if is_raw { raw(after, hashes) } else { escaped(after) };
                let before = &source[..source.len() - after.len() - 1];
                found.push(Literal { text, before });
                left
            }
            _ => after,
        };
    }
    found
}

fn raw(text: &str, hashes: usize) -> (&str, &str) {
    let end = format!("\"{}", "#".repeat(hashes));
    text.split_once(&end).unwrap_or((text, ""))
}

fn escaped(text: &str) -> (&str, &str) {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

/// Names that are written into a literal and are not constants.
fn written_in<'a>(literal: &Literal<'a>) -> Vec<&'a str> {
    let line = literal.before.trim_end().rsplit(['\n', ';']).next().unwrap_or_default();
    let is_filled = !WRITING.iter().any(|writing| line.contains(writing));
    let pieces =
        literal.text.split('{').skip(1).filter_map(|piece| piece.split_once('}').map(|(name, _)| name));
    pieces.filter(|name| !(is_constant(name) || is_filled && FILLED.contains(name))).collect()
}

fn is_constant(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The part of a source before its tests.
fn without_tests(source: &str) -> &str {
    source.split("#[cfg(test)]").next().unwrap_or_default()
}

/// The first argument of a call that begins here.
fn first_argument(text: &str) -> &str {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => at = text.len() - escaped(&text[at + 1..]).1.len() - 1,
            b'(' | b'[' | b'{' => depth += 1,
            b',' if depth == 0 => break,
            b')' | b']' | b'}' if depth == 0 => break,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    text[..at].trim()
}

/// Whether an expression is a literal or a constant, or is made of nothing else; `before` is the code that leads to it.
fn is_fixed(expression: &str, before: &str) -> bool {
    let expression = expression.trim().trim_start_matches(['&', '*']);
    if let Some(arguments) = expression.strip_prefix("format!(") {
        let inside = first_argument(arguments);
        let is_whole = arguments[inside.len()..].trim_start().starts_with(')');
        return is_whole && literals(expression).iter().all(|literal| written_in(literal).is_empty());
    }
    if expression.starts_with("concat!(") {
        return true;
    }
    if expression.starts_with(['"', 'r']) && expression.ends_with(['"', '#']) {
        return literals(expression).len() == 1;
    }
    let last = expression.rsplit("::").next().unwrap_or_default();
    if is_constant(last) {
        return true;
    }
    // A variable is what it was made.
    let is_name = expression.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let bound = ["", "mut "].iter().filter_map(|kind| before.rfind(&format!("let {kind}{expression} = ")));
    is_name
        && !expression.is_empty()
        && bound.max().is_some_and(|at| {
            let (before, made) = (&before[..at], &before[at..]);
            let made = made.split_once('=').map_or("", |(_, made)| made);
            let end = statement(made);
            // A text that something is added to afterwards is none of these.
            let is_left =
                !made.contains(&format!("{expression}.")) && !made.contains(&format!("{expression} +="));
            is_left && is_fixed(end, before)
        })
}

/// A statement, up to its semicolon.
fn statement(text: &str) -> &str {
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => at = text.len() - escaped(&text[at + 1..]).1.len() - 1,
            b';' => break,
            _ => {}
        }
        at += 1;
    }
    text[..at].trim()
}

/// First arguments that are no statement: `Bulk` has its own, and a request's query is another thing.
const CARRIERS: [&str; 4] = ["tx", "&tx", "self.tx", ""];

/// Where `query` and `execute` are about HTTP, Redis and calls of services.
const OTHER_QUERIES: [&str; 3] =
    ["mainstay-cli/src/verbs/", "mainstay-guards/src/limits/redis/", "mainstay-guards/src/retry/"];

/// Comments taken out of a source, line by line.
fn without_comments(source: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    source.lines().filter(is_code).collect::<Vec<_>>().join("\n")
}

/// The calls of a source that run something else than a literal or a constant.
fn calls(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for running in RUNNING {
        for (at, _) in source.match_indices(running) {
            let (before, after) = (&source[..at], &source[at + running.len()..]);
            let argument = first_argument(after);
            if !CARRIERS.contains(&argument) && !is_fixed(argument, before) {
                found.push(format!("{running}{argument})"));
            }
        }
    }
    found
}

/// The places of a file that put a statement together.
fn places(file: &str, source: &str) -> Vec<String> {
    let has = |words: &[&str], text: &str| words.iter().any(|word| text.contains(word));
    let source = without_comments(without_tests(source));
    let is_other = OTHER_QUERIES.iter().any(|folder| file.starts_with(folder));
    let mut places = if is_other { Vec::new() } else { calls(&source) };
    for literal in literals(&source) {
        let text = literal.text.replace("{{", "").replace("}}", "");
        if has(&WORDS, &text) && !written_in(&Literal { text: &text, ..literal }).is_empty() {
            places.push(literal.text.to_owned());
            if has(&DEFINITIONS, &text) && !DEFINING.contains(&file) {
                places.push(format!("a definition: {}", literal.text));
            }
        }
    }
    places
}

/// Values that are written between quotes, which no review allows: `Literal` writes its own.
fn quoted(source: &str) -> Vec<String> {
    let source = without_comments(without_tests(source));
    let is_quoted = |literal: &Literal<'_>| {
        let text = literal.text.replace("{{", "").replace("}}", "");
        WORDS.iter().any(|word| text.contains(word)) && text.contains("'{")
    };
    literals(&source).into_iter().filter(is_quoted).map(|literal| literal.text.to_owned()).collect()
}

/// Every source of the crates, with its path below `crates`.
fn sources() -> Vec<(String, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        // The testkit makes databases and roles of its own.
        if path.join("src").is_dir() && !path.ends_with("mainstay-testkit") {
            files(&path.join("src"), &mut found);
        }
    }
    assert!(found.len() > 300, "{} files", found.len());
    let named = |path: PathBuf| {
        let file = path.strip_prefix(crates).unwrap().to_str().unwrap().replace('\\', "/");
        (file, fs::read_to_string(path).unwrap())
    };
    found.into_iter().map(named).collect()
}

#[test]
fn every_place_that_puts_a_statement_together_was_reviewed() {
    let mut wrong = Vec::new();
    for (file, source) in sources() {
        let reviewed = REVIEWED.iter().find(|(reviewed, _)| *reviewed == file).map_or(0, |(_, count)| *count);
        let found = places(&file, &source);
        if found.len() != reviewed {
            wrong.push(format!("(\"{file}\", {}), not {reviewed}:\n  {}", found.len(), found.join("\n  ")));
        }
        wrong.extend(quoted(&source).into_iter().map(|text| format!("{file}: a value in quotes: {text}")));
    }
    assert!(
        wrong.is_empty(),
        "write it as a parameter, or review it and change its count:\n{}",
        wrong.join("\n")
    );
    for (file, _) in REVIEWED {
        assert!(sources().iter().any(|(found, _)| found == file), "{file} is gone");
    }
}

#[test]
fn a_text_from_elsewhere_in_a_statement_is_found() {
    let bad = [
        r#"format!("DROP TABLE IF EXISTS {name}")"#,
        r#"format!("DROP TABLE IF EXISTS {table}")"#,
        r#"format!("SELECT a FROM {} WHERE b = 1", table)"#,
        "let q = '\"'; // \"\nformat!(\"SELECT a FROM t WHERE b = '{b}'\")",
        "format!(r#\"UPDATE t SET a = \"{a}\" WHERE b = $1\"#)",
        r#"write!(sql, "DELETE FROM {rows}")"#,
        // Put together elsewhere.
        r#"tx.query(&format!("{from} {BY_EVENT}"), &[])"#,
        r#"tx.execute(&drop_of(name), &[])"#,
        r#"let mut sql = String::from("DROP TABLE "); sql.push_str(name); tx.execute(&sql, &[])"#,
        r#"let mut sql = "DROP TABLE "; sql += name; tx.execute(&sql, &[])"#,
        r#"tx.execute(&("DROP TABLE ".to_owned() + name), &[])"#,
        r#"tx.execute(&["DROP TABLE ", name].concat(), &[])"#,
        r#"tx.query(&SQL.replace("{place}", name), &[])"#,
        r#"let sql = text(name); tx.query_holding(&sql, &[], Hold::Alone)"#,
        r#"fn run(sql: &str) { tx.query_one(sql, &[]) }"#,
        r#"connection.batch_execute(&statement)"#,
        r#"Bulk::insert(&format!("INSERT INTO {name} VALUES {{rows}}"), A)"#,
    ];
    for source in bad {
        assert!(!places("some.rs", source).is_empty(), "{source}");
    }
    let good = [
        r#"format!("SELECT {COLUMNS} FROM t WHERE a = $1")"#,
        r#"Bulk::insert("INSERT INTO t (a) VALUES {rows}", A)"#,
        r#"// format!("DROP TABLE {name}")"#,
        r#"format!("{count} items are more than {most}")"#,
        r#"tx.query("SELECT a, (b) FROM t WHERE c = 'd;'", &[])"#,
        r#"tx.query(crate::table::FIND, &[])"#,
        r#"let sql = "SELECT ';' FROM t"; tx.query_one(sql, &[])"#,
        r#"let sql = format!("SELECT {COLUMNS} FROM t"); tx.query_one(&sql, &[])"#,
        r#"tx.query(concat!("SELECT ", columns!(), " FROM t"), &[])"#,
    ];
    for source in good {
        assert_eq!(places("some.rs", source), Vec::<String>::new(), "{source}");
    }
    let quotes = r#"format!("SELECT a FROM t WHERE b = '{b}'")"#;
    assert_eq!(quoted(quotes).len(), 1);
    // A definition counts twice, so that a place that was reviewed as a query cannot become one.
    let defining = r#"format!("DROP TABLE {name}")"#;
    assert_eq!(
        (places("mainstay-work/src/claim.rs", defining).len(), places(DEFINING[0], defining).len()),
        (2, 1)
    );
}
