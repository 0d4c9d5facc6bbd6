//! Where calls may go: only to addresses that were checked, whatever names say.

use super::server::{Server, reply};
use super::{call, client, function};
use futures_util::future::BoxFuture;
use mainstay_core::failure::Class;
use mainstay_work::egress::Egress;
use mainstay_work::http::{Failure, HttpConfig, HttpFunction, Resolver};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

/// A resolver that has an answer prepared for each time it is asked.
#[derive(Default)]
struct Answers(Mutex<VecDeque<Vec<IpAddr>>>);

impl Answers {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let addresses = |texts: &&[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Self(Mutex::new(answers.iter().map(addresses).collect())))
    }

    fn left(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Resolver for Answers {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let answer = self.0.lock().unwrap().pop_front();
        Box::pin(async move { answer.ok_or_else(|| io::Error::other("asked once too often")) })
    }
}

/// 127.0.0.1 stands for the public internet, and 127.0.0.2 for what must not be reached.
fn only_the_first() -> Arc<Egress> {
    Arc::new(Egress::new(&["127.0.0.1".to_owned()]).unwrap())
}

/// A server at each of the two addresses, on the same port; each hangs up after a reply.
async fn twins() -> (Server, Server) {
    let then = reply("200 OK", "connection: close\r\n", "1");
    loop {
        let public = Server::new(then.clone()).await;
        let secret = SocketAddr::new("127.0.0.2".parse().unwrap(), public.address.port());
        // Free at one address may be taken at the other.
        if std::net::TcpListener::bind(secret).is_ok() {
            return (public, Server::at(secret, then).await);
        }
    }
}

fn named(port: u16, resolver: &Arc<Answers>) -> HttpFunction {
    let client = client(only_the_first(), Arc::clone(resolver) as Arc<dyn Resolver>);
    HttpFunction::with_client(HttpConfig::new(format!("http://rebind.example:{port}/")), client).unwrap()
}

async fn refused(function: &HttpFunction) -> Failure {
    let failure = call(function).await.unwrap_err();
    assert_eq!(failure.class(), Class::AuthorizationFailure, "{failure}");
    failure
}

#[tokio::test]
async fn a_name_that_changes_its_mind_reaches_nothing_private() {
    let (public, secret) = twins().await;
    let resolver = Answers::new(&[&["127.0.0.1"], &["127.0.0.2"], &["127.0.0.1"]]);
    let function = named(public.address.port(), &resolver);
    assert_eq!(call(&function).await.unwrap().get(), "1");
    assert_eq!(resolver.left(), 2, "asked once: what was checked is what was connected to");
    let failure = refused(&function).await;
    assert!(
        failure.message().contains("rebind.example may not be reached: 127.0.0.2 is a loopback address"),
        "{failure}"
    );
    assert_eq!(call(&function).await.unwrap().get(), "1", "and back again");
    assert_eq!((public.connections(), secret.connections(), resolver.left()), (2, 0, 0));
}

#[tokio::test]
async fn of_several_addresses_only_the_open_ones_are_tried() {
    let (public, secret) = twins().await;
    let resolver = Answers::new(&[&["127.0.0.2", "127.0.0.1"], &["127.0.0.1", "127.0.0.2"]]);
    let function = named(public.address.port(), &resolver);
    for _ in 0..2 {
        assert_eq!(call(&function).await.unwrap().get(), "1");
    }
    drop(public);
    let resolver = Answers::new(&[&["127.0.0.1", "127.0.0.2"]]);
    let function = named(secret.address.port(), &resolver);
    assert!(
        call(&function).await.unwrap_err().is_retryable(),
        "the open one is down, and the other stays closed"
    );
    assert_eq!(secret.connections(), 0);
}

#[tokio::test]
async fn an_address_instead_of_a_name_is_checked_too() {
    let (public, secret) = twins().await;
    let port = secret.address.port();
    let resolver = Answers::new(&[]);
    let at = |host: &str| {
        let client = client(only_the_first(), Arc::clone(&resolver) as Arc<dyn Resolver>);
        HttpFunction::with_client(HttpConfig::new(format!("http://{host}:{port}/")), client).unwrap()
    };
    for host in
        ["127.0.0.2", "[::ffff:127.0.0.2]", "[::ffff:7f00:2]", "[::1]", "0.0.0.0", "[::]", "169.254.169.254"]
    {
        refused(&at(host)).await;
    }
    assert_eq!(call(&at("127.0.0.1")).await.unwrap().get(), "1");
    assert_eq!((public.connections(), secret.connections()), (1, 0));
}

#[tokio::test]
async fn the_odd_spellings_of_an_address_are_checked_as_what_they_mean() {
    let secret = Server::at("127.0.0.2:0".parse().unwrap(), reply("200 OK", "", "1")).await;
    let port = secret.address.port();
    for host in ["127.2", "2130706434", "0x7f.0.0.2", "0177.0.0.2"] {
        let url = format!("http://{host}:{port}/");
        let Ok(function) = HttpFunction::new(HttpConfig::new(url), only_the_first()) else { continue };
        // The operating system may know the spelling or not; that nothing is reached holds either way.
        call(&function).await.unwrap_err();
    }
    assert_eq!(secret.connections(), 0);
}

#[tokio::test]
async fn without_any_rule_this_machine_is_out_of_reach() {
    let server = Server::new(reply("200 OK", "", "1")).await;
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{}/", server.address.port());
        let function = HttpFunction::new(HttpConfig::new(url), Arc::new(Egress::default())).unwrap();
        refused(&function).await;
    }
    assert_eq!(server.connections(), 0);
    assert!(call(&function(&server.url())).await.is_ok(), "the server itself is well");
}

#[tokio::test]
async fn b_086_a_name_that_nobody_knows_may_be_known_later() {
    let (unknown, empty) = (Answers::new(&[]), Answers::new(&[&[]]));
    for (resolver, reason) in
        [(unknown, "cannot be resolved: asked once too often"), (empty, "has no address")]
    {
        let failure = call(&named(80, &resolver)).await.unwrap_err();
        assert_eq!(failure.class(), Class::TemporaryServiceUnavailable);
        assert!(failure.message().contains(&format!("rebind.example {reason}")), "{failure}");
    }
}
