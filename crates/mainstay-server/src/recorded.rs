//! Paths as spans, logs and the audit record them: without tokens, and without the secrets of leases.

use crate::tokens::without_secrets;
use mainstay_core::secrets::HIDDEN;

/// Segment of a path before a lease.
const LEASES: &str = "leases";
/// Hexadecimal digits of the secret of a lease.
const SECRET_DIGITS: usize = 32;
/// A dot in a path, and what a client may write in its place.
const DOTS: [&str; 2] = [".", "%2e"];

/// The path without secrets.
pub(crate) fn path(path: &str) -> String {
    let mut is_lease = false;
    let segments = path.split('/').map(|segment| {
        let public = if is_lease { number(segment) } else { public(segment) };
        is_lease = segment.eq_ignore_ascii_case(LEASES);
        match &segment[..public] {
            public if public.len() == segment.len() => segment.to_owned(),
            public => format!("{public}{HIDDEN}"),
        }
    });
    let told = segments.collect::<Vec<_>>().join("/");
    without_secrets(&told).into_owned()
}

/// Length of the number at the beginning of a lease, with its dot. Whatever follows is hidden, also when it is no secret.
fn number(segment: &str) -> usize {
    let digits = segment.bytes().take_while(u8::is_ascii_digit).count();
    digits + dot(&segment[digits..]).unwrap_or(0)
}

/// Length of what comes before the first text that looks like the secret of a lease: a client may send one to a path that is
/// not there.
fn public(segment: &str) -> usize {
    let ends = segment.char_indices().filter_map(|(at, _)| Some(at + dot(&segment[at..])?));
    let is_secret =
        |end: &usize| segment.bytes().skip(*end).take_while(u8::is_ascii_hexdigit).count() >= SECRET_DIGITS;
    ends.into_iter().find(is_secret).unwrap_or(segment.len())
}

/// Length of the dot at the beginning of a text, if there is one.
fn dot(text: &str) -> Option<usize> {
    let is_first = |dot: &&str| text.get(..dot.len()).is_some_and(|first| first.eq_ignore_ascii_case(dot));
    DOTS.into_iter().find(is_first).map(str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789ABCDEF";

    #[test]
    fn a_path_has_the_number_of_a_lease_and_not_its_secret() {
        for (asked, told) in [
            (format!("/v1/leases/7.{SECRET}/extend"), "/v1/leases/7.[hidden]/extend"),
            (format!("/v1/leases/7.{SECRET}"), "/v1/leases/7.[hidden]"),
            (format!("/v1/leases/7%2E{SECRET}/extend"), "/v1/leases/7%2E[hidden]/extend"),
            (format!("/v1/leases/%37.{SECRET}/extend"), "/v1/leases/[hidden]/extend"),
            (format!("//v1/Leases/7.{SECRET}"), "//v1/Leases/7.[hidden]"),
            ("/v1/leases/7.short/extend".to_owned(), "/v1/leases/7.[hidden]/extend"),
            ("/v1/leases/7/extend".to_owned(), "/v1/leases/7/extend"),
            (format!("/v1/lease/7.{SECRET}/extend"), "/v1/lease/7.[hidden]/extend"),
            (format!("/v1/leases%2F7.{SECRET}x/y"), "/v1/leases%2F7.[hidden]/y"),
            (format!("/v1/work/{SECRET}/ä.b%2"), &format!("/v1/work/{SECRET}/ä.b%2")),
            ("/".to_owned(), "/"),
        ] {
            assert_eq!(path(&asked), told);
        }
    }
}
