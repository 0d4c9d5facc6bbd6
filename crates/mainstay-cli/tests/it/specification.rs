//! Specification and tests: every numbered behaviour has a test that names it, or is listed as missing.
//!
//! A test names its items at the start of its name: `b_118_opens_at_threshold`, `b_185_186_the_third_failure_…`. The table in
//! `docs/specification/README.md` is generated:
//!
//! ```text
//! MAINSTAY_WRITE_SPECIFICATION=1 cargo test -p mainstay-cli --test it specification
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Behaviours without a test, and the capability that they wait for.
const NOT_YET: &[(&str, &[u16])] = &[
    ("WebSocket gateway", &[39, 42, 44, 46, 47, 48, 50, 52, 53, 54, 56, 57]),
    ("Durable Object limiter", &[37, 38]),
    ("external queues", &[102, 103, 104, 105, 106, 107, 108, 109, 110, 111]),
    ("workflows", &[267, 270, 272]),
];

const PAGE: &str = "docs/specification/README.md";
const START: &str = "<!-- generated from the tests: see crates/mainstay-cli/tests/it/specification.rs -->\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Numbers of the behaviours in a text: `118. …` at the start of a line.
fn items(text: &str) -> BTreeSet<u16> {
    text.lines().filter_map(|line| line.split_once(". ")?.0.parse().ok()).collect()
}

/// The items that a function's name begins with.
fn named(function: &str) -> Vec<u16> {
    let Some(mut rest) = function.strip_prefix("b_") else { return Vec::new() };
    let mut items = Vec::new();
    while let Some((number, after)) = rest.split_once('_')
        && let Ok(number) = number.parse()
    {
        items.push(number);
        rest = after.strip_prefix("b_").unwrap_or(after);
    }
    items
}

/// Rust files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Tests of each item: the crate and the function's name.
fn tests() -> BTreeMap<u16, BTreeSet<(String, String)>> {
    let mut files = Vec::new();
    for folder in ["crates", "examples"] {
        sources(&root().join(folder), &mut files);
    }
    let mut tests: BTreeMap<u16, BTreeSet<_>> = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let relative = file.strip_prefix(root()).unwrap();
        let package = relative.iter().nth(1).unwrap().to_string_lossy().into_owned();
        for line in text.lines() {
            let function = line.trim_start().trim_start_matches("pub ").trim_start_matches("async ");
            let Some(function) = function.strip_prefix("fn ") else { continue };
            let name = function.split(['(', '<']).next().unwrap_or_default();
            for item in named(name) {
                tests.entry(item).or_default().insert((package.clone(), name.to_owned()));
            }
        }
    }
    tests
}

fn missing() -> BTreeMap<u16, &'static str> {
    NOT_YET.iter().flat_map(|(reason, items)| items.iter().map(|item| (*item, *reason))).collect()
}

fn table(items: &BTreeSet<u16>, tests: &BTreeMap<u16, BTreeSet<(String, String)>>) -> String {
    let missing = missing();
    let mut table = format!("{} of {} items have tests.\n\n", items.len() - missing.len(), items.len());
    table.push_str("| item | tests |\n|---|---|\n");
    for item in items {
        let cell = match missing.get(item) {
            Some(reason) => format!("not yet: {reason}"),
            None => {
                let tests = tests.get(item).into_iter().flatten();
                let names: Vec<_> = tests
                    .map(|(package, name)| format!("{}: `{name}`", package.trim_start_matches("mainstay-")))
                    .collect();
                names.join("<br>")
            }
        };
        let _ = writeln!(table, "| {item} | {cell} |");
    }
    table
}

#[test]
fn every_behaviour_has_a_test_or_is_listed_as_missing() {
    let (items, tests) = (items(&read("docs/specification/behaviour.md")), tests());
    assert_eq!(items, (1..=280).collect(), "the specification has items 1 to 280");
    let missing = missing();
    let mut complaints = Vec::new();
    for (item, named) in &tests {
        if !items.contains(item) {
            complaints.push(format!("no item {item}, which {named:?} names"));
        }
        if let Some(reason) = missing.get(item) {
            complaints.push(format!("item {item} has tests, but NOT_YET lists it for {reason:?}"));
        }
    }
    for item in items.iter().filter(|item| !tests.contains_key(item) && !missing.contains_key(item)) {
        complaints.push(format!("item {item} has no test, and NOT_YET does not list it"));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));

    let page = read(PAGE);
    let (head, old) = page.split_once(START).expect("the page has the mark of its generated part");
    let new = table(&items, &tests);
    if std::env::var_os("MAINSTAY_WRITE_SPECIFICATION").is_some() {
        std::fs::write(root().join(PAGE), format!("{head}{START}{new}")).unwrap();
    } else {
        assert_eq!(old, new, "{PAGE} is stale: run this test with MAINSTAY_WRITE_SPECIFICATION=1");
    }
}

#[test]
fn items_are_read_from_the_names_of_tests() {
    assert_eq!(named("b_118_opens_at_threshold"), [118]);
    assert_eq!(named("b_004_b_005_a_checker"), [4, 5]);
    assert_eq!(named("b_185_186_the_third_failure"), [185, 186]);
    assert_eq!(named("batches_are_full"), [0_u16; 0]);
}
