//! Names and literals in the text of statements.
//!
//! Values go into statements as parameters. A name of a table cannot, and neither can a value in a view. These two types
//! are the only way for such a text to come into a statement.

use std::fmt;

/// Longest identifier: PostgreSQL cuts off what is longer.
pub const MAX_IDENTIFIER_BYTES: usize = 63;
/// Prefixes of tables that belong to the platform or to a database.
const RESERVED: [&str; 3] = ["mainstay_", "pg_", "sqlite_"];

/// The name of a table, view or column of an author: a lowercase letter, then lowercase letters, digits and `_`. It is not
/// one of the platform's or of a database. Its text needs no quotes in a statement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identifier(String);

/// Why a text is no identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentifierError {
    /// It is empty, too long, or has other characters.
    #[error("must be 1 to {MAX_IDENTIFIER_BYTES} of a-z, 0-9 and _, a letter first")]
    Form,
    /// It begins like a name of the platform or of a database.
    #[error("must not begin with mainstay_, pg_ or sqlite_")]
    Reserved,
}

impl Identifier {
    /// Checks a name.
    pub fn new(name: &str) -> Result<Self, IdentifierError> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let has_letter = name.starts_with(|first: char| first.is_ascii_lowercase());
        if !has_letter || name.len() > MAX_IDENTIFIER_BYTES || !name.bytes().all(is_plain) {
            return Err(IdentifierError::Form);
        }
        if RESERVED.iter().any(|prefix| name.starts_with(prefix)) {
            return Err(IdentifierError::Reserved);
        }
        Ok(Self(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A text as a literal of a statement, in quotes. Only for definitions, such as those of views, which take no parameters.
#[derive(Debug, Clone, Copy)]
pub struct Literal<'a>(pub &'a str);

impl fmt::Display for Literal<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "'{}'", self.0.replace('\'', "''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_has_one_form() {
        for name in ["a", "order_summary", "a1_", &"a".repeat(MAX_IDENTIFIER_BYTES)] {
            assert_eq!(Identifier::new(name).unwrap().to_string(), name);
        }
        let long = "a".repeat(MAX_IDENTIFIER_BYTES + 1);
        for name in ["", "1a", "_a", "A", "a b", "a;", "a--", "a\"", "a'", "ä", "a\0", "a.b", &long] {
            assert_eq!(Identifier::new(name), Err(IdentifierError::Form), "{name:?}");
        }
    }

    #[test]
    fn an_identifier_is_neither_the_platform_s_nor_a_database_s() {
        for name in ["mainstay_audit", "pg_class", "sqlite_master"] {
            assert_eq!(Identifier::new(name), Err(IdentifierError::Reserved), "{name:?}");
        }
        assert!(Identifier::new("mainstays").is_ok());
    }

    #[test]
    fn a_literal_ends_where_it_should() {
        assert_eq!(Literal("it's").to_string(), "'it''s'");
        assert_eq!(Literal("'; DROP TABLE a --").to_string(), "'''; DROP TABLE a --'");
    }
}
