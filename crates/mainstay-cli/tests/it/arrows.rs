//! Dependencies between our crates point down only. `LAYERS` has the order.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Crates of other people that the pure core may use: none that does IO, keeps time or makes random numbers.
const CORE_MAY_USE: [&str; 5] = ["jiff", "serde", "serde_json", "thiserror", "uuid"];

/// Our crates from the bottom up. A crate uses crates of the layers below its own.
const LAYERS: [&[&str]; 13] = [
    &["mainstay-core"],
    &["mainstay-api"],
    &["mainstay-store"],
    &["mainstay-events", "mainstay-guards"],
    &["mainstay-work", "mainstay-gateway"],
    &["mainstay-workflows", "mainstay-queue"],
    &["mainstay-flows"],
    &["mainstay-runtime"],
    &["mainstay-server"],
    &["mainstay"],
    &["order-management"],
    &["mainstay-demo", "mainstay-bench"],
    &["mainstay-cli"],
];

/// Crates that a crate may use; `None` for a crate that has no layer.
fn allowed(from: &str) -> Option<Vec<&'static str>> {
    match from {
        // Used from tests only; the layers above the store do not depend on it.
        "mainstay-testkit" => Some(vec!["mainstay-core", "mainstay-api", "mainstay-store"]),
        // Calls parsers of every layer, and no crate depends on it.
        "mainstay-fuzz" => Some(LAYERS.concat()),
        // An application depends on the facade alone.
        "order-management" => Some(vec!["mainstay"]),
        _ => {
            let layer = LAYERS.iter().position(|layer| layer.contains(&from))?;
            Some(LAYERS[..layer].concat())
        }
    }
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

/// Violations of a crate's layer, one sentence each.
fn complaints(name: &str, uses: &BTreeSet<String>) -> Vec<String> {
    let Some(allowed) = allowed(name) else {
        return vec![format!("{name} has no layer: add it to `LAYERS` in {}", file!())];
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
        ("mainstay-server", &["mainstay"], false),
        ("mainstay-cli", &["mainstay-server", "mainstay"], true),
        ("mainstay-cli", &["mainstay-testkit"], false),
        ("mainstay-core", &["tokio"], false),
        ("mainstay-unheard-of", &[], false),
    ];
    for (name, used, fine) in cases {
        assert_eq!(complaints(name, &uses(used)).is_empty(), fine, "{name} using {used:?}");
    }
}
