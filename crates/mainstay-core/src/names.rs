//! Names that belong to the platform.
//!
//! Functions, pools, crons and other things with a name under `mainstay.` are the platform's own. A caller can neither
//! define nor call them.

use crate::codes::ErrorCode;

/// Prefix of the platform's own names.
pub const RESERVED_PREFIX: &str = "mainstay.";

/// A caller used a name of the platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: names under \"mainstay.\" are reserved for the platform")]
pub struct Reserved {
    /// The field with the name: `items[2].function`.
    pub field: String,
}

impl Reserved {
    /// The entry in the register of codes.
    pub fn entry(&self) -> &'static ErrorCode {
        reserved_code()
    }
}

/// The code of names that belong to the platform.
pub fn reserved_code() -> &'static ErrorCode {
    &NAME_RESERVED
}

/// Whether a name belongs to the platform. Spaces and control characters around it and upper case make no difference.
pub fn is_reserved(name: &str) -> bool {
    let name = name.trim_matches(|letter: char| letter.is_whitespace() || letter.is_control());
    // Upper case first: some letters, such as a long s, have the upper case of another one.
    let folded = name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    folded.take(RESERVED_PREFIX.len()).eq(RESERVED_PREFIX.chars())
}

/// Refuses a name of the platform; `field` says where it stands.
pub fn check_unreserved(field: &str, name: &str) -> Result<(), Reserved> {
    if is_reserved(name) { Err(Reserved { field: field.to_owned() }) } else { Ok(()) }
}

crate::codes! {
    /// The only code of this module.
    pub static CODES:
    NAME_RESERVED "NAME_RESERVED" 400 false
        "A name begins with mainstay., in any case. Such names belong to the platform. Nothing was changed."
        "Choose another name for what the error names.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_the_prefix_is_reserved() {
        let spellings = [
            "mainstay.replay.tidy",
            "MAINSTAY.replay.tidy",
            " Mainstay.x ",
            "\tmainStay.",
            "\u{0}mainstay.x",
            "\u{a0}mainstay.x",
            "main\u{17f}tay.x",
        ];
        for name in spellings {
            assert!(is_reserved(name), "{name:?}");
            assert_eq!(check_unreserved("pool", name), Err(Reserved { field: "pool".to_owned() }));
        }
    }

    #[test]
    fn other_names_are_free() {
        for name in ["", "mainstay", "mainstays.x", "my.mainstay.x", "bench.mainstay.", "mainstay-x", "m"] {
            assert!(!is_reserved(name), "{name:?}");
        }
    }

    #[test]
    fn the_error_names_the_field_and_has_a_code() {
        let error = check_unreserved("items[2].function", "mainstay.x").unwrap_err();
        assert_eq!(error.entry().code, "NAME_RESERVED");
        assert!(error.to_string().starts_with("items[2].function: "), "{error}");
    }
}
