//! The header `Idempotency-Key`, and what a request is recognised by beside it.

use super::keeper::Fingerprint;
use crate::retry::IDEMPOTENCY_KEY;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Uri};
use sha2::{Digest, Sha256};

/// Longest key.
const MAX_KEY_BYTES: usize = 255;

/// A header that is no key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invalid;

/// The key of a request. The draft has it between quotes; most clients leave them away, and mean the same.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<String>, Invalid> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Invalid);
    }
    let text = value.to_str().map_err(|_| Invalid)?.trim();
    let key = match text.strip_prefix('"') {
        Some(quoted) => unquoted(quoted)?,
        None => text.to_owned(),
    };
    let is_visible = key.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    if key.is_empty() || key.len() > MAX_KEY_BYTES || !is_visible {
        return Err(Invalid);
    }
    Ok(Some(key))
}

/// A string of structured fields, behind its first quote.
fn unquoted(quoted: &str) -> Result<String, Invalid> {
    let mut key = String::new();
    let mut rest = quoted.chars();
    loop {
        match rest.next() {
            Some('"') if rest.as_str().is_empty() => return Ok(key),
            Some('\\') => key.push(rest.next().filter(|next| matches!(next, '"' | '\\')).ok_or(Invalid)?),
            Some('"') | None => return Err(Invalid),
            Some(other) => key.push(other),
        }
    }
}

/// What a request is recognised by beside its key: its method, where it goes, and what it says.
pub(super) fn fingerprint(parts: &Parts, body: &[u8]) -> Fingerprint {
    let mut hash = Sha256::new();
    let target = Uri::path_and_query(&parts.uri).map_or("", |target| target.as_str());
    let content_type = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    for part in [parts.method.as_str().as_bytes(), target.as_bytes(), content_type, body] {
        // Where one ends and the next begins.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn key(values: &[&str]) -> Result<Option<String>, Invalid> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_str(value).unwrap());
        }
        read(&headers)
    }

    #[test]
    fn a_key_is_the_same_with_and_without_quotes() {
        let some = |key: &str| Ok(Some(key.to_owned()));
        assert_eq!(key(&[]), Ok(None));
        assert_eq!(key(&["8e03978e-40d5"]), some("8e03978e-40d5"));
        assert_eq!(key(&["\"8e03978e-40d5\""]), some("8e03978e-40d5"));
        assert_eq!(key(&[r#""a\"b\\c""#]), some(r#"a"b\c"#));
        assert_eq!(key(&[&"x".repeat(255)]), some(&"x".repeat(255)));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let long = "x".repeat(256);
        for bad in ["", "\"", "\"\"", "\"a", "\"a\";b=c", r#""a\n""#, "a b", "\u{e9}", &long] {
            assert_eq!(key(&[bad]), Err(Invalid), "{bad:?}");
        }
        assert_eq!(key(&["a", "a"]), Err(Invalid));
    }
}
