//! What a limit is kept for: a user, an address, a tenant, a route.

use crate::{Error, Result};
use mainstay_core::keys::has_control;

/// Longest key.
pub const MAX_KEY_BYTES: usize = 512;

/// Refuses keys that are empty, too long or not fit to be shown.
#[inline]
pub fn check_key(key: &str) -> Result<()> {
    if (1..=MAX_KEY_BYTES).contains(&key.len()) && !has_control(key) {
        return Ok(());
    }
    Err(bad_key())
}

#[cold]
fn bad_key() -> Error {
    Error::invalid("key", format!("has 1 to {MAX_KEY_BYTES} bytes and no control characters"))
}

/// FNV-1a of texts one behind another: the same on every node and in every version, so that all look in one place.
#[cfg(feature = "redis")]
pub(super) fn fnv1a(texts: &[&str]) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    texts.iter().flat_map(|text| text.bytes()).fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "redis")]
    #[test]
    fn fnv1a_is_as_published() {
        assert_eq!(
            [fnv1a(&[]), fnv1a(&["a"]), fnv1a(&["foo", "bar"])],
            [0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968]
        );
    }

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
