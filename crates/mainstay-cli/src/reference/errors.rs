//! docs/errors: an index, and one page per error code.

use super::Page;
use crate::config;
use mainstay::core::codes::{ErrorCode, Register};
use std::fmt::Write;

/// Every code this program can answer with.
pub(crate) fn register() -> Register {
    let own = [config::CODES, crate::CODES];
    Register::join(&[&mainstay_server::CODE_TABLES[..], &own].concat())
        .expect("a test keeps the tables apart")
}

pub(super) fn pages() -> Vec<Page> {
    let register = register();
    let mut pages = vec![Page::new("docs/errors/README.md", &index(&register))];
    pages.extend(
        register.iter().map(|entry| Page::new(format!("docs/errors/{}.md", entry.code), &page(entry))),
    );
    pages
}

fn index(register: &Register) -> String {
    let mut text = "# Error codes\n\n\
        Every failure has a code that never changes. The binary prints it as `error[CODE]`, with `--json` as \
        `{\"code\", \"message\", \"hint\"}` on stderr, and in the log of `mainstay serve` it is \
        the `code` of a line; a library reads it with `Error::code()`; over HTTP it is the \
        `code` of the problem document.\n\n\
        | code | what happened | try again? |\n|---|---|---|\n"
        .to_owned();
    for entry in register.iter() {
        let retry = if entry.retryable { "yes" } else { "no" };
        let _ = writeln!(text, "| [{0}]({0}.md) | {1} | {retry} |", entry.code, entry.meaning);
    }
    text
}

fn page(entry: &ErrorCode) -> String {
    let ErrorCode { code, status, meaning, remedy, .. } = entry;
    let retry = entry.retry();
    format!(
        "# {code}\n\n{meaning}\n\n## What to do\n\n{remedy}\n\n## Trying again\n\n{retry} Over HTTP the status is \
         {status}.\n\n[All error codes](README.md)\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_owner_and_whole_sentences() {
        for entry in register().iter() {
            assert!(entry.meaning.ends_with('.') && entry.remedy.ends_with('.'), "{}", entry.code);
            assert!(!entry.meaning.contains('|'), "{} would break the table", entry.code);
        }
    }
}
