//! `mainstay config`: the configuration in force, and who said so.

use crate::arguments::Global;
use crate::client::Call;
use crate::config::{self, Entry};
use crate::{Result, output};
use clap::{Args, Subcommand};
use serde_json::{Map, json};

/// Look at the configuration
#[derive(Debug, Args)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct Config {
    #[command(subcommand)]
    verb: ConfigVerb,
}

#[derive(Debug, Subcommand)]
enum ConfigVerb {
    /// Check the configuration and print what is in force
    ///
    /// Reads mainstay.toml, the environment and the flags as every other verb does, and prints every setting with
    /// its value and where that comes from. Passwords are masked. The store is not opened.
    Check,
    /// Show the configuration that a running server works with
    ///
    /// Asks the server, which needs the token of an admin (MAINSTAY_TOKEN or --token). Secrets are masked.
    Show,
}

impl Config {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        match self.verb {
            ConfigVerb::Check => check(global),
            ConfigVerb::Show => show(global).await,
        }
    }
}

async fn show(global: &Global) -> Result<()> {
    let why = "no server holds the store; `config check` shows what one would work with";
    let told: serde_json::Value = global.send_to_server(why, Call::new("GET /admin/config", &[])).await?;
    if global.json {
        return output::print_json(&told);
    }
    output::print(&running(&told["configuration"]))
}

/// The settings of a server, as lines of the file.
fn running(configuration: &serde_json::Value) -> String {
    let mut text = String::new();
    for (section, settings) in configuration["settings"].as_object().into_iter().flatten() {
        let settings = settings.as_object().into_iter().flatten();
        let (plain, tables): (Vec<_>, Vec<_>) =
            settings.partition(|(_, entry)| entry.get("source").is_some());
        if !plain.is_empty() {
            text += &format!("[{section}]\n");
        }
        for (key, entry) in plain {
            text += &format!("{key} = {}  # {}\n", entry["value"], said(entry));
        }
        for (name, fields) in tables {
            text += &format!("[{section}.{name}]\n");
            for (key, entry) in fields.as_object().into_iter().flatten() {
                text += &format!("{key} = {}  # {}\n", entry["value"], said(entry));
            }
        }
    }
    crate::shown::plain_lines(&text)
}

fn said(entry: &serde_json::Value) -> &str {
    entry["place"].as_str().or(entry["source"].as_str()).unwrap_or("default")
}

fn check(global: &Global) -> Result<()> {
    let config = global.load()?;
    if global.json {
        return output::print_json(&to_json(&config));
    }
    output::print(&to_toml(&config))?;
    let read = config.file().map_or("no configuration file".to_owned(), |file| file.display().to_string());
    eprintln!("The configuration is valid; read: {read}, environment, flags.");
    Ok(())
}

fn to_toml(config: &config::Config) -> String {
    let mut text = String::new();
    for section in config::SECTIONS {
        let entries = config.entries().iter().filter(|entry| entry.setting.section == section.name);
        let lines: Vec<_> = entries.map(|entry| (line(entry), source(entry))).collect();
        let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
        let gap = if text.is_empty() { "" } else { "\n" };
        text += &format!("{gap}[{}]\n", section.name);
        text.extend(lines.iter().map(|(line, source)| format!("{line:<width$}  # {source}\n")));
    }
    for table in config.tables() {
        let lines = table.given.entries().iter().map(|entry| {
            let value =
                toml::Value::try_from(shown(entry)).map_or("…".to_owned(), |value| value.to_string());
            (format!("{} = {value}", entry.field.key), entry.place.to_string())
        });
        let lines: Vec<_> = lines.collect();
        let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
        text += &format!("\n[{}]\n", table.full_name());
        text.extend(lines.iter().map(|(line, place)| format!("{line:<width$}  # {place}\n")));
    }
    text
}

/// The value of a field, without what is nobody's business.
fn shown(entry: &config::table::Entry) -> serde_json::Value {
    match entry.field.kind {
        config::table::FieldKind::Secret => config::endpoint::shown(&entry.value),
        _ if entry.field.key == "url" => {
            entry.value.as_str().map_or(serde_json::Value::Null, |url| masked(url).into())
        }
        _ => output::masked(&entry.value),
    }
}

/// A URL without what may be a password or a key in it.
fn masked(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?***"));
    let end = rest.find('/').unwrap_or(rest.len());
    let rest = match rest[..end].rfind('@') {
        Some(at) => format!("***{}", &rest[at..]),
        None => rest.to_owned(),
    };
    let gap = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{gap}{rest}{query}")
}

fn line(entry: &Entry) -> String {
    format!("{} = {}", entry.setting.key, entry.value.shown(entry.setting.kind))
}

fn source(entry: &Entry) -> String {
    entry.place.as_ref().map_or("default".to_owned(), ToString::to_string)
}

/// Every setting with its value and who said so, secrets masked.
pub(crate) fn to_json(config: &config::Config) -> serde_json::Value {
    let mut sections = Map::new();
    for entry in config.entries() {
        let section = sections.entry(entry.setting.section).or_insert_with(|| json!({}));
        section[entry.setting.key] = json!({
            "value": entry.value.shown(entry.setting.kind).to_json(),
            "source": entry.place.as_ref().map_or("default", config::Place::kind),
            "place": entry.place.as_ref().map(ToString::to_string),
        });
    }
    for table in config.tables() {
        let collection = sections.entry(table.collection.name).or_insert_with(|| json!({}));
        let mut fields = Map::new();
        for entry in table.given.entries() {
            let place = entry.place.to_string();
            let field = json!({ "value": shown(entry), "source": entry.place.kind(), "place": place });
            fields.insert(entry.field.key.to_owned(), field);
        }
        collection[&table.name] = fields.into();
    }
    json!({ "file": config.file().map(|file| file.display().to_string()), "settings": sections })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_passwords_and_keys() {
        for (url, shown) in [
            ("http://127.0.0.1:9000/send", "http://127.0.0.1:9000/send"),
            ("https://ada:secret@example.com/hook", "https://***@example.com/hook"),
            ("https://example.com/hook?key=secret", "https://example.com/hook?***"),
            ("https://example.com/a@b", "https://example.com/a@b"),
            ("https://u:p@example.com?x", "https://***@example.com?***"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(masked(url), shown);
        }
    }

    #[test]
    fn a_running_configuration_reads_as_a_file_does() {
        let told = json!({"file": null, "settings": {
            "server": {"listen": {"value": "127.0.0.1:7420", "source": "default", "place": null}},
            "pools": {"mail": {"maxParallelism": {"value": 3, "source": "file", "place": "mainstay.toml:4"}}}}});
        assert_eq!(
            running(&told),
            "[pools.mail]\nmaxParallelism = 3  # mainstay.toml:4\n[server]\nlisten = \"127.0.0.1:7420\"  # default\n"
        );
    }
}
