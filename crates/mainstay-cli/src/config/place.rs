//! Where a value was said.

use std::fmt;

/// Where the value of a setting, or a mistake, stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the configuration file; line and column count from 1.
    File {
        /// The file.
        file: String,
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
    },
    /// In an environment variable.
    Environment(String),
    /// In a flag.
    Flag(&'static str),
}

impl Place {
    /// The place of the byte at `offset` of a file's text.
    pub fn in_file(file: &str, text: &str, offset: usize) -> Self {
        let before = &text[..text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self::File {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// The kind of place: `file`, `environment` or `flag`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Environment(_) => "environment",
            Self::Flag(_) => "flag",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line, column } => write!(out, "{file}:{line}:{column}"),
            Self::Environment(name) => out.write_str(name),
            Self::Flag(flag) => out.write_str(flag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lines_and_characters_from_one() {
        let text = "a\nüb = 1\n";
        let place = |offset| Place::in_file("m.toml", text, offset).to_string();
        assert_eq!(place(0), "m.toml:1:1");
        assert_eq!(place(2), "m.toml:2:1");
        assert_eq!(place(text.find('b').unwrap()), "m.toml:2:2");
        assert_eq!(place(3), "m.toml:2:1", "inside of a letter");
        assert_eq!(place(99), "m.toml:3:1", "behind the end");
    }
}
