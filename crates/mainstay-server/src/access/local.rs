//! Whether a request without a token comes from this machine.
//!
//! A connection from a loopback address is not enough: a web page of elsewhere can make the browser of somebody on
//! this machine ask (and, when its own name is made to point at 127.0.0.1, read the answer), and a proxy passes on
//! what others ask. What such requests cannot do is name this machine in their Host header, have an Origin that is
//! this server's own, and hide the traces of the proxy.

use axum::http::header::{FORWARDED, HOST, ORIGIN, VIA};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName};
use std::net::IpAddr;

pub(crate) const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
pub(crate) const PROXY_HEADERS: [HeaderName; 6] = [
    FORWARDED,
    VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
];

/// Whether an address is this machine's own and nobody else's.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Why the request is not taken for one of this machine's own.
pub(crate) fn objection(parts: &Parts) -> Option<&'static str> {
    let headers = &parts.headers;
    let Some(host) = host(parts) else { return Some("The request has no Host header, or several.") };
    if !is_this_machine(&host) {
        return Some("The Host header does not name this machine.");
    }
    if PROXY_HEADERS.iter().any(|name| headers.contains_key(name)) {
        return Some("The request was passed on by a proxy.");
    }
    if headers.contains_key(ORIGIN) && !is_same_origin(headers, &host) {
        return Some("The request comes from a web page of another origin.");
    }
    match only(headers, &SEC_FETCH_SITE) {
        _ if !headers.contains_key(SEC_FETCH_SITE) => None,
        Some("same-origin" | "none") => None,
        _ => Some("The request comes from a web page of another site."),
    }
}

/// The name under which the server was asked, if it is said once.
pub(crate) fn host(parts: &Parts) -> Option<Authority> {
    let said: Authority = only(&parts.headers, &HOST)?.parse().ok()?;
    match parts.uri.authority() {
        Some(other) if *other != said => None,
        _ => Some(said),
    }
}

pub(crate) fn is_this_machine(host: &Authority) -> bool {
    let name = host.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(is_loopback)
}

pub(crate) fn is_same_origin(headers: &HeaderMap, host: &Authority) -> bool {
    let origin = only(headers, &ORIGIN).unwrap_or_default();
    let authority = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
    authority.and_then(|text| text.parse::<Authority>().ok()).is_some_and(|origin| origin == *host)
}

/// The value of a header that is there once.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { value.to_str().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn refused(uri: &str, headers: &[(&str, &str)]) -> bool {
        let request =
            headers.iter().fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
        objection(&request.body(()).unwrap().into_parts().0).is_some()
    }

    #[test]
    fn names_of_this_machine_are_let_in() {
        for host in
            ["localhost", "LocalHost:7420", "127.0.0.1:7420", "127.8.8.8", "[::1]:7420", "[::ffff:127.0.0.1]"]
        {
            assert!(!refused("/", &[("host", host)]), "{host}");
        }
    }

    #[test]
    fn other_names_are_not() {
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "a.localhost",
            "0.0.0.0",
            "",
            "a b",
        ] {
            assert!(refused("/", &[("host", host)]), "{host}");
        }
        assert!(refused("/", &[]));
        assert!(refused("/", &[("host", "localhost"), ("host", "localhost")]));
        assert!(refused("http://evil.example/", &[("host", "localhost")]));
    }

    #[test]
    fn pages_of_elsewhere_and_proxies_are_not() {
        let with = |name, value| refused("/", &[("host", "localhost:7420"), (name, value)]);
        assert!(!with("origin", "http://localhost:7420"));
        for origin in
            ["http://evil.example", "http://localhost:7421", "null", "file://", "", "localhost:7420"]
        {
            assert!(with("origin", origin), "{origin}");
        }
        assert!(!with("sec-fetch-site", "none") && !with("sec-fetch-site", "same-origin"));
        assert!(with("sec-fetch-site", "cross-site") && with("sec-fetch-site", "same-site"));
        assert!(
            with("x-forwarded-for", "10.0.0.1") && with("forwarded", "for=10.0.0.1") && with("via", "1.1 p")
        );
    }
}
