//! What can be wrong with a configuration, and the register of its codes.

use super::place::Place;
use super::setting::Setting;
use super::suggest::nearest;
use super::{SECTIONS, settings};
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
        /// Where.
        place: Place,
        /// What the parser says.
        message: String,
    },
    /// A section that nobody reads.
    #[error("{place}: section [{section}] is not known to this version")]
    UnknownSection {
        /// Where.
        place: Place,
        /// Its name.
        section: String,
    },
    /// A key that nobody reads.
    #[error("{place}: unknown key `{key}` in [{section}]")]
    UnknownKey {
        /// Where.
        place: Place,
        /// The section it stands in.
        section: &'static str,
        /// The key.
        key: String,
    },
    /// A key in front of the first section.
    #[error("{place}: `{key}` stands outside of every section")]
    OutsideSections {
        /// Where.
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
        /// Where.
        place: Place,
        /// The setting.
        setting: &'static Setting,
        /// What stands there.
        found: String,
    },
    /// The name of a section that holds a value.
    #[error("{place}: [{section}] must be a section, not {found}")]
    NotASection {
        /// Where.
        place: Place,
        /// The section.
        section: &'static str,
        /// What stands there.
        found: String,
    },
    /// A store URL that cannot be understood.
    #[error("{place}: {source}")]
    StoreUrl {
        /// Where.
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
            Self::UnknownKey { .. } | Self::OutsideSections { .. } | Self::UnknownVariable { .. } => {
                &UNKNOWN_KEY
            }
            Self::InvalidValue { .. } | Self::NotASection { .. } => &INVALID_VALUE,
            Self::StoreUrl { source, .. } => source.entry(),
        }
    }

    /// What to do about this very mistake.
    pub fn hint(&self) -> String {
        match self {
            Self::UnknownSection { section, .. } => {
                let known: Vec<_> = SECTIONS.iter().map(|section| format!("[{}]", section.name)).collect();
                let meant = nearest(section, SECTIONS.iter().map(|section| section.name));
                suggestion(meant.map(|name| format!("[{name}]")), "Known", &known)
            }
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
    INVALID_VALUE "CONFIG_INVALID_VALUE" 500 false
        "A setting has a value of the wrong kind or outside of its range."
        "Write a value that the message allows, or leave the setting out to get its default.";
}
