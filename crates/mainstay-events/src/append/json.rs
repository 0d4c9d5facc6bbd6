//! What JSON may be stored: not too deep, and without what one of the databases or a reader cannot keep.

/// Deepest nesting of data and metadata.
pub(super) const MAX_DEPTH: usize = 64;

/// Checks a text that is known to be JSON.
pub(super) fn check(text: &str) -> Result<(), &'static str> {
    let mut depth = 0_usize;
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err("is nested deeper than 64 levels");
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => rest = check_string(rest)?,
            _ => {}
        }
    }
    Ok(())
}

/// Checks the inside of a string and returns what follows it.
fn check_string(mut rest: &[u8]) -> Result<&[u8], &'static str> {
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'"' => return Ok(rest),
            b'\\' => rest = check_escape(rest)?,
            _ => {}
        }
    }
    Ok(rest)
}

fn check_escape(rest: &[u8]) -> Result<&[u8], &'static str> {
    let Some(unit) = unit(rest) else { return Ok(rest.get(1..).unwrap_or_default()) };
    let tail = &rest[5..];
    match unit {
        0 => Err("contains a NUL character"),
        0xD800..=0xDBFF => match tail.strip_prefix(b"\\").and_then(self::unit) {
            Some(0xDC00..=0xDFFF) => Ok(&tail[6..]),
            _ => Err("contains half of a surrogate pair"),
        },
        0xDC00..=0xDFFF => Err("contains half of a surrogate pair"),
        _ => Ok(tail),
    }
}

/// The code unit of a `u` and four digits.
fn unit(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(b"u")?.get(..4)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn takes_what_is_plain() {
        for good in [r#"{"a":[1,{"b":"\\u0000 \" [[[ é \ud83d\ude00"}]}"#, "1", "\"\\\\\"", &"[".repeat(64)]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn refuses_depth_nul_and_half_pairs() {
        assert!(check(&"[".repeat(65)).is_err());
        for bad in [
            r#""\u0000""#,
            r#"{"\u0000":1}"#,
            r#""\\\u0000""#,
            r#""\ud800""#,
            r#""\ud800\u0041""#,
            r#""\udc00""#,
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "[\\\\u0-9dD\"\\[\\]{}a]{0,40}") {
            let _ = check(&text);
        }
    }
}
