//! `[server]`: where `mainstay serve` listens, and how much it takes.

use super::setting::Kind::{self, Integer};
use super::setting::{Section, Setting, Value};
use super::{Config, access, health};
use axum::body::Body;
use mainstay::guards;
use mainstay::guards::http::{Key, ProxyHeader, TrustedProxies};
use mainstay::guards::limits::{Policy, RateLimitLayer, Rule, memory};
use mainstay_server::{Error, Options, defaults};
use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The section.
pub static SECTION: Section = Section {
    name: "server",
    doc: "What `mainstay serve` listens on and takes.",
    settings: &[
        &LISTEN,
        &TLS_CERT,
        &TLS_KEY,
        &INSECURE,
        &MAX_CONNECTIONS,
        &MAX_CONNECTIONS_PER_ADDRESS,
        &TOKEN_SHARE,
        &TENANT_SHARE,
        &HEADER_TIMEOUT_MS,
        &REQUEST_TIMEOUT_MS,
        &BODY_TIMEOUT_MS,
        &SHUTDOWN_GRACE_MS,
        &MAX_BODY_BYTES,
        &REQUESTS_PER_SECOND,
        &REQUEST_BURST,
        &PROXIES,
        &PROXY_HEADER,
    ],
};

/// No request takes longer than an hour; a larger number is a mistake in the unit.
const TIMEOUT: Kind = Integer { least: 1, most: Some(3_600_000) };

/// Where to listen.
pub static LISTEN: Setting = Setting {
    section: "server",
    key: "listen",
    kind: Kind::Address,
    default: Value::Text(Cow::Borrowed("127.0.0.1:7420")),
    flag: Some("--listen"),
    doc: "Where to listen: an IP address and a port; port 0 takes a free one. On a loopback address everybody on the \
          machine may use `/v1` until the first token is created. Every other address needs a token and TLS.",
};
static TLS_CERT: Setting = setting(
    "tlsCert",
    Kind::File,
    Value::Text(Cow::Borrowed("")),
    "The certificate chain, a PEM file. With it and `tlsKey` the server speaks TLS.",
);
static TLS_KEY: Setting = setting(
    "tlsKey",
    Kind::File,
    Value::Text(Cow::Borrowed("")),
    "The key of the certificate, a PEM file that nobody else can read.",
);
/// Whether an address that others reach may do without.
pub static INSECURE: Setting = Setting {
    section: "server",
    key: "insecure",
    kind: Kind::Boolean,
    default: Value::Boolean(false),
    flag: Some("--insecure"),
    doc: "Whether to listen on an address that others can reach although there is no TLS or no token yet, for instance \
          behind a proxy that does TLS. Requests need a token all the same.",
};
static MAX_CONNECTIONS: Setting = setting(
    "maxConnections",
    Integer { least: 1, most: Some(1_000_000) },
    Value::Integer(defaults::MAX_CONNECTIONS as i64),
    "Most connections that are open at once. A small reserve beyond them serves probes and admins only; other requests are \
     answered with 503 `CONNECTIONS_FULL`.",
);
static MAX_CONNECTIONS_PER_ADDRESS: Setting = setting(
    "maxConnectionsPerAddress",
    Integer { least: 1, most: Some(1_000_000) },
    Value::Integer(defaults::MAX_CONNECTIONS_PER_ADDRESS as i64),
    "Most connections of one address, or of one IPv6 network of 64 bits. Further ones are treated as beyond \
     `maxConnections`. Addresses in `proxies` are exempt.",
);
static TOKEN_SHARE: Setting = setting(
    "tokenShare",
    Integer { least: 1, most: Some(100) },
    Value::Integer(defaults::TOKEN_SHARE as i64),
    "Share of the server that one token may use at once, in percent: of the streams, which are half of `maxConnections`, and of \
     as many requests as `maxConnections`. What is beyond is refused with `QUOTA_REACHED`.",
);
static TENANT_SHARE: Setting = setting(
    "tenantShare",
    Integer { least: 1, most: Some(100) },
    Value::Integer(defaults::TENANT_SHARE as i64),
    "The same for all tokens of a tenant together.",
);
static HEADER_TIMEOUT_MS: Setting = setting(
    "headerTimeoutMs",
    TIMEOUT,
    Value::Integer(defaults::HEADER_TIMEOUT_MS as i64),
    "How long a client may take to shake hands and to send the headers of a request, and how long a connection may be \
     idle.",
);
static REQUEST_TIMEOUT_MS: Setting = setting(
    "requestTimeoutMs",
    TIMEOUT,
    Value::Integer(defaults::REQUEST_TIMEOUT_MS as i64),
    "How long a request may take before it ends with `REQUEST_TIMEOUT`. Answers that stream have no limit.",
);
static BODY_TIMEOUT_MS: Setting = setting(
    "bodyTimeoutMs",
    TIMEOUT,
    Value::Integer(defaults::BODY_TIMEOUT_MS as i64),
    "How long the body of a request may take to arrive, and how long a client may take nothing of an answer before its \
     connection is closed.",
);
static SHUTDOWN_GRACE_MS: Setting = setting(
    "shutdownGraceMs",
    Integer { least: 0, most: Some(3_600_000) },
    Value::Integer(defaults::SHUTDOWN_GRACE_MS as i64),
    "How long requests and work that are under way may take to finish once the server was told to stop. What still runs \
     then is given back, and carried out again.",
);
static MAX_BODY_BYTES: Setting = setting(
    "maxBodyBytes",
    // Below a kilobyte nothing works; above a quarter of a gigabyte a few clients fill the memory.
    Integer { least: 1 << 10, most: Some(256 << 20) },
    Value::Integer(defaults::MAX_BODY_BYTES as i64),
    "How large the body of a request may be; eight times that on routes that take batches.",
);

static REQUESTS_PER_SECOND: Setting = setting(
    "requestsPerSecond",
    Integer { least: 0, most: Some(1_000_000) },
    Value::Integer(0),
    "How many requests per second each address may make of this node; 0 for any number. Whoever makes more is answered \
     with 429 and `Retry-After`. Probes and `/metrics` are not counted.",
);
static REQUEST_BURST: Setting = setting(
    "requestBurst",
    Integer { least: 1, most: Some(1_000_000) },
    Value::Integer(100),
    "How many requests an address may make at once, after it has made none for a while.",
);
static PROXIES: Setting = setting(
    "proxies",
    Kind::Ranges,
    Value::List(Vec::new()),
    "The addresses of your own proxies. What they say about whom they speak for is believed, and whether that one spoke TLS; \
     nobody else's word is. See docs/operations/trusted-proxies.md.",
);
static PROXY_HEADER: Setting = setting(
    "proxyHeader",
    Kind::Header,
    Value::Text(Cow::Borrowed("X-Forwarded-For")),
    "The header in which proxies say so: `X-Forwarded-For`, `Forwarded`, or one that your outermost proxy sets to a single \
     address, as in `X-Real-IP`.",
);

const fn setting(key: &'static str, kind: Kind, default: Value, doc: &'static str) -> Setting {
    Setting { section: "server", key, kind, default, flag: None, doc }
}

/// The options of the server that the configuration asks for.
pub fn options(config: &Config) -> Result<Options, Error> {
    let duration = |setting| Duration::from_millis(config.number(setting));
    let count = |setting| usize::try_from(config.number(setting)).unwrap_or(usize::MAX);
    let percent = |setting| u8::try_from(config.number(setting)).unwrap_or(100);
    let options = Options::default()
        .listen(listen(config))
        .insecure(config.flag(&INSECURE))
        .max_connections(count(&MAX_CONNECTIONS))
        .max_connections_per_address(count(&MAX_CONNECTIONS_PER_ADDRESS))
        .token_share(percent(&TOKEN_SHARE))
        .tenant_share(percent(&TENANT_SHARE))
        .header_timeout(duration(&HEADER_TIMEOUT_MS))
        .request_timeout(duration(&REQUEST_TIMEOUT_MS))
        .body_timeout(duration(&BODY_TIMEOUT_MS))
        .shutdown_grace(duration(&SHUTDOWN_GRACE_MS))
        .max_body_bytes(count(&MAX_BODY_BYTES))
        .proxies(config.list(&PROXIES).iter().map(|range| range.parse().expect("ranges are checked")))
        .health(health::rules(config));
    let options = access::apply(options, config);
    let options = match rate_limits(config)? {
        Some(rate_limits) => options.rate_limits(rate_limits),
        None => options,
    };
    let missing =
        |what: &Setting| Error::Tls { what: what.name(), reason: "is missing, the other is set".to_owned() };
    match (config.text(&TLS_CERT), config.text(&TLS_KEY)) {
        ("", "") => Ok(options),
        ("", _) => Err(missing(&TLS_CERT)),
        (_, "") => Err(missing(&TLS_KEY)),
        (certificate, key) => Ok(options.tls(certificate, key)),
    }
}

/// Options of the API in this process, which has neither connections nor addresses to limit.
pub fn local(config: &Config) -> Options {
    let options = Options::default().listen(listen(config));
    let most = usize::try_from(config.number(&MAX_BODY_BYTES)).unwrap_or(usize::MAX);
    access::apply(options.max_body_bytes(most).health(health::rules(config)), config)
}

/// The limit of requests for each address, if there is one.
fn rate_limits(config: &Config) -> guards::Result<Option<RateLimitLayer<Body>>> {
    let per_second = config.number(&REQUESTS_PER_SECOND);
    if per_second == 0 {
        return Ok(None);
    }
    let policy = Policy::bucket(config.number(&REQUEST_BURST) as f64, per_second as f64)?;
    let header = match config.text(&PROXY_HEADER) {
        name if name.eq_ignore_ascii_case("x-forwarded-for") => ProxyHeader::x_forwarded_for(),
        name if name.eq_ignore_ascii_case("forwarded") => ProxyHeader::Forwarded,
        name => ProxyHeader::Single(name.parse().expect("headers are checked")),
    };
    let proxies = match config.list(&PROXIES) {
        [] => TrustedProxies::none(),
        ranges => TrustedProxies::within(header, ranges)?,
    };
    let rule = Rule::new("requests", memory::limiter(policy), Key::address(proxies))?;
    RateLimitLayer::http().rule(rule).map(Some)
}

/// How long what is under way may take to finish.
pub fn grace(config: &Config) -> Duration {
    Duration::from_millis(config.number(&SHUTDOWN_GRACE_MS))
}

/// Where a server with this configuration is found from this machine.
pub fn url(config: &Config) -> String {
    let mut address = listen(config);
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let scheme = if config.text(&TLS_CERT).is_empty() { "http" } else { "https" };
    format!("{scheme}://{address}")
}

fn listen(config: &Config) -> SocketAddr {
    config.text(&LISTEN).parse().expect("addresses are checked")
}
