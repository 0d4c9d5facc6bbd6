//! The configuration: `mainstay.toml`, overridden by the environment, overridden by flags.
//!
//! - `setting`: what a setting is
//! - `server`, `access`, `store`, `egress`, `publications`, `dead_letters`, `health`, `tracing`: the settings of `[server]` and so on; each further section is a file
//!   like them and a line in [`SECTIONS`]
//! - `table`: what a named table is
//! - `pools`, `functions`, `targets`, `crons`, `limits`, `circuits`: the tables `[pools.NAME]` and so on; each further kind is a file
//!   like them and a line in [`COLLECTIONS`]
//! - `endpoint`: what functions and targets have in common
//! - `file`, `environment`: the places that values come from
//! - `place`: where a value was said
//! - `error`: what can be wrong, and its codes
//! - `suggest`: what somebody may have meant

pub mod access;
pub mod circuits;
pub mod crons;
pub mod dead_letters;
pub mod egress;
pub mod endpoint;
mod environment;
mod error;
mod file;
pub mod functions;
pub mod health;
pub mod limits;
mod place;
pub mod pools;
pub mod publications;
pub mod server;
mod setting;
pub mod store;
mod suggest;
pub mod table;
pub mod targets;
pub mod tracing;
pub mod work;

pub use error::{CODES, Error};
pub use place::Place;
pub use setting::{Kind, Section, Setting, Value};
pub use table::{Collection, Table};

use circuits::Circuit;
use functions::Function;
use limits::Limit;
use mainstay::work::{Cron, Pool};
use setting::Fault;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use targets::Target;

/// Every section this version knows.
pub static SECTIONS: &[&Section] = &[
    &server::SECTION,
    &access::SECTION,
    &store::SECTION,
    &work::SECTION,
    &egress::SECTION,
    &publications::SECTION,
    &dead_letters::SECTION,
    &health::SECTION,
    &tracing::SECTION,
];

/// Every kind of named table this version knows.
pub static COLLECTIONS: &[&Collection] = &[
    &pools::COLLECTION,
    &functions::COLLECTION,
    &targets::COLLECTION,
    &crons::COLLECTION,
    &limits::COLLECTION,
    &circuits::COLLECTION,
];

/// Every setting this version knows.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.iter().flat_map(|section| section.settings.iter().copied())
}

/// Where the configuration is to be taken from.
#[derive(Debug, Default)]
pub struct Sources {
    /// The file, when one was named.
    pub file: Option<PathBuf>,
    /// The environment.
    pub environment: Vec<(OsString, OsString)>,
    /// What flags say.
    pub flags: Vec<(&'static Setting, String)>,
}

/// A configuration in which everything is allowed.
#[derive(Debug)]
pub struct Config {
    file: Option<PathBuf>,
    entries: Vec<Entry>,
    tables: Vec<Table>,
    pools: Vec<Pool>,
    functions: Vec<Function>,
    targets: Vec<Target>,
    crons: Vec<Cron>,
    limits: Vec<Limit>,
    circuits: Vec<Circuit>,
}

/// A setting, its value and who said so.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The setting.
    pub setting: &'static Setting,
    /// The value in force.
    pub value: Value,
    /// Where it was said; nowhere means that it is the default.
    pub place: Option<Place>,
}

impl Config {
    /// Reads and checks the configuration. All mistakes are told at once, in the order in which they stand.
    pub fn load(sources: Sources) -> Result<Self, Vec<Error>> {
        let mut draft = Draft::default();
        let found = file::find(sources.file.as_deref()).map_err(|problem| vec![problem])?;
        if let Some((path, bytes)) = &found {
            file::apply(path, bytes, &mut draft);
        }
        environment::apply(sources.environment.into_iter(), &mut draft);
        for (setting, text) in sources.flags {
            let place = Place::Flag(setting.flag.expect("only a setting with a flag is set by one"));
            draft.take(setting, setting.kind.read(&text), place, || format!("the text {text:?}"));
        }
        draft.finish(found.map(|(path, _)| path))
    }

    /// Reads a configuration from the text of a file alone, without environment and flags.
    pub fn parse(text: &[u8]) -> Result<Self, Vec<Error>> {
        let mut draft = Draft::default();
        file::apply(Path::new(file::USUAL), text, &mut draft);
        draft.finish(None)
    }

    /// The file that was read, if any.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Every setting with its value.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of a setting.
    pub fn entry(&self, setting: &Setting) -> &Entry {
        let same =
            |entry: &&Entry| (entry.setting.section, entry.setting.key) == (setting.section, setting.key);
        self.entries.iter().find(same).expect("every setting is listed in its section")
    }

    /// The value of a setting that is text.
    pub fn text(&self, setting: &Setting) -> &str {
        match &self.entry(setting).value {
            Value::Text(text) => text,
            other => unreachable!("{} is checked to be text, not {other}", setting.name()),
        }
    }

    /// The value of a setting that is a number; the ranges begin at 0 or above.
    pub fn number(&self, setting: &Setting) -> u64 {
        match self.entry(setting).value {
            Value::Integer(number) => number.unsigned_abs(),
            ref other => unreachable!("{} is checked to be a number, not {other}", setting.name()),
        }
    }

    /// The value of a setting that is a list.
    pub fn list(&self, setting: &Setting) -> &[String] {
        match &self.entry(setting).value {
            Value::List(texts) => texts,
            other => unreachable!("{} is checked to be a list, not {other}", setting.name()),
        }
    }

    /// Every named table, as it was written.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// The pools that are to be there.
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// The functions that are HTTP endpoints.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The contexts that events are delivered to.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The crons that are to be there.
    pub fn crons(&self) -> &[Cron] {
        &self.crons
    }

    /// The limits that are to be there.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The circuits that are to be set.
    pub fn circuits(&self) -> &[Circuit] {
        &self.circuits
    }

    /// What is wrong with a table, for a reason that only shows when it is put to use.
    pub fn refusal(&self, collection: &Collection, name: &str, reason: impl ToString) -> Error {
        let table =
            self.tables.iter().find(|table| table.collection.name == collection.name && table.name == name);
        let place = table.map_or(Place::Flag("--config"), |table| table.place.clone());
        Error::Refused { place, name: format!("{}.{name}", collection.name), reason: reason.to_string() }
    }

    /// The value of a setting that is true or false.
    pub fn flag(&self, setting: &Setting) -> bool {
        match self.entry(setting).value {
            Value::Boolean(flag) => flag,
            ref other => unreachable!("{} is checked to be true or false, not {other}", setting.name()),
        }
    }
}

/// A configuration in the making.
#[derive(Default)]
struct Draft {
    said: Vec<Entry>,
    tables: Vec<Table>,
    problems: Vec<Error>,
}

impl Draft {
    /// Takes a value, or notes what is wrong with it. What is taken later overrides.
    fn take(
        &mut self,
        setting: &'static Setting,
        value: Option<Value>,
        place: Place,
        found: impl Fn() -> String,
    ) {
        let checked = value.as_ref().map_or(Err(Fault::NotAllowed), |value| setting.kind.check(value));
        match (checked, value) {
            (Ok(()), Some(value)) => self.said.push(Entry { setting, value, place: Some(place) }),
            (Err(Fault::Url(source)), _) => self.problems.push(Error::StoreUrl { place, source }),
            (Err(Fault::Range(source)), _) => self.problems.push(Error::Range { place, setting, source }),
            // What stands where a secret belongs may be one.
            _ if setting.kind.is_private() => {
                let found = "something else".to_owned();
                self.problems.push(Error::InvalidValue { place, setting, found });
            }
            _ => self.problems.push(Error::InvalidValue { place, setting, found: found() }),
        }
    }

    fn finish(mut self, file: Option<PathBuf>) -> Result<Config, Vec<Error>> {
        self.tables.sort_by(|one, other| one.place.cmp(&other.place));
        let (mut pools, mut functions, mut targets, mut crons) = Default::default();
        let (mut limits, mut circuits) = Default::default();
        if self.problems.is_empty() {
            pools = self.read(&pools::COLLECTION, pools::read);
            functions = self.read(&functions::COLLECTION, functions::read);
            targets = self.read(&targets::COLLECTION, targets::read);
            crons = self.read(&crons::COLLECTION, crons::read);
            limits = self.read(&limits::COLLECTION, limits::read);
            circuits = self.read(&circuits::COLLECTION, circuits::read);
        }
        let entry = |setting: &'static Setting| {
            let said = self.said.iter().rev().find(|entry| std::ptr::eq(entry.setting, setting));
            said.cloned().unwrap_or_else(|| Entry { setting, value: setting.default.clone(), place: None })
        };
        let entries = settings().map(entry).collect();
        let tables = self.tables;
        let config = Config { file, entries, tables, pools, functions, targets, crons, limits, circuits };
        if self.problems.is_empty() && !(config.functions.is_empty() && config.targets.is_empty()) {
            let client = endpoint::client(egress::rules(&config));
            let functions = config.functions.iter().filter_map(|function| function.check(&client).err());
            let targets = config.targets.iter().filter_map(|target| target.check(&client).err());
            self.problems.extend(functions.chain(targets));
        }
        if !self.problems.is_empty() {
            self.problems.sort_by(|one, other| one.place().cmp(&other.place()));
            return Err(self.problems);
        }
        Ok(config)
    }

    /// What the tables of a kind describe.
    fn read<T>(&mut self, collection: &Collection, read: impl Fn(&Table) -> Result<T, String>) -> Vec<T> {
        let mut made = Vec::new();
        for table in self.tables.iter().filter(|table| table.collection.name == collection.name) {
            match read(table) {
                Ok(one) => made.push(one),
                Err(reason) => {
                    // A reason begins with the field that it is about.
                    let field = reason.split_once(": ").and_then(|(key, _)| table.given.entry(key));
                    let place = field.map_or(&table.place, |entry| &entry.place).clone();
                    let name = table.full_name();
                    self.problems.push(Error::Refused { place, name, reason });
                }
            }
        }
        made
    }
}

#[cfg(test)]
mod tests;
