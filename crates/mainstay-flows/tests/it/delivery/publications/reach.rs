//! Where webhooks may go: a collection of addresses that must not be reached, in all their clothes.

use crate::delivery::publications::webhook::loopback;
use crate::delivery::server::{Server, reply};
use futures_util::future::BoxFuture;
use mainstay_core::failure::Class;
use mainstay_core::trace::TraceContext;
use mainstay_flows::delivery::publications::{Delivery, PublicEvent, Transport, Webhook};
use mainstay_work::Failure;
use mainstay_work::egress::Egress;
use mainstay_work::http::{Client, HttpConfig, Resolver};
use serde_json::json;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// Hosts that lead to what is not public. Where it can be, a server listens there, on the port that is asked for.
const HOSTS: &[&str] = &[
    // This machine.
    "127.0.0.1",
    "127.0.0.2",
    "127.1.2.3",
    "127.255.255.254",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "0.0.0.0",
    "0.1.2.3",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    // The same, spelled otherwise: short, decimal, octal, hexadecimal, mixed.
    "127.1",
    "127.0.1",
    "0",
    "2130706433",
    "2130706434",
    "017700000001",
    "0177.0.0.1",
    "0177.0.0.01",
    "0177.1",
    "0x7f000001",
    "0x7F.0.0.1",
    "0x7f.1",
    "0x7f.0x0.0x0.0x1",
    "127.0x1",
    "127.0.0.01",
    "127.000.000.001",
    "4294967295",
    // IPv4 inside of IPv6.
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::FFFF:127.0.0.1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[2002:7f00:0001::1]",
    "[::ffff:0:127.0.0.1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:10.0.0.1]",
    "[64:ff9b::10.0.0.1]",
    "[64:ff9b:1::a00:1]",
    "[2002:c0a8:101::1]",
    "[2001:0:7f00:1::1]",
    // Private networks, and what clouds have at them.
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "169.254.0.1",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "168.63.129.16",
    "192.0.0.192",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[fc00::1]",
    "[fec0::1]",
    // Reserved, for documentation, for many at once.
    "192.0.2.1",
    "198.51.100.1",
    "203.0.113.1",
    "198.18.0.1",
    "192.88.99.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "[ff02::1]",
    "[100::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[5f00::1]",
];

/// URLs that are none of a target at all.
const NO_TARGETS: &[&str] = &[
    "",
    "/events",
    "//127.0.0.1/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "ftp://127.0.0.1/",
    "unix:///var/run/docker.sock",
    "data:text/plain,x",
    "javascript:alert(1)",
    "http://",
    "http://user:password@127.0.0.1/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1#@example.com/ ",
    "http://[::1/",
    "http://127.0.0.1:99999/",
];

fn delivery() -> Delivery {
    Delivery {
        event: PublicEvent::new("evt-1", "OrderSubmitted", &json!(1)).unwrap(),
        source_context: "orders".to_owned(),
        target_context: "inventory".to_owned(),
        idempotency_key: "pub:evt-1:inventory".to_owned(),
        attempt: 1,
        trace: TraceContext {
            trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".into(),
            span_id: "00f067aa0ba902b7".into(),
            parent_span_id: None,
        },
        now_ms: 1_700_000_000_000,
    }
}

fn config(url: &str) -> HttpConfig {
    HttpConfig { timeout_ms: 2_000, ..HttpConfig::new(url) }
}

/// Whether it was not even tried to connect.
fn was_held_back(failure: &Failure) -> bool {
    failure.class() == Class::AuthorizationFailure || failure.message().contains("cannot be resolved")
}

#[tokio::test]
async fn no_spelling_of_a_private_address_gets_through() {
    let everywhere = Server::at("0.0.0.0:0", reply("200 OK", "", "")).await;
    let port = everywhere.address.port();
    assert!(HOSTS.len() + NO_TARGETS.len() >= 60, "{} URLs", HOSTS.len() + NO_TARGETS.len());
    for host in HOSTS {
        for url in [format!("http://{host}:{port}/events"), format!("http://{host}:{port}")] {
            // Some are not even URLs.
            let Ok(webhook) = Webhook::new(config(&url), Arc::new(Egress::default())) else { continue };
            let failure = webhook.deliver(delivery()).await.expect_err(&url);
            assert!(was_held_back(&failure), "{url}: {failure}");
        }
    }
    for url in NO_TARGETS {
        let outcome = match Webhook::new(config(url), Arc::new(Egress::default())) {
            Ok(webhook) => webhook.deliver(delivery()).await.map_err(|failure| was_held_back(&failure)),
            Err(error) => Err(error.code() == "FLOW_INVALID"),
        };
        assert_eq!(outcome, Err(true), "{url}");
    }
    assert_eq!(everywhere.connections(), 0);
    let allowed = Webhook::new(config(&format!("http://127.0.0.1:{port}/")), loopback()).unwrap();
    allowed.deliver(delivery()).await.expect("the server itself is well");
    assert_eq!(everywhere.connections(), 1);
}

/// A resolver that has an answer prepared for each time it is asked.
struct Answers(Mutex<VecDeque<Vec<IpAddr>>>);

impl Answers {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let addresses = |texts: &&[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Self(Mutex::new(answers.iter().map(addresses).collect())))
    }
}

impl Resolver for Answers {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let answer = self.0.lock().unwrap().pop_front();
        Box::pin(async move { answer.ok_or_else(|| io::Error::other("asked once too often")) })
    }
}

fn named(host: &str, port: u16, egress: Arc<Egress>, answers: &[&[&str]]) -> Webhook {
    let client = Client::with(egress, Answers::new(answers), rustls::RootCertStore::empty());
    Webhook::with_client(config(&format!("http://{host}:{port}/events")), client).unwrap()
}

#[tokio::test]
async fn names_that_mean_private_addresses_do_not_get_through() {
    let server = Server::at("0.0.0.0:0", reply("200 OK", "", "")).await;
    for addresses in [
        &["127.0.0.1"][..],
        &["::1"],
        &["169.254.169.254"],
        &["10.1.2.3", "192.168.1.1", "fd00::1"],
        &["::ffff:127.0.0.1"],
        &["64:ff9b::7f00:1"],
    ] {
        let webhook =
            named("metadata.example", server.address.port(), Arc::new(Egress::default()), &[addresses]);
        let failure = webhook.deliver(delivery()).await.unwrap_err();
        assert_eq!(failure.class(), Class::AuthorizationFailure, "{addresses:?}: {failure}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_name_that_changes_between_check_and_connect_reaches_nothing_private() {
    // 127.0.0.1 stands for the public internet, and 127.0.0.2 for what must not be reached.
    let public = Server::new(reply("200 OK", "connection: close\r\n", "")).await;
    let port = public.address.port();
    let secret = Server::at(&format!("127.0.0.2:{port}"), reply("200 OK", "", "")).await;
    let answers: &[&[&str]] = &[&["127.0.0.1"], &["127.0.0.2"], &["127.0.0.2", "127.0.0.1"]];
    let webhook = named("rebind.example", port, loopback(), answers);
    webhook.deliver(delivery()).await.expect("what was checked is what was connected to");
    let failure = webhook.deliver(delivery()).await.unwrap_err();
    assert_eq!(failure.class(), Class::AuthorizationFailure, "{failure}");
    webhook.deliver(delivery()).await.expect("of several only the open one is tried");
    assert_eq!((public.connections(), secret.connections()), (2, 0));
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_not_followed() {
    let secret = Server::at("127.0.0.2:0", reply("200 OK", "", "")).await;
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"] {
        let location = format!("location: {}\r\nconnection: close\r\n", secret.url());
        let public = Server::new(reply(status, &location, "")).await;
        let webhook = Webhook::new(config(&public.url()), loopback()).unwrap();
        let failure = webhook.deliver(delivery()).await.unwrap_err();
        assert!(
            !failure.is_retryable() && failure.message().contains("redirects are not followed"),
            "{failure}"
        );
    }
    assert_eq!(secret.connections(), 0);
}
