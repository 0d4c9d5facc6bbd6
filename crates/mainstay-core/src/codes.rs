//! The register of error codes: one stable name per kind of failure, and what a person should do about it.
//!
//! Each crate keeps a table of the codes it can answer with; [`Register`] joins the tables. The pages under
//! docs/errors, the HTTP status and the text of an error all come from here, so they cannot disagree.

use std::collections::BTreeMap;

/// One kind of failure, as the outside world knows it. Codes are never renamed or reused.
#[derive(Debug, PartialEq, Eq)]
pub struct ErrorCode {
    /// The stable name, in capitals: `STORE_BUSY`.
    pub code: &'static str,
    /// The HTTP status a server answers with.
    pub status: u16,
    /// Whether the same call may succeed later without anything being changed.
    pub retryable: bool,
    /// What happened, in one sentence.
    pub meaning: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

impl ErrorCode {
    /// Whether the same call may succeed later, in a sentence.
    pub fn retry(&self) -> &'static str {
        match self.retryable {
            true => "The same call may succeed later without anything being changed.",
            false => "The same call fails again until something is changed.",
        }
    }
}

/// Writes a crate's table of codes: a static for each, and all of them under one name.
///
/// ```
/// mainstay_core::codes! {
///     /// Every code of the kitchen.
///     pub static CODES:
///     OVEN_COLD "OVEN_COLD" 503 true
///         "The oven is not hot yet."
///         "Wait until it is.";
/// }
/// assert_eq!(CODES[0].code, OVEN_COLD.code);
/// ```
#[macro_export]
macro_rules! codes {
    (
        $(#[$meta:meta])* pub static $table:ident:
        $($name:ident $code:literal $status:literal $retryable:literal $meaning:literal $remedy:literal;)*
    ) => {
        $(pub(crate) static $name: $crate::codes::ErrorCode = $crate::codes::ErrorCode {
            code: $code, status: $status, retryable: $retryable, meaning: $meaning, remedy: $remedy,
        };)*

        $(#[$meta])*
        pub static $table: &[&$crate::codes::ErrorCode] = &[$(&$name),*];
    };
}

/// All codes of a program, by name.
#[derive(Debug, Default)]
pub struct Register(BTreeMap<&'static str, &'static ErrorCode>);

/// Two tables claim the same code.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("error code {0} is registered twice")]
pub struct Doubled(pub &'static str);

impl Register {
    /// Joins the tables of several crates.
    pub fn join(tables: &[&[&'static ErrorCode]]) -> Result<Self, Doubled> {
        let mut all = BTreeMap::new();
        for code in tables.iter().copied().flatten().copied() {
            if all.insert(code.code, code).is_some() {
                return Err(Doubled(code.code));
            }
        }
        Ok(Self(all))
    }

    /// The entry of `code`.
    pub fn get(&self, code: &str) -> Option<&'static ErrorCode> {
        self.0.get(code).copied()
    }

    /// Every entry, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = &'static ErrorCode> + '_ {
        self.0.values().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static BUSY: ErrorCode =
        ErrorCode { code: "BUSY", status: 503, retryable: true, meaning: "Full.", remedy: "Wait." };
    static GONE: ErrorCode =
        ErrorCode { code: "GONE", status: 410, retryable: false, meaning: "Away.", remedy: "Give up." };

    #[test]
    fn joins_tables_in_the_order_of_names() {
        let register = Register::join(&[&[&GONE], &[&BUSY]]).unwrap();
        assert_eq!(register.iter().map(|code| code.code).collect::<Vec<_>>(), ["BUSY", "GONE"]);
        assert_eq!(register.get("GONE"), Some(&GONE));
        assert_eq!(register.get("NEVER"), None);
    }

    #[test]
    fn a_code_has_one_owner() {
        assert_eq!(Register::join(&[&[&BUSY], &[&GONE, &BUSY]]).unwrap_err(), Doubled("BUSY"));
    }
}
