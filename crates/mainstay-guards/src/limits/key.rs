//! What a limit is kept for: a user, an address, a tenant, a route.

use crate::{Error, Result};

/// Longest key.
pub const MAX_KEY_BYTES: usize = 512;

/// Refuses keys that are empty, too long or not fit to be shown.
pub fn check_key(key: &str) -> Result<()> {
    // Bytes first: below 0x20 and DEL are the control characters of ASCII, and the others begin with 0xC2.
    let is_plain = |key: &str| key.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if !key.is_empty() && key.len() <= MAX_KEY_BYTES && (is_plain(key) || !key.contains(char::is_control)) {
        return Ok(());
    }
    Err(Error::invalid("key", format!("has 1 to {MAX_KEY_BYTES} bytes and no control characters")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_bounded_and_can_be_shown() {
        for good in ["user:alice", " ", "käse", &"x".repeat(512)] {
            assert!(check_key(good).is_ok(), "{good}");
        }
        for bad in ["", "a\nb", "nul\0", "\u{7f}", "\u{85}", &"x".repeat(513)] {
            assert_eq!(check_key(bad).unwrap_err().code(), "GUARD_INVALID", "{bad:?}");
        }
    }
}
