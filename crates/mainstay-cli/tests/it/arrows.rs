//! Dependencies between our crates point down only:
//!
//! ```text
//! core ← store ← {events, guards} ← work ← flows ← server ← cli
//!                 queue, gateway stand on guards; the facade on everything below the server
//! ```
//!
//! `mainstay-testkit` is used from tests only.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Crates of other people that the pure core may use: none that does IO, keeps time or makes random numbers.
const CORE_MAY_USE: [&str; 5] = ["jiff", "serde", "serde_json", "thiserror", "uuid"];

const BELOW_EVENTS: &[&str] = &["mainstay-core", "mainstay-store"];
const BELOW_WORK: &[&str] = &["mainstay-core", "mainstay-store", "mainstay-events", "mainstay-guards"];
const BELOW_FLOWS: &[&str] =
    &["mainstay-core", "mainstay-store", "mainstay-events", "mainstay-guards", "mainstay-work"];
const BELOW_QUEUE: &[&str] = &["mainstay-core", "mainstay-store", "mainstay-guards"];
const BELOW_SERVER: &[&str] = &[
    "mainstay-core",
    "mainstay-store",
    "mainstay-events",
    "mainstay-guards",
    "mainstay-work",
    "mainstay-flows",
    "mainstay-queue",
    "mainstay-gateway",
];
const BELOW_CLI: &[&str] = &[
    "mainstay",
    "mainstay-core",
    "mainstay-store",
    "mainstay-events",
    "mainstay-guards",
    "mainstay-work",
    "mainstay-flows",
    "mainstay-queue",
    "mainstay-gateway",
    "mainstay-server",
];

/// Which of our crates a crate may use; `None` for a crate that has no place yet.
fn allowed(from: &str) -> Option<&'static [&'static str]> {
    Some(match from {
        "mainstay-core" => &[],
        "mainstay-store" => &["mainstay-core"],
        "mainstay-events" | "mainstay-guards" => BELOW_EVENTS,
        "mainstay-work" => BELOW_WORK,
        "mainstay-flows" => BELOW_FLOWS,
        "mainstay-queue" | "mainstay-gateway" => BELOW_QUEUE,
        "mainstay-server" | "mainstay" => BELOW_SERVER,
        "mainstay-cli" => BELOW_CLI,
        // An application stands where its author's would.
        "order-management" => &["mainstay"],
        "mainstay-testkit" => &["mainstay-core", "mainstay-store"],
        _ => return None,
    })
}

struct Package {
    name: String,
    manifest: String,
    /// What it needs to be built; dev-dependencies may point anywhere.
    uses: BTreeSet<String>,
}

fn workspace() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| Package {
            name: text(&package["name"]),
            manifest: text(&package["manifest_path"]),
            uses: package["dependencies"]
                .as_array()
                .expect("dependencies")
                .iter()
                .filter(|dependency| dependency["kind"] != "dev")
                .map(|dependency| text(&dependency["name"]))
                .collect(),
        })
        .collect()
}

fn is_ours(name: &str) -> bool {
    name == "mainstay" || name.starts_with("mainstay-")
}

/// What is wrong with a crate's place, one sentence each.
fn complaints(name: &str, uses: &BTreeSet<String>) -> Vec<String> {
    let Some(allowed) = allowed(name) else {
        return vec![format!("{name} has no place yet: add it to `allowed` in {}", file!())];
    };
    let upward = uses.iter().filter(|used| is_ours(used) && !allowed.contains(&used.as_str()));
    let mut complaints: Vec<String> = upward
        .map(|used| format!("{name} uses {used}, which is not below it; it may use {allowed:?}"))
        .collect();
    if name == "mainstay-core" {
        let impure = uses.iter().filter(|used| !is_ours(used) && !CORE_MAY_USE.contains(&used.as_str()));
        complaints.extend(impure.map(|used| format!("{name} is pure and may not use {used}")));
    }
    complaints
}

#[test]
fn dependencies_point_down_only() {
    let complaints: Vec<String> =
        workspace().iter().flat_map(|package| complaints(&package.name, &package.uses)).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for package in workspace() {
        let manifest = std::fs::read_to_string(Path::new(&package.manifest)).expect("a manifest");
        let inherits =
            manifest.contains("\n[lints]\nworkspace = true") || manifest.contains("lints.workspace = true");
        assert!(inherits, "{} lacks `[lints] workspace = true`", package.manifest);
    }
}

#[test]
fn the_check_of_the_arrows_can_fail() {
    let uses = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let cases: [(&str, &[&str], bool); 9] = [
        ("mainstay-store", &["mainstay-core", "tokio"], true),
        ("mainstay-store", &["mainstay-guards"], false),
        ("mainstay-guards", &["mainstay-events"], false),
        ("mainstay-gateway", &["mainstay-queue"], false),
        ("mainstay", &["mainstay-server"], false),
        ("mainstay-cli", &["mainstay-server", "mainstay"], true),
        ("mainstay-cli", &["mainstay-testkit"], false),
        ("mainstay-core", &["tokio"], false),
        ("mainstay-unheard-of", &[], false),
    ];
    for (name, used, fine) in cases {
        assert_eq!(complaints(name, &uses(used)).is_empty(), fine, "{name} using {used:?}");
    }
}
