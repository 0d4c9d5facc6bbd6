//! `mainstay config check`: the configuration in force, and who said so.

use crate::arguments::Global;
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
}

impl Config {
    pub(crate) fn run(&self, global: &Global) -> Result<()> {
        let ConfigVerb::Check = self.verb;
        let config = global.load()?;
        if global.json {
            return output::print_json(&to_json(&config));
        }
        output::print(&to_toml(&config))?;
        let read =
            config.file().map_or("no configuration file".to_owned(), |file| file.display().to_string());
        eprintln!("The configuration is valid; read: {read}, environment, flags.");
        Ok(())
    }
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
        _ => entry.value.clone(),
    }
}

fn line(entry: &Entry) -> String {
    format!("{} = {}", entry.setting.key, entry.value.shown(entry.setting.kind))
}

fn source(entry: &Entry) -> String {
    entry.place.as_ref().map_or("default".to_owned(), ToString::to_string)
}

fn to_json(config: &config::Config) -> serde_json::Value {
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
