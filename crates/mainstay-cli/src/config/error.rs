//! What can be wrong with a configuration, and the register of its codes.

use super::place::Place;
use super::setting::Setting;
use super::suggest::nearest;
use super::table::{Collection, Field};
use super::{COLLECTIONS, SECTIONS, settings};
use mainstay::core::codes::ErrorCode;

/// A mistake in the configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file that was asked for is not there.
    #[error("{file}: there is no such file")]
    NotFound {
        /// The file.
        file: String,
    },
    /// The file is there and cannot be read.
    #[error("{file}: cannot be read: {reason}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why not.
        reason: String,
    },
    /// The file is not TOML.
    #[error("{place}: {message}")]
    Syntax {
        /// Line and column.
        place: Place,
        /// What the parser says.
        message: String,
    },
    /// A section that nobody reads.
    #[error("{place}: section [{section}] is not known to this version")]
    UnknownSection {
        /// Line and column.
        place: Place,
        /// Its name.
        section: String,
    },
    /// A key that nobody reads.
    #[error("{place}: unknown key `{key}` in [{section}]")]
    UnknownKey {
        /// Line and column.
        place: Place,
        /// The section it stands in.
        section: &'static str,
        /// The key.
        key: String,
    },
    /// A key in front of the first section.
    #[error("{place}: `{key}` stands outside of every section")]
    OutsideSections {
        /// Line and column.
        place: Place,
        /// The key.
        key: String,
    },
    /// An environment variable with our prefix that nobody reads.
    #[error("environment variable {name} is not known to this version")]
    UnknownVariable {
        /// Its name.
        name: String,
    },
    /// A value that the setting does not take.
    #[error("{place}: {} must be {}, not {found}", setting.name(), setting.kind)]
    InvalidValue {
        /// Line and column.
        place: Place,
        /// The setting.
        setting: &'static Setting,
        /// What stands there.
        found: String,
    },
    /// The name of a section that holds a value.
    #[error("{place}: [{section}] must be a section, not {found}")]
    NotASection {
        /// Line and column.
        place: Place,
        /// The section.
        section: String,
        /// What stands there.
        found: String,
    },
    /// A name that a table cannot have.
    #[error(
        "{place}: {name:?} is no name: it must be 1 to {} letters, digits or . _ - : /",
        mainstay::work::MAX_NAME_BYTES
    )]
    BadName {
        /// Line and column.
        place: Place,
        /// The name.
        name: String,
    },
    /// A name that belongs to the platform.
    #[error("{place}: {name}: names under \"mainstay.\" are reserved for the platform")]
    ReservedName {
        /// Line and column.
        place: Place,
        /// The table or the field.
        name: String,
    },
    /// A key of a table that nobody reads.
    #[error("{place}: unknown key `{key}` in [{table}]")]
    UnknownField {
        /// Line and column.
        place: Place,
        /// The table.
        table: String,
        /// The key.
        key: String,
        /// The keys it has.
        fields: &'static [Field],
    },
    /// A table lacks what it cannot do without.
    #[error("{place}: [{table}] lacks `{}`, which must be {}", field.key, field.kind)]
    MissingField {
        /// Line and column.
        place: Place,
        /// The table.
        table: String,
        /// What is missing.
        field: &'static Field,
    },
    /// A value that a field does not take.
    #[error("{place}: {name} must be {}, not {found}", field.kind)]
    InvalidField {
        /// Line and column.
        place: Place,
        /// The field, with its table.
        name: String,
        /// The field.
        field: &'static Field,
        /// What stands there.
        found: String,
    },
    /// A table that cannot be used as it is.
    #[error("{place}: {name}: {reason}")]
    Refused {
        /// Line and column.
        place: Place,
        /// The table.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A range of addresses that cannot be understood.
    #[error("{place}: {}: {source}", setting.name())]
    Range {
        /// Line and column.
        place: Place,
        /// The setting.
        setting: &'static Setting,
        /// What is wrong with it.
        source: mainstay::work::egress::RangeError,
    },
    /// A store URL that cannot be understood.
    #[error("{place}: {source}")]
    StoreUrl {
        /// Line and column.
        place: Place,
        /// What is wrong with it.
        source: mainstay::store::Error,
    },
}

impl Error {
    /// The entry of this kind of mistake in the register of codes.
    pub fn entry(&self) -> &'static ErrorCode {
        match self {
            Self::NotFound { .. } => &NOT_FOUND,
            Self::Unreadable { .. } => &UNREADABLE,
            Self::Syntax { .. } => &SYNTAX_INVALID,
            Self::UnknownSection { .. } => &UNKNOWN_SECTION,
            Self::UnknownKey { .. }
            | Self::UnknownField { .. }
            | Self::OutsideSections { .. }
            | Self::UnknownVariable { .. } => &UNKNOWN_KEY,
            Self::MissingField { .. } => &MISSING_KEY,
            Self::InvalidValue { .. }
            | Self::InvalidField { .. }
            | Self::BadName { .. }
            | Self::Refused { .. }
            | Self::Range { .. }
            | Self::NotASection { .. } => &INVALID_VALUE,
            Self::ReservedName { .. } => mainstay::core::names::reserved_code(),
            Self::StoreUrl { source, .. } => source.entry(),
        }
    }

    /// What to do about this very mistake.
    pub fn hint(&self) -> String {
        match self {
            Self::UnknownSection { section, .. } => {
                let named = |collection: &&Collection| format!("{}.NAME", collection.name);
                let known = SECTIONS.iter().map(|section| section.name.to_owned());
                let known: Vec<_> =
                    known.chain(COLLECTIONS.iter().map(named)).map(|name| format!("[{name}]")).collect();
                let names = SECTIONS.iter().map(|section| section.name);
                let meant =
                    nearest(section, names.chain(COLLECTIONS.iter().map(|collection| collection.name)));
                suggestion(meant.map(|name| format!("[{name}]")), "Known", &known)
            }
            Self::UnknownField { key, fields, .. } => {
                let keys: Vec<_> = fields.iter().map(|field| format!("`{}`", field.key)).collect();
                suggestion(nearest(&format!("`{key}`"), keys.iter().cloned()), "It has", &keys)
            }
            Self::MissingField { field, .. } => format!("Write `{} = …`. {}", field.key, field.doc),
            Self::InvalidField { field: Field { default: Some(default), .. }, .. } => {
                format!("Leave it out to get the default: {default}.")
            }
            Self::InvalidField { field, .. } => field.doc.to_owned(),
            Self::UnknownKey { section, key, .. } => {
                let keys: Vec<_> = settings().filter(|known| known.section == *section).map(quoted).collect();
                suggestion(nearest(&format!("`{key}`"), keys.iter().cloned()), "It has", &keys)
            }
            Self::OutsideSections { key, .. } => match settings().find(|known| known.key == key) {
                Some(known) => format!("Put it below a line that says [{}].", known.section),
                None => UNKNOWN_KEY.remedy.to_owned(),
            },
            Self::UnknownVariable { name } => {
                let nearest = nearest(name, settings().map(Setting::variable));
                nearest.map_or(UNKNOWN_KEY.remedy.to_owned(), |meant| format!("Did you mean {meant}?"))
            }
            Self::InvalidValue { setting, .. } => {
                format!("Leave it out to get the default, {}.", setting.default)
            }
            Self::BadName { .. } => "Choose another name: it is how work refers to it.".to_owned(),
            Self::NotASection { section, .. } => format!("Write [{section}] on a line of its own."),
            other => other.entry().remedy.to_owned(),
        }
    }

    /// Where the mistake stands, for sorting.
    pub(super) fn place(&self) -> Option<&Place> {
        match self {
            Self::NotFound { .. } | Self::Unreadable { .. } | Self::UnknownVariable { .. } => None,
            Self::Syntax { place, .. }
            | Self::UnknownSection { place, .. }
            | Self::UnknownKey { place, .. }
            | Self::OutsideSections { place, .. }
            | Self::InvalidValue { place, .. }
            | Self::NotASection { place, .. }
            | Self::BadName { place, .. }
            | Self::ReservedName { place, .. }
            | Self::UnknownField { place, .. }
            | Self::MissingField { place, .. }
            | Self::InvalidField { place, .. }
            | Self::Refused { place, .. }
            | Self::Range { place, .. }
            | Self::StoreUrl { place, .. } => Some(place),
        }
    }
}

fn quoted(setting: &Setting) -> String {
    format!("`{}`", setting.key)
}

fn suggestion(meant: Option<String>, introduction: &str, known: &[String]) -> String {
    let known = known.join(", ");
    let question = meant.map_or(String::new(), |meant| format!("Did you mean {meant}? "));
    format!("{question}{introduction}: {known}.")
}

mainstay::core::codes! {
    /// Every code that a configuration can be refused with, besides those of store URLs.
    pub static CODES:
    NOT_FOUND "CONFIG_NOT_FOUND" 500 false
        "The configuration file named by --config does not exist."
        "Correct the path, or leave --config out: ./mainstay.toml is read when it exists, and everything has a default.";
    UNREADABLE "CONFIG_UNREADABLE" 500 false
        "The configuration file exists but cannot be read."
        "Check that it is a file, at most 1 MiB large, and that this user may read it.";
    SYNTAX_INVALID "CONFIG_SYNTAX_INVALID" 500 false
        "The configuration file is not valid TOML."
        "Mend the line that is named; text stands in double quotes, and every line is `key = value` or `[section]`.";
    UNKNOWN_SECTION "CONFIG_UNKNOWN_SECTION" 500 false
        "The configuration has a section that this version does not know."
        "Correct its name, remove it, or use the version of Mainstay it was written for.";
    UNKNOWN_KEY "CONFIG_UNKNOWN_KEY" 500 false
        "The configuration file or the environment sets something that this version does not know."
        "Correct the name or remove it; docs/reference/configuration.md lists every key and variable.";
    MISSING_KEY "CONFIG_MISSING_KEY" 500 false
        "A table of the configuration lacks a key that it cannot do without."
        "Add the key that the message names; docs/reference/configuration.md shows an example of each table.";
    INVALID_VALUE "CONFIG_INVALID_VALUE" 500 false
        "A setting has a value of the wrong kind or outside of its range."
        "Write a value that the message allows, or leave the setting out to get its default.";
}
