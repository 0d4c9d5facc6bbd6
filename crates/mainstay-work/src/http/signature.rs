//! How a receiver knows that a call comes from the server it shares a secret with, and is not an old one sent again.
//!
//! The header is `Mainstay-Signature: t=<unix seconds>,v1=<hex>`, the second being HMAC-SHA256 over `<t>.<body>`. While
//! a secret is being replaced there are two, and one `v1` for each: a receiver that knows either is satisfied.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::sync::Arc;
use subtle::{Choice, ConstantTimeEq};

/// Longest header that is looked at, so that nobody makes a receiver compute for long.
const MAX_HEADER_BYTES: usize = 1 << 10;
const MAC_BYTES: usize = 32;

/// What both sides know and nobody else. It never shows up in logs.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

/// Why a signature was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The header cannot be read.
    #[error("the signature must look like t=<unix seconds>,v1=<64 hex digits>")]
    Malformed,
    /// No secret made it for this body.
    #[error("the signature does not fit the body")]
    Mismatch,
    /// It is genuine, but too old, or from too far in the future.
    #[error("the signature was made {off_by_ms} ms from now, which is too far")]
    Stale {
        /// How far its time is from ours.
        off_by_ms: u64,
    },
}

impl Secret {
    /// Takes a secret; an empty one is none.
    pub fn new(bytes: impl AsRef<[u8]>) -> Option<Self> {
        let bytes = bytes.as_ref();
        (!bytes.is_empty()).then(|| Self(bytes.into()))
    }

    /// As it may stand in somebody's text.
    pub(super) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    fn mac(&self, time: &str, body: &[u8]) -> [u8; MAC_BYTES] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in [time.as_bytes(), b".", body] {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(…)")
    }
}

/// The header of a body that is sent now.
pub fn sign(secrets: &[Secret], body: &[u8], now_ms: i64) -> String {
    let time = now_ms.div_euclid(1_000).to_string();
    let mut header = format!("t={time}");
    for secret in secrets {
        header.push_str(",v1=");
        header.extend(secret.mac(&time, body).iter().map(|byte| format!("{byte:02x}")));
    }
    header
}

/// Checks the header of a body that was received: made with one of the secrets, and at most `tolerance_ms` from now.
///
/// How long it takes does not depend on how much of a forged signature is right.
pub fn verify_signature(
    secrets: &[Secret],
    header: &str,
    body: &[u8],
    now_ms: i64,
    tolerance_ms: u64,
) -> Result<(), SignatureError> {
    let (time, macs) = parse(header).ok_or(SignatureError::Malformed)?;
    let seconds: i64 = time.parse().map_err(|_| SignatureError::Malformed)?;
    let mut fits = Choice::from(0);
    for secret in secrets {
        let expected = secret.mac(time, body);
        for mac in &macs {
            fits |= expected.ct_eq(mac);
        }
    }
    if !bool::from(fits) {
        return Err(SignatureError::Mismatch);
    }
    // Judged last: only who knows the secret learns what time it is here.
    let off_by_ms = seconds.saturating_mul(1_000).abs_diff(now_ms);
    if off_by_ms > tolerance_ms { Err(SignatureError::Stale { off_by_ms }) } else { Ok(()) }
}

/// The time, and each of the codes. Parts of other names are left for versions to come.
fn parse(header: &str) -> Option<(&str, Vec<[u8; MAC_BYTES]>)> {
    if header.len() > MAX_HEADER_BYTES {
        return None;
    }
    let (mut time, mut macs) = (None, Vec::new());
    for part in header.split(',') {
        match part.trim().split_once('=')? {
            ("t", _) if time.is_some() => return None,
            ("t", seconds) => time = Some(seconds),
            ("v1", hex) => macs.push(unhex(hex)?),
            _ => {}
        }
    }
    Some((time?, macs))
}

fn unhex(hex: &str) -> Option<[u8; MAC_BYTES]> {
    let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
    if digits.len() == 2 * MAC_BYTES { bytes.try_into().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW_MS: i64 = 1_700_000_000_500;
    const BODY: &[u8] = br#"{"workId":"w1"}"#;

    fn secret(text: &str) -> Secret {
        Secret::new(text).unwrap()
    }

    #[test]
    fn agrees_with_a_code_that_another_program_made() {
        // printf '1700000000.{"workId":"w1"}' | openssl dgst -sha256 -hmac whsec
        let expected = "t=1700000000,v1=fb7959fe1e816a04e74fda358b04c3328d8e55f262df287015f072c0685beb84";
        assert_eq!(sign(&[secret("whsec")], BODY, NOW_MS), expected);
    }

    #[test]
    fn either_secret_will_do_while_one_is_being_replaced() {
        let (old, new, other) = (secret("old"), secret("new"), secret("other"));
        let header = sign(&[new.clone(), old.clone()], BODY, NOW_MS);
        assert_eq!(header.matches("v1=").count(), 2);
        for known in [&[old.clone()][..], std::slice::from_ref(&new), &[other.clone(), old]] {
            assert_eq!(verify_signature(known, &header, BODY, NOW_MS, 1_000), Ok(()));
        }
        for unknown in [&[other][..], &[]] {
            assert_eq!(
                verify_signature(unknown, &header, BODY, NOW_MS, 1_000),
                Err(SignatureError::Mismatch)
            );
        }
    }

    #[test]
    fn neither_the_body_nor_the_time_can_be_changed() {
        let secrets = [secret("s")];
        let header = sign(&secrets, BODY, NOW_MS);
        let changed = verify_signature(&secrets, &header, br#"{"workId":"w2"}"#, NOW_MS, 1_000);
        assert_eq!(changed, Err(SignatureError::Mismatch));
        let moved = header.replace("t=1700000000", "t=1700000001");
        assert_eq!(verify_signature(&secrets, &moved, BODY, NOW_MS, 60_000), Err(SignatureError::Mismatch));
    }

    #[test]
    fn an_old_one_is_not_taken_again_nor_one_from_the_future() {
        let secrets = [secret("s")];
        let header = sign(&secrets, BODY, NOW_MS);
        let at = |now_ms| verify_signature(&secrets, &header, BODY, now_ms, 300_000);
        assert_eq!(at(1_700_000_300_000), Ok(()));
        assert_eq!(at(1_700_000_300_001), Err(SignatureError::Stale { off_by_ms: 300_001 }));
        assert_eq!(at(1_699_999_700_000), Ok(()));
        assert_eq!(at(1_699_999_699_999), Err(SignatureError::Stale { off_by_ms: 300_001 }));
    }

    #[test]
    fn refuses_headers_that_are_none() {
        let secrets = [secret("s")];
        let good = sign(&secrets, BODY, NOW_MS);
        let code = good.split_once(",v1=").unwrap().1;
        let twice = format!("t=1700000000,{good}");
        let long = format!("{good}{}", ",v1=00".repeat(400));
        for bad in [
            "",
            "t",
            "v1=",
            &format!("v1={code}"),
            "t=x,v1=00",
            "t=1700000000,v1=zz",
            &twice,
            &long,
            &good[..good.len() - 1],
        ] {
            let result = verify_signature(&secrets, bad, BODY, NOW_MS, 1_000);
            assert_eq!(result, Err(SignatureError::Malformed), "{bad}");
        }
        let later = format!("{good},v2=whatever");
        assert_eq!(verify_signature(&secrets, &later, BODY, NOW_MS, 1_000), Ok(()));
        assert_eq!(
            verify_signature(&secrets, "t=1700000000", BODY, NOW_MS, 1_000),
            Err(SignatureError::Mismatch)
        );
    }

    #[test]
    fn a_secret_stays_one() {
        assert_eq!(format!("{:?}", secret("hunter2")), "Secret(…)");
        assert!(Secret::new("").is_none(), "an empty secret is known to everybody");
    }

    proptest! {
        #[test]
        fn what_is_signed_is_accepted_and_no_header_makes_it_panic(
            key in proptest::collection::vec(any::<u8>(), 1..100), body in proptest::collection::vec(any::<u8>(), 0..100),
            now_ms in any::<i64>(), forged in "\\PC{0,80}|t=[0-9]{1,20},v1=[0-9a-f]{60,66}",
        ) {
            let secrets = [Secret::new(&key).unwrap()];
            let header = sign(&secrets, &body, now_ms);
            prop_assert_eq!(verify_signature(&secrets, &header, &body, now_ms, 1_000), Ok(()));
            prop_assert!(verify_signature(&secrets, &forged, &body, now_ms, u64::MAX).is_err());
        }
    }
}
