//! Item 279: which way an event takes, as the documents say it.

use std::collections::BTreeMap;

const DELIVERY: &str = include_str!("../../../../../docs/concepts/delivery.md");
const COMMANDS: &str = include_str!("../../../../../docs/concepts/commands.md");
const PROJECTIONS: &str = include_str!("../../../../../docs/concepts/projections.md");
/// Where the pages are compiled as doc tests.
const COMPILED: &str = include_str!("../../../../mainstay/src/lib.rs");

/// Each row of the table: where the event comes from, the page and section that it leads to, and what is called there.
const WAYS: [(&str, &str, &str, &str); 6] = [
    ("a command that is decided now", "commands.md", "", "Decision::success("),
    ("the end of an action", "", "outbox", "Outbox::new("),
    ("a step of a saga, a scheduled job", "", "durable-append", "house.appends().append(NewAppend::new("),
    ("another context", "", "publications", "publisher.publish_in("),
    ("an operation that takes long", "", "intents-and-completions", "house.intents().record("),
    ("the log, for a risky read model", "projections.md", "when-a-handler-fails", ".poison("),
];

/// The first table of the page: the first cell of each row, and where the second leads.
fn table() -> BTreeMap<String, String> {
    let rows = DELIVERY.lines().skip_while(|line| !line.starts_with("| the event comes from"));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let link = cells[2].split_once("](").and_then(|(_, rest)| rest.split_once(')')).unwrap().0;
        (cells[1].to_owned(), link.to_owned())
    })
    .collect()
}

/// The Rust examples below a heading, or of the whole page.
fn examples(page: &str, section: &str) -> String {
    let anchor = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        line.starts_with("## ") && title.replace(' ', "-") == section
    };
    let (mut is_inside, mut is_rust, mut found) = (section.is_empty(), false, String::new());
    for line in page.lines() {
        match line {
            "```rust" => is_rust = true,
            "```" => is_rust = false,
            _ if is_rust && is_inside => found += line,
            _ if line.starts_with("## ") && !is_rust => is_inside = section.is_empty() || anchor(line),
            _ => {}
        }
    }
    found
}

#[test]
fn b_279_the_table_of_ways_leads_to_examples_that_are_compiled() {
    let table = table();
    assert_eq!(table.len(), WAYS.len(), "{table:?}");
    for (from, page, section, call) in WAYS {
        let anchor = if section.is_empty() { String::new() } else { format!("#{section}") };
        assert_eq!(table.get(from), Some(&format!("{page}{anchor}")), "{from}");
        let (name, text) = match page {
            "commands.md" => (page, COMMANDS),
            "projections.md" => (page, PROJECTIONS),
            _ => ("delivery.md", DELIVERY),
        };
        assert!(examples(text, section).contains(call), "{name}{anchor} does not show {call}");
        let compiled = format!("#[doc = include_str!(\"../../../docs/concepts/{name}\")]");
        assert!(COMPILED.contains(&compiled), "{name} is not compiled");
    }
}
