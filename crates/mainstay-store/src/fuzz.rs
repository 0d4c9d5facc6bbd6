//! The reader of statements, made reachable for the fuzz targets of `mainstay-fuzz`. Nothing else uses this module.

use crate::sql::Statement;

/// A statement that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The text that PostgreSQL is given.
    pub text: String,
    /// The text that SQLite is given.
    pub sqlite_text: String,
    /// Whether it may leave something behind.
    pub may_write: bool,
    /// Number of parameters.
    pub parameters: u32,
}

/// Reads a statement; `None` when it is refused.
pub fn statement(text: &str) -> Option<Accepted> {
    let found = Statement::parse(text).ok()?;
    Some(Accepted {
        text: found.text,
        sqlite_text: found.sqlite_text,
        may_write: found.may_write,
        parameters: found.parameters,
    })
}
