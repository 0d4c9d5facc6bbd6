//! The text that a token's holder keeps: `mst_`, the id, which is no secret, and 256 random bits.

use mainstay_core::secrets::HIDDEN;
use mainstay_store::{Error, Result};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt;
use std::fmt::Write;
use subtle::ConstantTimeEq;

const PREFIX: &str = "mst_";
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
const TEXT_BYTES: usize = PREFIX.len() + 2 * ID_BYTES + 1 + 2 * SECRET_BYTES;

/// A token's text. It is shown by [`reveal`](Self::reveal) and by nothing else.
pub struct Secret {
    text: String,
}

/// A text, such as a path, in which nobody finds a token that was put there by mistake.
pub(crate) fn without_secrets(text: &str) -> Cow<'_, str> {
    let mut told = Cow::Borrowed(text);
    for (at, _) in text.match_indices(PREFIX) {
        if let Some(secret) = text.get(at..at + TEXT_BYTES).and_then(Secret::parse) {
            let secret = &secret.text[PREFIX.len() + 2 * ID_BYTES + 1..];
            told = Cow::Owned(told.replace(secret, HIDDEN));
        }
    }
    told
}

impl Secret {
    /// Draws one from the operating system.
    pub(super) fn generate() -> Result<Self> {
        let mut random = [0; ID_BYTES + SECRET_BYTES];
        getrandom::fill(&mut random)
            .map_err(|error| Error::application(format!("the system has no random numbers: {error}")))?;
        let (id, secret) = random.split_at(ID_BYTES);
        Ok(Self { text: format!("{PREFIX}{}_{}", hex(id), hex(secret)) })
    }

    /// Reads what somebody presents, if it looks like a token.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_hex = |part: &str, bytes: usize| {
            part.len() == 2 * bytes && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        (is_hex(id, ID_BYTES) && is_hex(secret, SECRET_BYTES)).then(|| Self { text: text.to_owned() })
    }

    /// The part that is no secret.
    pub(super) fn id(&self) -> &str {
        &self.text[PREFIX.len()..PREFIX.len() + 2 * ID_BYTES]
    }

    /// What is stored. 256 random bits cannot be guessed from it, so that a slow hash would only slow down requests.
    pub(super) fn hash(&self) -> String {
        hex(&Sha256::digest(self.text.as_bytes()))
    }

    /// Whether this is what was hashed, in a time that does not tell how near it was.
    pub(super) fn is_hashed_as(&self, hash: &str) -> bool {
        self.hash().as_bytes().ct_eq(hash.as_bytes()).into()
    }

    /// The text, for the one moment in which its holder is told.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{PREFIX}{}_***", self.id())
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_hash_and_by_nothing_near_it() {
        let one = Secret::generate().unwrap();
        let read = Secret::parse(one.reveal()).unwrap();
        assert!(read.is_hashed_as(&one.hash()));
        let last = if one.reveal().ends_with('0') { '1' } else { '0' };
        let near = format!("{}{last}", &one.reveal()[..one.reveal().len() - 1]);
        let near = Secret::parse(&near).unwrap();
        assert_eq!(near.id(), one.id());
        assert!(!near.is_hashed_as(&one.hash()));
        assert!(!Secret::generate().unwrap().is_hashed_as(&one.hash()));
    }

    #[test]
    fn what_is_no_token_is_not_looked_up() {
        let good = Secret::generate().unwrap();
        let good = good.reveal();
        for bad in [
            "",
            "mst_",
            "mst__",
            &good[1..],
            &good[..84],
            &format!("{good}0"),
            &good.to_uppercase(),
            "mst_ü_ü",
        ] {
            assert!(Secret::parse(bad).is_none(), "{bad}");
        }
        assert_eq!(good.len(), 85);
    }

    #[test]
    fn debugging_does_not_tell() {
        let secret = Secret::generate().unwrap();
        let shown = format!("{secret:?}");
        assert!(shown.ends_with("_***") && shown.len() == 24, "{shown}");
    }
}
