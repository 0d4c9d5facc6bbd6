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
    // Over TCP: its image answers on its own socket before it is ready, and nodes come back only to a database that does.
    for part in [r#""pg_isready", "-h", "127.0.0.1""#, "<<: *confined", "- postgres:/var/lib/postgresql/data"]
    {
        assert!(postgres.contains(part), "postgres lacks {part}: {postgres}");
    }
    assert!(shared(&text, "confined").contains("restart: unless-stopped"), "a service stays down: {text}");
    let node = shared(&text, "node");
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

/// A block of compose that services take over by its name.
fn shared<'a>(text: &'a str, name: &str) -> &'a str {
    let start = format!("x-{name}: &{name}\n");
    let block = text.split(&start).nth(1).unwrap_or_else(|| panic!("compose has no {start}"));
    block.split("\n\n").next().unwrap()
}

#[test]
fn containers_write_nowhere_and_have_no_rights() {
    let text = deployed("compose.yaml");
    let confined = shared(&text, "confined");
    for line in ["read_only: true", "cap_drop: [ALL]", r#"security_opt: ["no-new-privileges:true"]"#] {
        assert!(confined.lines().any(|found| found.trim() == line), "{line} is missing: {confined}");
    }
    assert!(shared(&text, "node").starts_with("  <<: *confined\n"));
    for (name, service) in blocks(&text, "services:", 2) {
        let is_confined = service.contains("<<: *confined\n") || service.contains("<<: *node\n");
        assert!(is_confined, "{name} is not confined: {service}");
    }
    // Nothing gives back what is taken there, or takes over the host.
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let key = line.split(':').next().unwrap();
        let gives =
            ["privileged", "cap_add", "devices", "network_mode", "pid", "ipc", "userns_mode"].contains(&key);
        let is_again = ["read_only", "cap_drop", "security_opt"].contains(&key) && !confined.contains(line);
        assert!(!gives && !is_again && !line.contains("docker.sock"), "{line}");
    }
    // The users are those of the images.
    let container = deployed("Containerfile");
    let user = container.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    let (uid, gid) = user.split_once(':').unwrap();
    let home = format!("/var/lib/mainstay:uid={uid},gid={gid},mode=0700");
    assert!(shared(&text, "node").contains(&home), "{home}");
}

const PASSWORD: &str = "${POSTGRES_PASSWORD:?must be set, to letters and digits}";

#[test]
fn compose_has_no_password_of_its_own() {
    let text = deployed("compose.yaml");
    assert_eq!(text.matches(PASSWORD).count(), 2, "the nodes and the database take the same one");
    assert_eq!(text.matches("${").count(), 2, "a variable with a default: {text}");
    for line in text.lines().filter(|line| line.contains("PASSWORD:") || line.contains("postgres://")) {
        assert!(line.contains(PASSWORD) || line.trim().starts_with('#'), "{line}");
    }
    let kept_out = fs::read_to_string(root().join(".gitignore")).unwrap();
    assert!(kept_out.lines().any(|line| line == "/deploy/.env"), "a password would be committed");
}

#[test]
fn what_compose_and_the_container_set_are_settings() {
    let compose = deployed("compose.yaml").replace(PASSWORD, "secret");
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
    // It is started again until a database is back, and not when its configuration is wrong.
    let wrong = folder.run("serve --config nowhere.toml").code;
    let restart = [format!("RestartPreventExitStatus={wrong}"), "StartLimitIntervalSec=0".to_owned()];
    for line in restart.iter().map(String::as_str).chain(["StateDirectoryMode=0700", "UMask=0077"]) {
        assert!(unit.lines().any(|found| found == line), "the unit lacks {line}");
    }
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
fn what_the_unit_needs_is_made_before_it_is_started() {
    let unit = deployed("systemd/mainstay.service");
    let page = fs::read_to_string(root().join("docs/operations/deploy.md")).unwrap();
    let commands: Vec<&str> = page.split("```\n").skip(1).step_by(2).flat_map(str::lines).collect();
    let at = |part: &str| {
        commands.iter().position(|line| line.contains(part)).unwrap_or_else(|| panic!("nothing does {part}"))
    };
    let words = unit.split(|c: char| c == '=' || c == '-' || c.is_whitespace());
    let files: Vec<&str> = words.filter(|word| word.starts_with("/etc/mainstay/")).collect();
    assert_eq!(files, ["/etc/mainstay/mainstay.toml", "/etc/mainstay/environment"]);
    let start = at("systemctl enable --now mainstay");
    for file in files {
        assert!(at(&format!("/dev/null {file}")) < start, "{file} is not there when it starts");
    }
    assert!(at("as_mainstay token create") < start, "a SQLite file has one owner");
    // Verbs are run as the unit runs the server.
    for line in unit.lines() {
        let name = line.split('=').next().unwrap();
        if ["User", "UMask", "StateDirectory", "StateDirectoryMode", "WorkingDirectory", "EnvironmentFile"]
            .contains(&name)
        {
            assert!(page.contains(&format!("-p {line} ")), "verbs are run without {line}");
        }
    }
}

#[test]
fn a_store_is_not_sent_along_when_an_image_is_built() {
    let kept_out = fs::read_to_string(root().join(".dockerignore")).unwrap();
    for pattern in [".git", "target", "**/*.db", "**/*.db-*"] {
        assert!(kept_out.lines().any(|line| line == pattern), "{pattern} is sent along");
    }
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

/// Failures that no figure tells of, or that another alert tells of already.
const WITHOUT_ALERT: [(&str, &str); 6] = [
    (
        "a-projection-cannot-go-on",
        "MainstayProjectionStuck tells of it, as soon as there is an event that it lacks",
    ),
    ("a-publication-was-not-delivered", "it is a dead letter"),
    ("somebody-is-denied", "a limit does what it is for"),
    ("admin-calls-are-refused-with-429", "whoever is refused is told so"),
    ("the-audit-does-not-verify", "it is seen when somebody verifies it"),
    ("nobody-can-log-in", "whoever cannot knows it"),
];

#[test]
fn every_failure_has_an_alert_or_a_reason_for_none() {
    let page = fs::read_to_string(root().join("docs/operations/failures.md")).unwrap();
    let headings: Vec<&str> = page.lines().filter(|line| line.starts_with("## ")).collect();
    let failures = anchors(&headings.join("\n"));
    let rules = deployed("prometheus/rules.yml");
    for failure in &failures {
        let has_alert = rules.lines().any(|line| line.ends_with(&format!("failures.md#{failure}")));
        let has_reason = WITHOUT_ALERT.iter().any(|(known, _)| known == failure);
        assert!(has_alert != has_reason, "{failure}: an alert {has_alert}, a reason for none {has_reason}");
    }
    for (known, _) in WITHOUT_ALERT {
        assert!(failures.iter().any(|failure| failure == known), "{known} is no failure any more");
    }
}

/// `promtool test rules` says nothing about alerts that it was not asked about.
#[test]
fn every_alert_is_tried() {
    let tried = fs::read_to_string(root().join(".ci/rules_test.yml")).unwrap();
    for alert in deployed("prometheus/rules.yml").split("- alert: ").skip(1) {
        let name = alert.lines().next().unwrap();
        assert!(
            tried.contains(&format!("alertname=\"{name}\"")),
            "{name} is not tried in .ci/rules_test.yml"
        );
    }
}
