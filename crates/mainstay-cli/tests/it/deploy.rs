//! What is deployed with: the compose file, the unit of systemd, and the alerts, held against the program and its documents.

use crate::documents::{anchors, root};
use crate::program::Folder;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

fn deployed(file: &str) -> String {
    fs::read_to_string(root().join("deploy").join(file)).unwrap()
}

/// The blocks of a YAML file whose names stand at this depth below a line, by name. Enough of YAML for files that are ours.
fn blocks(text: &str, below: &str, depth: usize) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut name = None;
    let lines = text.lines().skip_while(|line| *line != below).skip(1);
    for line in lines.take_while(|line| line.is_empty() || line.starts_with(' ')) {
        let indent = line.len() - line.trim_start().len();
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        if indent == depth {
            let (key, rest) = line.trim().split_once(':').unwrap();
            assert!(!found.contains_key(key), "{key} is there twice");
            found.insert(key.to_owned(), rest.trim().to_owned() + "\n");
            name = Some(key.to_owned());
        } else if let Some(name) = &name {
            *found.get_mut(name).unwrap() += &format!("{line}\n");
        }
    }
    found
}

#[test]
fn compose_has_a_database_and_two_nodes_that_are_looked_after() {
    let text = deployed("compose.yaml");
    assert!(!text.contains('\t'), "YAML knows no tabs");
    let services = blocks(&text, "services:", 2);
    assert_eq!(Vec::from_iter(services.keys()), ["migrate", "node-1", "node-2", "postgres"]);
    let postgres = &services["postgres"];
    assert!(
        postgres.contains("pg_isready") && postgres.contains("- postgres:/var/lib/postgresql/data"),
        "{postgres}"
    );
    let node = text.split("x-node: &node").nth(1).unwrap().split("\nx-").next().unwrap();
    assert!(node.contains("condition: service_healthy"), "a node waits for the database: {node}");
    assert!(services["migrate"].contains(r#"command: ["migrate"]"#), "{services:?}");
    let mut ports = Vec::new();
    for name in ["node-1", "node-2"] {
        let service = &services[name];
        for part in ["<<: *node", "condition: service_completed_successfully", "healthcheck: *health"] {
            assert!(service.contains(part), "{name} lacks {part}: {service}");
        }
        let port = service.split("ports: [\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        assert!(port.starts_with("127.0.0.1:") && port.ends_with(":7420"), "{port}");
        ports.push(port);
    }
    assert_ne!(ports[0], ports[1]);
    assert!(text.contains("GET /health/ready "), "{text}");
}

#[test]
fn what_compose_and_the_container_set_are_settings() {
    let compose = deployed("compose.yaml");
    let container = deployed("Containerfile");
    let mut set = Vec::new();
    for line in compose.lines().chain(container.lines()).map(str::trim) {
        let line = line.strip_prefix("ENV ").unwrap_or(line);
        if line.starts_with("MAINSTAY__") {
            let (name, value) = line.split_once([':', '=']).unwrap();
            set.push((name.to_owned(), value.trim().trim_matches('"').to_owned()));
        }
    }
    assert!(set.len() >= 3, "{set:?}");
    let set: Vec<(&str, &str)> = set.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let folder = Folder::new();
    let checked = folder.run_with(&set, "config check");
    assert_eq!(checked.code, 0, "{checked:?}");
    for (name, _) in set {
        assert!(checked.stdout.contains(name), "{name} is no setting: {}", checked.stdout);
    }
    for verb in ["migrate", "serve"] {
        assert_eq!(folder.run(&format!("{verb} --help")).code, 0);
    }
}

#[test]
fn the_unit_of_systemd_is_one_and_starts_what_there_is() {
    let unit = deployed("systemd/mainstay.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let arguments = start.strip_prefix("/usr/local/bin/mainstay ").unwrap();
    let folder = Folder::new();
    assert_eq!(folder.run(&format!("{arguments} --help")).code, 0, "{start}");
    for section in ["[Unit]", "[Service]", "[Install]"] {
        assert_eq!(unit.lines().filter(|line| *line == section).count(), 1, "{section}");
    }
    // What is under way may take as long as the server gives it.
    let seconds = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    let grace_ms = mainstay_server::defaults::SHUTDOWN_GRACE_MS;
    assert!(seconds.parse::<u64>().unwrap() * 1_000 > grace_ms, "{seconds} s, and a grace of {grace_ms} ms");
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return;
    }
    // It wants the program to be where the unit says.
    folder
        .write("mainstay.service", &unit.replace("/usr/local/bin/mainstay", env!("CARGO_BIN_EXE_mainstay")));
    let file = folder.path().join("mainstay.service");
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(file).output().unwrap();
    let told = String::from_utf8_lossy(&verified.stderr);
    let ours: Vec<&str> = told.lines().filter(|line| line.contains("mainstay.service")).collect();
    assert!(ours.is_empty(), "{told}");
}

#[test]
fn every_alert_names_the_section_that_says_what_to_do() {
    let sections = anchors(&fs::read_to_string(root().join("docs/operations/failures.md")).unwrap());
    let rules = deployed("prometheus/rules.yml");
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() >= 12, "{rules}");
    for alert in alerts {
        let name = alert.lines().next().unwrap();
        let section =
            alert.lines().find_map(|line| line.trim().strip_prefix("runbook: docs/operations/failures.md#"));
        let section = section.unwrap_or_else(|| panic!("{name} says nowhere what to do"));
        assert!(
            sections.iter().any(|known| known == section),
            "{name} leads to {section}, which is not there"
        );
    }
}
