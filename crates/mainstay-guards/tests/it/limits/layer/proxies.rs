//! Which address a request comes from.

use super::{Door, bucket, get, with};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use mainstay_guards::http::{Head, Key, Peer, ProxyHeader, TrustedProxies};
use mainstay_guards::limits::{RateLimitLayer, RateLimiter, Rule};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The address of a request that arrives from `peer` with these lines of a header.
fn address(proxies: &TrustedProxies, peer: &str, name: &'static str, lines: &[&str]) -> Option<String> {
    let mut request = get("/");
    if !peer.is_empty() {
        request = with(request, Peer(peer.parse().unwrap()));
    }
    for line in lines {
        request.headers_mut().append(HeaderName::from_static(name), HeaderValue::from_str(line).unwrap());
    }
    proxies.address(Head::of(&request)).map(|address| address.to_string())
}

const XFF: &str = "x-forwarded-for";

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn b_045_without_proxies_the_socket_counts_and_headers_do_not() {
    let none = TrustedProxies::none();
    assert_eq!(address(&none, "198.51.100.7", XFF, &["1.1.1.1"]), some("198.51.100.7"));
    assert_eq!(address(&none, "::ffff:198.51.100.7", XFF, &[]), some("198.51.100.7"));
    assert_eq!(address(&none, "", XFF, &["1.1.1.1"]), None);
    let by_axum = with(get("/"), ConnectInfo(SocketAddr::from(([203, 0, 113, 5], 4711))));
    assert_eq!(none.address(Head::of(&by_axum)), Some(IpAddr::from([203, 0, 113, 5])));
    let named = TrustedProxies::none().peer_by(|head| head.headers.get("peer")?.to_str().ok()?.parse().ok());
    assert_eq!(address(&named, "198.51.100.7", "peer", &["192.0.2.9"]), some("192.0.2.9"));
}

#[test]
fn b_045_with_hops_only_what_our_own_proxies_added_counts() {
    let one = TrustedProxies::hops(ProxyHeader::x_forwarded_for(), 1).unwrap();
    let two = TrustedProxies::hops(ProxyHeader::x_forwarded_for(), 2).unwrap();
    // A client that claims to be 1.1.1.1 and 9.9.9.9, its own address 203.0.113.5, our outer proxy 10.0.0.2.
    assert_eq!(address(&one, "10.0.0.1", XFF, &["1.1.1.1, 9.9.9.9, 203.0.113.5"]), some("203.0.113.5"));
    let lines = ["1.1.1.1, 9.9.9.9, 203.0.113.5", "10.0.0.2"];
    assert_eq!(address(&two, "10.0.0.1", XFF, &lines), some("203.0.113.5"));
    assert_eq!(address(&two, "", XFF, &lines), some("203.0.113.5"), "a socket without an address");
    assert_eq!(
        address(&two, "10.0.0.1", XFF, &["203.0.113.5"]),
        some("203.0.113.5"),
        "around the outer proxy"
    );
    assert_eq!(address(&one, "10.0.0.1", XFF, &[]), some("10.0.0.1"));
    for garbage in ["\u{1}", "x", "\"", ";;;", ",,,", "999.1.1.1"] {
        let line = format!("{}, 203.0.113.5", garbage.replace('\u{1}', "\t"));
        assert_eq!(address(&one, "10.0.0.1", XFF, &[&line]), some("203.0.113.5"), "{garbage:?}");
    }
    assert_eq!(address(&one, "10.0.0.1", XFF, &["203.0.113.5, unknown"]), None, "our own cannot name it");
}

#[test]
fn b_045_with_ranges_a_request_from_elsewhere_is_taken_for_what_it_is() {
    let ours = TrustedProxies::within(ProxyHeader::x_forwarded_for(), ["10.0.0.0/8", "fd00::/8"]).unwrap();
    let line = ["1.1.1.1, 203.0.113.5, 10.0.0.2"];
    assert_eq!(address(&ours, "10.0.0.1", XFF, &line), some("203.0.113.5"));
    assert_eq!(address(&ours, "::ffff:10.0.0.1", XFF, &line), some("203.0.113.5"));
    assert_eq!(address(&ours, "fd00::1", XFF, &line), some("203.0.113.5"));
    assert_eq!(address(&ours, "198.51.100.7", XFF, &line), some("198.51.100.7"), "not one of ours");
    assert_eq!(address(&ours, "", XFF, &line), None, "who says so is not known");
    assert_eq!(address(&ours, "10.0.0.1", XFF, &["10.9.9.9, 10.0.0.2"]), some("10.9.9.9"), "all are ours");
    assert_eq!(address(&ours, "10.0.0.1", XFF, &["garbage, 10.0.0.2"]), None);
}

#[test]
fn b_045_forwarded_and_headers_of_one_value_are_read_alike() {
    let forwarded = TrustedProxies::within(ProxyHeader::Forwarded, ["10.0.0.0/8"]).unwrap();
    let line = ["for=1.1.1.1, for=\"[2001:db8::5]:4711\";proto=https, for=10.0.0.2;by=10.0.0.1"];
    assert_eq!(address(&forwarded, "10.0.0.1", "forwarded", &line), some("2001:db8::5"));
    let host = ["for=203.0.113.5;host=\"x, for=1.1.1.1\""];
    assert_eq!(
        address(&forwarded, "10.0.0.1", "forwarded", &host),
        None,
        "a host that is made up to be a hop"
    );
    let name = HeaderName::from_static("cf-connecting-ip");
    for single in [
        TrustedProxies::hops(ProxyHeader::Single(name.clone()), 1).unwrap(),
        TrustedProxies::within(ProxyHeader::Single(name), ["10.0.0.0/8"]).unwrap(),
    ] {
        let read = |lines: &[&str]| address(&single, "10.0.0.1", "cf-connecting-ip", lines);
        assert_eq!(read(&["203.0.113.5"]), some("203.0.113.5"));
        assert_eq!(read(&[]), some("10.0.0.1"));
        for bad in [&["1.1.1.1, 2.2.2.2"][..], &["1.1.1.1", "2.2.2.2"], &["x"], &[""]] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}

#[test]
fn b_045_headers_without_end_are_not_read_to_their_end() {
    for (header, name, element) in
        [(ProxyHeader::x_forwarded_for(), XFF, ""), (ProxyHeader::Forwarded, "forwarded", "for=")]
    {
        let claimed = format!("{element}10.1.1.1, ").repeat(10_000);
        let hops = TrustedProxies::hops(header.clone(), 1).unwrap();
        let ours = TrustedProxies::within(header, ["10.0.0.0/8"]).unwrap();
        let line = format!("{claimed}{element}203.0.113.5");
        assert_eq!(address(&hops, "10.0.0.1", name, &[&line]), some("203.0.113.5"));
        assert_eq!(address(&ours, "10.0.0.1", name, &[&line]), some("203.0.113.5"));
        let forged = format!("{claimed}{element}10.0.0.2");
        assert_eq!(address(&ours, "10.0.0.1", name, &[&forged]), None, "nobody has so many proxies");
        let long = format!("{element}203.0.113.5{}", "0".repeat(100_000));
        assert_eq!(address(&hops, "10.0.0.1", name, &[&long]), None);
    }
}

#[tokio::test]
async fn b_045_an_ipv6_customer_has_one_budget_and_not_one_for_each_address() {
    let limiter = Arc::new(bucket(3.0, 0.1));
    let proxies = TrustedProxies::hops(ProxyHeader::x_forwarded_for(), 1).unwrap();
    let rule = Rule::new("address", limiter.clone(), Key::address(proxies.clone())).unwrap();
    let door = Door::behind(RateLimitLayer::http().rule(rule).unwrap());
    let from = |address: &str| Request::get("/").header(XFF, address).body(Body::empty()).unwrap();
    for number in 0..3 {
        assert_eq!(door.status(from(&format!("2001:db8:1:2::{number:x}"))).await, StatusCode::OK);
    }
    assert_eq!(door.status(from("2001:db8:1:2:ffff::1")).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(door.status(from("2001:db8:1:3::1")).await, StatusCode::OK);
    assert_eq!(limiter.peek("ip:2001:db8:1:2::/64", 1).await.unwrap().remaining, 0);
    for number in 0..10_000_u32 {
        let claimed = format!("198.51.{}.{}, 203.0.113.5", number % 256, number / 256 % 256);
        door.status(from(&claimed)).await;
    }
    assert_eq!(limiter.keys(), 3, "claims make no keys");
    let coarse = Key::address(proxies.clone().ipv6_prefix(48).unwrap());
    let single = Key::address(proxies.ipv6_prefix(128).unwrap());
    for (key, expected) in [(coarse, "ip:2001:db8:1::/48"), (single, "ip:2001:db8:1:2::1")] {
        let limiter = Arc::new(bucket(3.0, 0.1));
        let rule = Rule::new("address", limiter.clone(), key).unwrap();
        let door = Door::behind(RateLimitLayer::http().rule(rule).unwrap());
        door.status(from("2001:db8:1:2::1")).await;
        assert_eq!(limiter.peek(expected, 1).await.unwrap().remaining, 2, "{expected}");
    }
}

#[test]
fn proxies_that_make_no_sense_are_refused_and_named() {
    let header = ProxyHeader::x_forwarded_for;
    for hops in [0, 33] {
        let error = TrustedProxies::hops(header(), hops).err().unwrap();
        assert_eq!((error.code(), error.to_string().as_str()), ("GUARD_INVALID", "hops: are 1 to 32"));
    }
    let error = TrustedProxies::within(header(), ["10.1.2.3/8"]).err().unwrap();
    assert!(error.to_string().starts_with("proxies: \"10.1.2.3/8\" begins inside a range"), "{error}");
    assert_eq!(TrustedProxies::within(header(), [""; 0]).err().unwrap().code(), "GUARD_INVALID");
    assert!(
        TrustedProxies::none().ipv6_prefix(31).is_err() && TrustedProxies::none().ipv6_prefix(129).is_err()
    );
}
