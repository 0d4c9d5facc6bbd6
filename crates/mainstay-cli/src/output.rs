//! What goes to stdout.

use crate::{Error, Result};
use mainstay::core::secrets;
use serde::Serialize;
use std::io::{self, ErrorKind, Write};

/// Prints text to stdout.
pub(crate) fn print(text: &str) -> Result<()> {
    offer(text).map(drop)
}

/// Prints text to stdout; whether anybody takes more of it.
pub(crate) fn offer(text: &str) -> Result<bool> {
    let mut out = io::stdout().lock();
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints the help or the version that was asked for, in colour on a terminal.
pub(crate) fn print_help(asked: &clap::Error) -> Result<()> {
    printed(asked.print()).map(drop)
}

/// A reader that has seen enough (`| head`) is no failure.
fn printed(result: io::Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(source) => Err(Error::Io { what: "stdout".to_owned(), source }),
    }
}

/// A value as JSON.
pub(crate) fn json(value: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(value).expect("our own types have string keys and finite numbers")
}

/// What somebody else has given, such as the arguments of work, as JSON that hides what is secret by its name.
pub(crate) fn masked(value: &impl Serialize) -> serde_json::Value {
    let mut told = json(value);
    secrets::hide(&mut told);
    told
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    let text =
        serde_json::to_string_pretty(value).expect("our own types have string keys and finite numbers");
    print(&format!("{text}\n"))
}

/// Prints a value as JSON on one line, for a program that reads lines.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(value).expect("our own types have string keys and finite numbers");
    print(&format!("{text}\n"))
}

/// Lays out rows in columns, as wide as their widest cell.
pub(crate) fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let mut lines = vec![heading.map(str::to_owned)];
    lines.extend_from_slice(rows);
    let widths: [usize; N] = std::array::from_fn(|column| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
    });
    let line = |cells: &[String; N]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["1".to_owned(), "tell_the_time".to_owned()], ["200".to_owned(), "ü".to_owned()]];
        insta::assert_snapshot!(table(["STEP", "NAME"], &rows), @"
            STEP  NAME
            1     tell_the_time
            200   ü
            ");
    }
}
