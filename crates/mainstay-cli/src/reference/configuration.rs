//! docs/reference/configuration.md: every setting.

use super::Page;
use crate::config::{COLLECTIONS, Kind, SECTIONS, Setting};
use std::fmt::Write;

const INTRODUCTION: &str = "\
# Configuration

Everything has a default; an empty file, or none, is valid. A value is taken from the first of these that says it:

1. a flag, such as `--store`;
2. an environment variable;
3. the file named by `--config`, else `./mainstay.toml` if it exists;
4. the default.

A key of the file becomes a variable by writing it in capitals: `MAINSTAY`, the section and the key are parted by two
underscores, the words of a key by one. `store.busyTimeoutMs` is `MAINSTAY__STORE__BUSY_TIMEOUT_MS`. Other variables
that begin with `MAINSTAY__`, unknown sections, unknown keys and values that are not allowed stop the program with
exit code 2, the place and a hint. `mainstay config check` prints what is in force and where it comes from.
";

pub(super) fn page() -> Page {
    let mut text = INTRODUCTION.to_owned();
    for section in SECTIONS {
        let _ = write!(text, "\n## `[{}]`\n\n{}\n", section.name, section.doc);
        for setting in section.settings {
            text += &describe(setting);
        }
        text += "\nAs a file, with the defaults:\n\n```toml\n";
        let _ = writeln!(text, "[{}]", section.name);
        for setting in section.settings {
            let _ = writeln!(text, "{} = {}", setting.key, setting.default);
        }
        text += "```\n";
    }
    text += TABLES;
    for collection in COLLECTIONS {
        let _ = write!(text, "\n## `[{}.NAME]`\n\n{}\n", collection.name, collection.doc);
        for field in collection.fields {
            let default =
                field.default.map_or("none; it must be given".to_owned(), |text| format!("`{text}`"));
            let _ = write!(
                text,
                "\n### `{}` of `[{}.NAME]`\n\n{}\n\n- value: {}\n- default: {default}\n",
                field.key, collection.name, field.doc, field.kind
            );
        }
        let _ = write!(text, "\nFor example:\n\n```toml\n{}```\n", collection.example);
    }
    Page::new("docs/reference/configuration.md", &text)
}

const TABLES: &str = "\
\n# Named tables

There may be any number of these, so they are in the file only: they have no variables and no flags. A name has 1 to 128
letters, digits or `.` `_` `-` `:` `/`; one with a dot is quoted, as in `[pools.\"a.b\"]`.
";

fn describe(setting: &Setting) -> String {
    let Setting { key, doc, default, .. } = setting;
    let flag = setting.flag.map_or(String::new(), |flag| format!(", flag `{flag}`"));
    format!(
        "\n### `{key}`\n\n{doc}\n\n- value: {}\n- default: `{default}`\n- variable: `{}`{flag}\n",
        allowed(setting.kind),
        setting.variable()
    )
}

/// The kind, with large numbers in groups of three.
fn allowed(kind: Kind) -> String {
    match kind {
        Kind::Integer { least, most: Some(most) } => format!("{} to {}", grouped(least), grouped(most)),
        Kind::Integer { least, most: None } => format!("{} or more", grouped(least)),
        other => other.to_string(),
    }
}

fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!([1, 64, 1_000, 3_600_000].map(super::grouped), ["1", "64", "1,000", "3,600,000"]);
    }
}
