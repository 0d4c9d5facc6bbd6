//! JSON from outside: how long, how deep and with which characters a value may be.
//!
//! A text that is kept as it was given is parsed much later, by a reader that recurses, on a database that knows no NUL.
//! So every edge checks the text before it is kept: HTTP bodies, replies of HTTP functions, results of workers and of
//! functions, inbound deliveries, arguments of the command line, values of the configuration.
//!
//! Keys that are given twice are let through: RFC 8259 allows them, and readers take the last one.

use serde::de::DeserializeOwned;
use std::borrow::Cow;

/// Deepest nesting of a value from outside.
pub const MAX_DEPTH: usize = 64;
/// Deepest nesting of a value in which the program wraps values from outside, such as the arguments of an `onComplete`.
pub const MAX_WRAPPED_DEPTH: usize = MAX_DEPTH + 16;
/// Deepest nesting that [`readable`] leaves: parsers that recurse give up at 128.
const MAX_READ_DEPTH: usize = 100;
/// Beginning of the keys by which the parser recognises types of its own. An object with such a key first is not an object to it: the
/// value behind is parsed as JSON once more, whatever its depth.
const PARSERS_OWN: &str = "$serde_json::private::";
/// A number of fewer characters without an exponent fits into a double.
const SHORT_NUMBER: usize = 300;

/// Bounds of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes of its text.
    pub bytes: usize,
    /// Deepest nesting.
    pub depth: usize,
}

impl Bounds {
    /// Values from outside of at most so many bytes.
    pub const fn bytes(bytes: usize) -> Self {
        Self { bytes, depth: MAX_DEPTH }
    }
}

/// Reason why a text is not taken. Its display continues the name of the value: "args is nested …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Longer than its bounds.
    #[error("has {bytes} bytes, which are more than {most}")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// Most bytes.
        most: usize,
    },
    /// Deeper than its bounds.
    #[error("is nested deeper than {0} levels")]
    TooDeep(usize),
    /// `\u0000` in a string or in a key.
    #[error("contains a NUL character")]
    Nul,
    /// An escaped surrogate without its other half.
    #[error("contains half of a surrogate pair")]
    HalfPair,
    /// A string or a key that the parser takes for a mark of its own.
    #[error("contains a string that begins with {PARSERS_OWN:?}, which the parser keeps for itself")]
    ParsersOwn,
    /// A number beyond 1.8e308.
    #[error("contains a number that no double can hold")]
    HugeNumber,
    /// No JSON.
    #[error("is not JSON: {0}")]
    Syntax(String),
}

/// Parses a text within its bounds: into a [`RawValue`](serde_json::value::RawValue) to keep it as it was given.
pub fn parse<T: DeserializeOwned>(text: &[u8], bounds: Bounds) -> Result<T, Error> {
    check(text, bounds)?;
    serde_json::from_slice(text).map_err(|error| Error::Syntax(error.to_string()))
}

/// Checks the bounds of a text and its characters. Only a parser finds out whether it is JSON.
pub fn check(text: &[u8], bounds: Bounds) -> Result<(), Error> {
    if text.len() > bounds.bytes {
        return Err(Error::TooLarge { bytes: text.len(), most: bounds.bytes });
    }
    check_readable(text, bounds.depth)?;
    match Tokens::of(text).any(|token| matches!(token, Token::Escape(0))) {
        true => Err(Error::Nul),
        false => Ok(()),
    }
}

/// Checks that a parser that recurses takes a text, whatever its length. NUL is left to the owner of each field.
pub fn check_readable(text: &[u8], most_depth: usize) -> Result<(), Error> {
    let mut depth = 0_usize;
    let mut tokens = Tokens::of(text);
    while let Some(token) = tokens.next() {
        if tokens.is_parsers_own() {
            return Err(Error::ParsersOwn);
        }
        match token {
            Token::Open if depth == most_depth => return Err(Error::TooDeep(most_depth)),
            Token::Open => depth += 1,
            Token::Close => depth = depth.saturating_sub(1),
            Token::HalfPair => return Err(Error::HalfPair),
            Token::Number(number) if is_huge(number) => return Err(Error::HugeNumber),
            Token::Number(_) | Token::Escape(_) | Token::Plain => {}
        }
    }
    Ok(())
}

/// A stored document as every reader can take it. Notes replace too deep nesting, numbers that no double
/// can hold and half surrogate pairs, which earlier versions have kept.
pub fn readable(text: &str) -> Cow<'_, str> {
    if check_readable(text.as_bytes(), MAX_READ_DEPTH).is_ok() {
        return Cow::Borrowed(text);
    }
    let (mut out, mut depth) = (String::with_capacity(text.len().min(1 << 16)), 0_usize);
    let mut rest = Tokens::of(text.as_bytes());
    loop {
        let before = text.len() - rest.rest.len();
        let Some(token) = rest.next() else { break };
        // Tokens begin and end between characters; of a broken text, nothing is left out but the broken character.
        let written = text.get(before..text.len() - rest.rest.len()).unwrap_or_default();
        let is_shown = depth <= MAX_READ_DEPTH;
        // The quote before it was taken; a further character makes it a string like others.
        let is_parsers_own = rest.is_parsers_own();
        match token {
            Token::Open => {
                depth += 1;
                if depth == MAX_READ_DEPTH + 1 {
                    out.push_str("\"[nested too deep]\"");
                } else if depth <= MAX_READ_DEPTH {
                    out.push_str(written);
                }
            }
            Token::Close => {
                depth = depth.saturating_sub(1);
                if is_shown {
                    out.push_str(written);
                }
            }
            _ if !is_shown => {}
            Token::HalfPair => out.push_str("\\ufffd"),
            Token::Number(number) if is_huge(number) => out.push_str("\"[number too large]\""),
            Token::Number(_) | Token::Escape(_) | Token::Plain => out.push_str(written),
        }
        if is_parsers_own && is_shown {
            out.push('_');
        }
    }
    Cow::Owned(out)
}

fn is_huge(number: &[u8]) -> bool {
    if number.len() < SHORT_NUMBER && !number.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        return false;
    }
    let number = std::str::from_utf8(number).ok().and_then(|text| text.parse::<f64>().ok());
    number.is_some_and(f64::is_infinite)
}

/// Part of a text of JSON.
enum Token<'a> {
    Open,
    Close,
    Number(&'a [u8]),
    /// A character of a string that is escaped by its code.
    Escape(u32),
    /// The code of one half of a surrogate pair, without the other.
    HalfPair,
    /// Plain text of a string, an escape by a letter, punctuation or a word.
    Plain,
}

/// Parts of a text, one after the other, in one pass.
struct Tokens<'a> {
    rest: &'a [u8],
    is_in_string: bool,
    /// Whether the part before was the quote that opens a string.
    is_at_start: bool,
}

impl<'a> Tokens<'a> {
    fn of(text: &'a [u8]) -> Self {
        Self { rest: text, is_in_string: false, is_at_start: false }
    }

    /// Whether a string begins here that the parser takes for a mark of its own, however it is escaped.
    fn is_parsers_own(&self) -> bool {
        if !self.is_at_start {
            return false;
        }
        let mut rest = self.rest;
        PARSERS_OWN.bytes().all(|wanted| {
            let taken = match code(rest) {
                Some(code) if code == u32::from(wanted) => 6,
                _ if rest.first() == Some(&wanted) => 1,
                _ => return false,
            };
            rest = &rest[taken..];
            true
        })
    }

    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Takes bytes up to one of another kind.
    fn take_while(&mut self, is_taken: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| !is_taken(*byte));
        self.take(end.unwrap_or(self.rest.len()))
    }

    fn escape(&mut self) -> Token<'a> {
        let Some(code) = code(self.rest) else {
            self.take(2);
            return Token::Plain;
        };
        self.take(6);
        match code {
            0xD800..=0xDBFF if matches!(self::code(self.rest), Some(0xDC00..=0xDFFF)) => {
                self.take(6);
                Token::Plain
            }
            0xD800..=0xDFFF => Token::HalfPair,
            code => Token::Escape(code),
        }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let first = *self.rest.first()?;
        self.is_at_start = first == b'"' && !self.is_in_string;
        Some(match first {
            b'"' => {
                self.is_in_string = !self.is_in_string;
                self.take(1);
                Token::Plain
            }
            b'\\' if self.is_in_string => self.escape(),
            _ if self.is_in_string => {
                self.take_while(|byte| !matches!(byte, b'"' | b'\\'));
                Token::Plain
            }
            b'{' | b'[' => {
                self.take(1);
                Token::Open
            }
            b'}' | b']' => {
                self.take(1);
                Token::Close
            }
            b'-' | b'0'..=b'9' => Token::Number(
                self.take_while(|byte| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')),
            ),
            _ => {
                self.take_while(|byte| {
                    !matches!(byte, b'"' | b'{' | b'[' | b'}' | b']' | b'-' | b'0'..=b'9')
                });
                Token::Plain
            }
        })
    }
}

/// The code of a `\u` with four digits.
fn code(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;
    use serde_json::value::RawValue;

    const BOUNDS: Bounds = Bounds::bytes(1 << 20);

    fn nested(depth: usize) -> String {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn a_plain_value_is_taken_as_it_was_given() {
        let brackets = format!("\"\\\"{}\"", nested(100));
        for good in [
            r#"{"a":[1,{"b":"\\u0000 \" [[[ é \ud83d\ude00"}]}"#,
            "1",
            "\"\\\\\"",
            "[true,false,null,-1.5e300,0.0000001]",
            r#"{"a":1,"a":2}"#,
            &nested(64),
            &brackets,
        ] {
            let taken: Box<RawValue> = parse(good.as_bytes(), BOUNDS).unwrap();
            assert_eq!(taken.get(), good);
            assert!(matches!(readable(good), Cow::Borrowed(_)));
        }
    }

    #[test]
    fn what_a_reader_cannot_take_is_refused() {
        let text = "x".repeat(1 << 20);
        for (bad, error) in [
            (nested(65), Error::TooDeep(64)),
            ("{\"a\":".repeat(30_000), Error::TooDeep(64)),
            (r#""\u0000""#.to_owned(), Error::Nul),
            (r#"{"\u0000":1}"#.to_owned(), Error::Nul),
            (r#""\\\u0000""#.to_owned(), Error::Nul),
            (r#""\ud800""#.to_owned(), Error::HalfPair),
            (r#""\ud800\u0041""#.to_owned(), Error::HalfPair),
            (r#""\udc00""#.to_owned(), Error::HalfPair),
            (r#"{"$serde_json::private::RawValue":"[]"}"#.to_owned(), Error::ParsersOwn),
            (r#"{"a":1,"$serde_json::private::Number":"1"}"#.to_owned(), Error::ParsersOwn),
            (r#"[{"\u0024serde\u005Fjson::\u0070rivate::RawValue":"[]"}]"#.to_owned(), Error::ParsersOwn),
            ("[1e999]".to_owned(), Error::HugeNumber),
            (format!("-{}", "9".repeat(400)), Error::HugeNumber),
            (format!("\"{text}\""), Error::TooLarge { bytes: (1 << 20) + 2, most: 1 << 20 }),
        ] {
            assert_eq!(parse::<Box<RawValue>>(bad.as_bytes(), BOUNDS).unwrap_err(), error, "{bad:.40}");
        }
        for bad in ["", "[", "]", "{\"a\"}", "1 2", "\"", "\"\\", "\u{feff}{}"] {
            let error = parse::<Box<RawValue>>(bad.as_bytes(), BOUNDS).unwrap_err();
            assert!(matches!(error, Error::Syntax(_)), "{bad}: {error}");
        }
    }

    #[test]
    fn no_key_makes_the_parser_look_into_a_string() {
        let hidden = format!(r#"{{"$serde_json::private::RawValue":"{}"}}"#, nested(100));
        let found: Value = serde_json::from_str(&hidden).unwrap();
        assert!(found.is_array(), "or the parser has no such key any more: {found}");
        assert_eq!(check(hidden.as_bytes(), BOUNDS), Err(Error::ParsersOwn));
        let read: Value = serde_json::from_str(&readable(&hidden)).unwrap();
        assert_eq!(read["_$serde_json::private::RawValue"], nested(100));
        for good in [
            r#"{"$serde_json":1}"#,
            r#"{"a":"x$serde_json::private::RawValue"}"#,
            r#"{"$":"$"}"#,
            "\"$serde_json::",
        ] {
            assert_eq!(check(good.as_bytes(), BOUNDS), Ok(()), "{good}");
        }
    }

    #[test]
    fn what_was_kept_by_earlier_versions_is_made_readable() {
        let deep = format!(r#"{{"id":"é","args":{},"more":[1e999,"\ud800",{{"a":"]"}}]}}"#, nested(30_000));
        assert!(serde_json::from_str::<Value>(&deep).is_err());
        let read: Value = serde_json::from_str(&readable(&deep)).unwrap();
        assert_eq!((&read["id"], &read["more"][2]["a"]), (&"é".into(), &"]".into()));
        assert_eq!(read["more"][0], "[number too large]");
        assert_eq!(read["more"][1], "\u{fffd}");
        assert!(read["args"].to_string().contains("[nested too deep]"));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "[\\\\u0-9dDeE\"\\[\\]{}a.é-]{0,60}") {
            let _ = (check(text.as_bytes(), BOUNDS), readable(&text));
        }

        #[test]
        fn what_is_taken_can_be_read_by_every_parser(text in r#"(\[|\{"k":|1e30?9?|"\\u[0d]8?0?00"|,|\]|\}){0,40}"#) {
            let is_json = parse::<Box<RawValue>>(text.as_bytes(), BOUNDS).is_ok();
            prop_assert!(!is_json || serde_json::from_str::<Value>(&text).is_ok());
            if serde_json::from_str::<&RawValue>(&text).is_ok() {
                prop_assert!(serde_json::from_str::<Value>(&readable(&text)).is_ok());
            }
        }
    }
}
