//! Which errors are the same: what differs from one failure to the next is left out, and the rest is hashed.

use super::listed;

/// Longest run of letters and digits that may still be a word.
const MAX_WORD_BYTES: usize = 40;

/// The group of an error; never 0, which means that nobody has looked yet.
pub fn group(error: &str) -> i64 {
    // FNV-1a: the same in every program and for ever, because groups are kept.
    let hash = template(error).bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    i64::from_ne_bytes(hash.max(1).to_ne_bytes())
}

/// What errors of a group have in common: numbers, ids, hex and what is quoted are `#` or `…`, white space is one space.
pub fn template(error: &str) -> String {
    let mut template = String::new();
    let mut rest = listed(error).trim();
    while let Some(first) = rest.chars().next() {
        let (length, what) = match first {
            '"' | '`' => match quoted(rest, first) {
                Some(length) => (length, "…"),
                None => (first.len_utf8(), "\""),
            },
            '\'' if !template.ends_with(char::is_alphanumeric) => match quoted(rest, first) {
                Some(length) => (length, "…"),
                None => (1, "'"),
            },
            _ if first.is_whitespace() => (rest.len() - rest.trim_start().len(), " "),
            _ if is_word(first) => {
                let word = &rest[..rest.find(|one: char| !is_word(one)).unwrap_or(rest.len())];
                (word.len(), if is_variable(word) { "#" } else { word })
            }
            _ => (first.len_utf8(), &rest[..first.len_utf8()]),
        };
        // What stands between two parts that differ makes no difference either: 1.5, 2026-11-16, 10.0.0.1:5432.
        if what == "#" && template.ends_with(['.', '-', ':', ',']) {
            let joined = template.trim_end_matches(['.', '-', ':', ',']);
            if joined.ends_with('#') && template.len() - joined.len() == 1 {
                template.truncate(joined.len());
                rest = &rest[length..];
                continue;
            }
        }
        template.push_str(what);
        rest = &rest[length..];
    }
    template
}

/// How long the quoted part is that a text begins with, if it ends.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let end = text[1..].find(quote)?;
    Some(end + 2)
}

fn is_word(one: char) -> bool {
    one.is_alphanumeric() || one == '_'
}

/// Whether a word is a number, an id or hex, rather than something somebody has written.
fn is_variable(word: &str) -> bool {
    let has_digit = word.contains(|one: char| one.is_ascii_digit());
    let is_hex = word.len() >= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    has_digit || is_hex || word.len() > MAX_WORD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_one_failure_to_the_next_is_left_out() {
        let same = [
            ("order 17 has no stock", "order 18231 has no stock"),
            ("connect 10.0.0.1:5432 refused", "connect 192.168.7.20:80 refused"),
            ("no event \"evt-a\" in the log", "no event \"evt-b c\" in the log"),
            ("no event 'evt-a'", "no event 'x'"),
            (
                "work_01890a5d-ac96-774b-bcce-b302099a8057 failed",
                "work_01890a5d-0000-774b-bcce-ffffffffffff failed",
            ),
            ("took 1.5 s, of 2", "took 12.75 s, of 3"),
            ("checksum deadbeefcafe", "checksum 0123456789ab"),
            ("a\n  b", "a b"),
        ];
        for (one, other) in same {
            assert_eq!(group(one), group(other), "{} and {}", template(one), template(other));
        }
    }

    #[test]
    fn what_somebody_has_written_makes_a_difference() {
        let different = [
            ("out of stock", "out of reach"),
            ("cannot reach \"a\"", "cannot find \"a\""),
            ("timeout", "timeout!"),
            ("card declined", "card's declined"),
            ("", "x"),
        ];
        for (one, other) in different {
            assert_ne!(group(one), group(other), "{} and {}", template(one), template(other));
        }
    }

    #[test]
    fn a_template_can_be_read() {
        assert_eq!(template("order 17 of \"ann\" at 2026-11-16 isn't paid"), "order # of … at # isn't paid");
        assert_eq!(template("an open \"quote, 5"), "an open \"quote, #");
    }

    #[test]
    fn groups_stay_what_they_are() {
        assert_eq!(group("card declined"), group("card declined"));
        assert_eq!(group(""), i64::from_ne_bytes(0xcbf2_9ce4_8422_2325_u64.to_ne_bytes()));
        assert_ne!(group("any"), 0);
    }

    #[test]
    fn only_so_much_of_an_error_is_looked_at() {
        let long = "x ".repeat(100_000);
        assert!(template(&long).len() <= 500);
        assert_eq!(group(&format!("{long}a")), group(&format!("{long}b")));
        assert!(template(&"ä".repeat(10_000)).len() <= 500);
    }
}
