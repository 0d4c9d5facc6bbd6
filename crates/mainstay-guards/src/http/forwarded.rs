//! How proxies write down whom they speak for.
//!
//! Everything is read from the right, where our own proxies write. What stands to the left of them came with the request,
//! and may be anything: it is never looked at.

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::net::{IpAddr, SocketAddr};

/// Longest element that is looked into; an address takes less than 64 bytes, and `Forwarded` has a host and more beside it.
const MAX_ELEMENT_BYTES: usize = 1_024;

/// Where a proxy writes down whom it speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyHeader {
    /// `X-Forwarded-For`, or another header in which each proxy adds an address at the end.
    List(HeaderName),
    /// `Forwarded`, as RFC 7239 has it.
    Forwarded,
    /// A header that the outermost proxy sets to one address, whatever came with the request: `X-Real-IP`,
    /// `CF-Connecting-IP`.
    Single(HeaderName),
}

/// Reads an element.
type Read = fn(&[u8]) -> Option<IpAddr>;

impl ProxyHeader {
    /// `X-Forwarded-For`.
    pub fn x_forwarded_for() -> Self {
        Self::List(HeaderName::from_static("x-forwarded-for"))
    }

    /// What stands in the header, the last one first; nothing for what cannot be read.
    pub(super) fn last_first<'a>(&self, headers: &'a HeaderMap) -> impl Iterator<Item = Option<IpAddr>> + 'a {
        let (name, read): (&HeaderName, Read) = match self {
            Self::List(name) | Self::Single(name) => (name, address),
            Self::Forwarded => (&FORWARDED, spoken_for),
        };
        let is_single = matches!(self, Self::Single(_));
        let lines = headers.get_all(name);
        // A second line of what only one may set means that somebody else has written too.
        let is_doubtful = is_single && lines.iter().nth(1).is_some();
        let elements =
            move |line: &'a HeaderValue| line.as_bytes().rsplit(move |byte| *byte == b',' && !is_single);
        lines.iter().rev().flat_map(elements).map(move |element| read(element).filter(|_| !is_doubtful))
    }
}

/// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:4711`.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = text.trim_ascii();
    if text.len() > MAX_ELEMENT_BYTES {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let plain = bare.parse::<IpAddr>().ok().filter(|address| address.is_ipv6() || bare.len() == text.len());
    plain
        .or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
        .map(|found| found.to_canonical())
}

/// The address of `for=` in an element of `Forwarded`.
///
/// An element is told from its neighbour by a comma, which may also stand between quotes; read from the right, a piece of a
/// quoted text could pass for an element. It has an odd number of quotes then, so only elements in which every quote has its
/// place are taken, and none with a backslash, by which quotes lose theirs.
fn spoken_for(element: &[u8]) -> Option<IpAddr> {
    if element.len() > MAX_ELEMENT_BYTES {
        return None;
    }
    let mut rest = std::str::from_utf8(element.trim_ascii()).ok()?;
    let mut found = None;
    loop {
        let (name, after) = rest.split_once('=')?;
        let value;
        (value, rest) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_at(after.find(';').unwrap_or(after.len())),
        };
        if name.contains(['"', '\\', ';']) || value.contains(['"', '\\']) {
            return None;
        }
        if name.trim().eq_ignore_ascii_case("for") && found.replace(address(value.as_bytes())?).is_some() {
            return None;
        }
        match rest.strip_prefix(';') {
            Some(next) => rest = next,
            None if rest.is_empty() => return found,
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &ProxyHeader, lines: &[&[u8]]) -> Vec<Option<String>> {
        let mut headers = HeaderMap::new();
        for line in lines {
            let name = match header {
                ProxyHeader::List(name) | ProxyHeader::Single(name) => name.clone(),
                ProxyHeader::Forwarded => FORWARDED,
            };
            headers.append(name, HeaderValue::from_bytes(line).unwrap());
        }
        header.last_first(&headers).map(|address| address.map(|address| address.to_string())).collect()
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn lists_are_read_last_first_over_all_lines() {
        let read = |lines: &[&[u8]]| read(&ProxyHeader::x_forwarded_for(), lines);
        assert_eq!(
            read(&[b"1.1.1.1, 2.2.2.2", b"3.3.3.3"]),
            [some("3.3.3.3"), some("2.2.2.2"), some("1.1.1.1")]
        );
        let written = b"192.0.2.1:4711,2001:db8::1 ,[2001:db8::2],[2001:db8::3]:80,\t::ffff:9.9.9.9";
        let addresses = ["9.9.9.9", "2001:db8::3", "2001:db8::2", "2001:db8::1", "192.0.2.1"];
        assert_eq!(read(&[written]), addresses.map(some));
        for bad in [
            "",
            "unknown",
            "1.2.3",
            "1.2.3.4.5",
            "[1.2.3.4]",
            "fe80::1%eth0",
            "1.2.3.4:99999",
            "\u{e9}",
            "[::1",
        ] {
            assert_eq!(read(&[bad.as_bytes()]), [None], "{bad:?}");
        }
        assert_eq!(
            read(&[b"\xff\xfe, 1.1.1.1"])[0],
            some("1.1.1.1"),
            "what came with the request may be anything"
        );
        assert_eq!(read(&[]), []);
    }

    #[test]
    fn a_single_value_is_one_address_and_nothing_else() {
        let header = ProxyHeader::Single(HeaderName::from_static("x-real-ip"));
        assert_eq!(read(&header, &[b" 1.1.1.1 "]), [some("1.1.1.1")]);
        assert_eq!(read(&header, &[b"1.1.1.1, 2.2.2.2"]), [None]);
        assert_eq!(read(&header, &[b"1.1.1.1", b"2.2.2.2"]), [None, None]);
    }

    #[test]
    fn forwarded_is_read_as_the_rfc_has_it() {
        let read = |line: &str| read(&ProxyHeader::Forwarded, &[line.as_bytes()]);
        assert_eq!(read("for=192.0.2.43, for=198.51.100.17"), [some("198.51.100.17"), some("192.0.2.43")]);
        assert_eq!(read("For=\"[2001:db8:cafe::17]:4711\""), [some("2001:db8:cafe::17")]);
        assert_eq!(read("for=192.0.2.60;proto=http;by=203.0.113.43"), [some("192.0.2.60")]);
        assert_eq!(read("by=_me;host=\"a;b=c\";for=192.0.2.60"), [some("192.0.2.60")]);
        for bad in
            ["for=unknown", "for=_secret", "proto=http", "for=1.1.1.1;for=2.2.2.2", "for", "for=1.1.1.1;", ""]
        {
            assert_eq!(read(bad), [None], "{bad:?}");
        }
    }

    #[test]
    fn a_piece_of_a_quoted_text_does_not_pass_for_an_element() {
        for forged in [
            "for=5.6.7.8;host=\"x, for=1.2.3.4\"",
            "for=5.6.7.8;host=\"x, for=1.2.3.4;z=\"",
            "for=5.6.7.8;host=\"x\\\", for=1.2.3.4;z=\\\"\"",
            "for=5.6.7.8;host=\"x, for=1.2.3.4\";proto=\"https\"",
            "for=5.6.7.8;host=\"x, for=1.2.3.4;z=\";proto=\"https\"",
        ] {
            assert_eq!(read(&ProxyHeader::Forwarded, &[forged.as_bytes()])[0], None, "{forged}");
        }
        let open = "for=\"evil, for=5.6.7.8";
        assert_eq!(read(&ProxyHeader::Forwarded, &[open.as_bytes()])[0], some("5.6.7.8"));
    }
}
