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
//!
//! The reviewed places are in `reviewed.txt` with their text and with what the variables in it were made of, so that a change of one
//! of them is reviewed too. `MAINSTAY_REVIEWED=write cargo test -p mainstay-store --test it sql_text` writes that list anew:
//! look at its difference.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Reviewed places by file.
const REVIEWED: &str = include_str!("reviewed.txt");
/// Set to `write` to write the list anew.
const VARIABLE: &str = "MAINSTAY_REVIEWED";
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
    is_name(expression)
        && bound(expression, before).is_some_and(|Bound { before, made }| {
            // A text that something is added to afterwards is none of these.
            let is_left =
                !made.contains(&format!("{expression}.")) && !made.contains(&format!("{expression} +="));
            is_left && is_fixed(statement(made), before)
        })
}

fn is_name(expression: &str) -> bool {
    expression.starts_with(|first: char| first.is_ascii_lowercase())
        && expression.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Where a variable was bound.
struct Bound<'a> {
    before: &'a str,
    /// What it was made of, and all that follows.
    made: &'a str,
}

/// The last binding of a variable in the function that the code before it ends in.
fn bound<'a>(name: &str, before: &'a str) -> Option<Bound<'a>> {
    let begins = ["\nfn ", " fn "].iter().filter_map(|function| before.rfind(function)).max().unwrap_or(0);
    let bindings = ["", "mut "].into_iter().filter_map(|kind| {
        let text = format!("let {kind}{name} = ");
        before[begins..].rfind(&text).map(|at| (begins + at, begins + at + text.len()))
    });
    let (at, made) = bindings.max()?;
    Some(Bound { before: &before[..at], made: &before[made..] })
}

/// What a variable was made of, with all that was added to it, and what the variables in that were made of.
fn origin(name: &str, before: &str, depth: usize) -> String {
    let Some(bound) = bound(name, before) else { return String::new() };
    let first = statement(bound.made);
    let rest = &bound.made[first.len().min(bound.made.len())..];
    let adds = |one: &&str| {
        let writes = WRITING.iter().any(|writing| one.contains(&format!("{writing}{name},")));
        writes || one.contains(&format!("{name}.push")) || one.contains(&format!("{name} +="))
    };
    let added: Vec<&str> = statements(rest).into_iter().filter(adds).collect();
    let mut told = format!(
        "; {name} = {}",
        std::iter::once(first).chain(added.iter().copied()).collect::<Vec<_>>().join("; ")
    );
    if depth > 0 {
        for inner in names_in(&told).into_iter().filter(|inner| inner != name) {
            told.push_str(&origin(&inner, bound.before, depth - 1));
        }
    }
    told
}

/// Statements of a source, one behind another, as far as their semicolons tell.
fn statements(mut source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    while !source.is_empty() {
        let one = statement(source);
        found.push(
            one.rsplit(['{', '}'])
                .next()
                .map_or(one, |last| if last.contains("push") || last.contains("+=") { last } else { one }),
        );
        let end = one.as_ptr() as usize - source.as_ptr() as usize + one.len();
        source = source[end..].trim_start().strip_prefix(';').unwrap_or_default();
    }
    found
}

/// Variables that are written into a text, or handed over whole.
fn names_in(expression: &str) -> Vec<String> {
    let mut names = Vec::new();
    for literal in literals(expression) {
        names.extend(
            literal
                .text
                .split('{')
                .skip(1)
                .filter_map(|piece| piece.split_once('}'))
                .map(|(name, _)| name.to_owned()),
        );
    }
    let words = expression.split(['(', ',', ')', ' ', '\n', '&']);
    names.extend(words.map(str::to_owned));
    names.retain(|name| is_name(name));
    names.sort();
    names.dedup();
    names
}

/// A text in one line.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The call of a macro that a literal is in, or the literal.
fn whole<'a>(literal: &Literal<'a>, source: &'a str) -> &'a str {
    let at = WRITING.iter().filter_map(|writing| Some((literal.before.rfind(writing)?, writing.len()))).max();
    let inside = at.map(|(at, length)| (at, at + length + arguments(&source[at + length..]).len()));
    match inside.filter(|(_, end)| *end > literal.before.len()) {
        Some((at, end)) => &source[at..(end + 1).min(source.len())],
        None => literal.text,
    }
}

/// The arguments of a call that begins here.
fn arguments(text: &str) -> &str {
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        let argument = first_argument(&text[at..]);
        at += argument.len();
        at += text[at..].len() - text[at..].trim_start().len();
        match text.as_bytes().get(at) {
            Some(b',') => at += 1,
            _ => return &text[..at],
        }
    }
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
                let names = names_in(argument);
                let origins: String = names.iter().map(|name| origin(name, before, 1)).collect();
                found.push(in_one_line(&format!("{running}{argument}){origins}")));
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
            let whole = whole(&literal, &source);
            let origins: String =
                names_in(whole).iter().map(|name| origin(name, literal.before, 1)).collect();
            places.push(in_one_line(&format!("{whole}{origins}")));
            if has(&DEFINITIONS, &text) && !DEFINING.contains(&file) {
                places.push(in_one_line(&format!("a definition: {}", literal.text)));
            }
        }
    }
    places.sort();
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

/// Every source of the crates, the examples and the benches, with its path below `crates`, or below the root.
fn sources() -> Vec<(String, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let root = crates.parent().unwrap();
    let mut found = Vec::new();
    let below = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let packages =
        below(crates.into()).chain(below(root.join("examples"))).chain(below(root.join("bench/peers")));
    for path in packages.chain([root.join("bench")]) {
        // The testkit makes databases and roles of its own.
        if path.join("src").is_dir() && !path.ends_with("mainstay-testkit") {
            files(&path.join("src"), &mut found);
        }
    }
    assert!(found.len() > 300, "{} files", found.len());
    let named = |path: PathBuf| {
        let file = path.strip_prefix(crates).or_else(|_| path.strip_prefix(root)).unwrap();
        (file.to_str().unwrap().replace('\\', "/"), fs::read_to_string(path).unwrap())
    };
    found.into_iter().map(named).collect()
}

/// Places by file, as the list of those that were reviewed has them.
fn listed(found: &BTreeMap<String, Vec<String>>) -> String {
    let mut list = String::new();
    for (file, places) in found {
        list.push_str(&format!("{file}\n"));
        list.extend(places.iter().map(|place| format!("    {place}\n")));
    }
    list
}

fn reviewed(list: &str) -> BTreeMap<String, Vec<String>> {
    let (mut reviewed, mut file) = (BTreeMap::<String, Vec<String>>::new(), "");
    for line in list.lines() {
        match line.strip_prefix("    ") {
            Some(place) => reviewed.entry(file.to_owned()).or_default().push(place.to_owned()),
            None => file = line,
        }
    }
    reviewed
}

/// What one list has and the other has not, however often.
fn beyond<'a>(one: &'a [String], other: &[String]) -> Vec<&'a String> {
    let mut left: Vec<&String> = other.iter().collect();
    let mut is_new = |place: &&String| match left.iter().position(|known| known == place) {
        Some(at) => {
            left.remove(at);
            false
        }
        None => true,
    };
    one.iter().filter(|place| is_new(place)).collect()
}

/// Places that are not in the list, and those of the list that are gone.
fn differences(
    found: &BTreeMap<String, Vec<String>>,
    reviewed: &BTreeMap<String, Vec<String>>,
) -> Vec<String> {
    let mut differences = Vec::new();
    let none = Vec::new();
    for file in found.keys().chain(reviewed.keys().filter(|file| !found.contains_key(*file))) {
        let (now, before) = (found.get(file).unwrap_or(&none), reviewed.get(file).unwrap_or(&none));
        differences.extend(beyond(now, before).into_iter().map(|place| format!("{file}: new: {place}")));
        differences.extend(beyond(before, now).into_iter().map(|place| format!("{file}: gone: {place}")));
    }
    differences
}

#[test]
fn every_place_that_puts_a_statement_together_was_reviewed() {
    let (mut found, mut quotes) = (BTreeMap::new(), Vec::new());
    for (file, source) in sources() {
        let places = places(&file, &source);
        quotes.extend(quoted(&source).into_iter().map(|text| format!("{file}: a value in quotes: {text}")));
        if !places.is_empty() {
            found.insert(file, places);
        }
    }
    assert!(quotes.is_empty(), "write it as a parameter:\n{}", quotes.join("\n"));
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "write") {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/reviewed.txt"), listed(&found))
            .unwrap();
        return;
    }
    let differences = differences(&found, &reviewed(REVIEWED));
    assert!(
        differences.is_empty(),
        "write it as a parameter, or review it and write the list anew with {VARIABLE}=write:\n{}",
        differences.join("\n")
    );
}

#[test]
fn a_place_that_is_swapped_for_another_is_found() {
    let of = |source: &str| BTreeMap::from([("some.rs".to_owned(), places("some.rs", source))]);
    let safe = r#"
fn a() { let columns = names(); tx.query(&format!("SELECT {columns} FROM t"), &[]) }
fn b() { let sql = text(&COLUMNS); tx.query(&sql, &[]) }"#;
    let list = listed(&of(safe));
    assert!(differences(&of(safe), &reviewed(&list)).is_empty(), "{list}");
    for (one, other) in [
        // Another text, another origin of the same name, another one behind it, something added to it.
        ("SELECT {columns} FROM t", "SELECT {columns} FROM u"),
        ("let columns = names()", "let columns = request.columns()"),
        ("let columns = names()", "let given = request.columns(); let columns = join(&given)"),
        ("text(&COLUMNS)", "request.text()"),
        ("let sql = text(&COLUMNS);", "let mut sql = text(&COLUMNS); sql.push_str(name);"),
        ("let sql = text(&COLUMNS);", "let mut sql = text(&COLUMNS); if a { sql += name; }"),
    ] {
        let unsafe_ = safe.replace(one, other);
        assert_ne!(unsafe_, safe);
        assert!(!differences(&of(&unsafe_), &reviewed(&list)).is_empty(), "{unsafe_}");
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
        "fn other() { let sql = \"SELECT 1\"; }\nfn run(sql: &str) { tx.query_one(sql, &[]) }",
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
