//! Connections are kept, and given up when they are not worth keeping.

use super::server::{Server, Then, reply};
use super::{call, function, loopback};
use mainstay_work::http::{Client, HttpConfig, HttpFunction};

#[tokio::test]
async fn calls_one_after_another_share_a_connection() {
    let server = Server::new(reply("200 OK", "", "1")).await;
    let client = Client::new(loopback());
    let first = HttpFunction::with_client(HttpConfig::new(server.url()), client.clone()).unwrap();
    let second = HttpFunction::with_client(HttpConfig::new(server.url()), client).unwrap();
    for _ in 0..3 {
        call(&first).await.unwrap();
        call(&second).await.unwrap();
    }
    assert_eq!((server.received().len(), server.connections()), (6, 1));
}

#[tokio::test]
async fn a_connection_whose_reply_was_cut_off_is_not_used_again() {
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    let server = Server::new(reply("200 OK", "", &long)).await;
    let function = function(&server.url());
    for _ in 0..2 {
        call(&function).await.unwrap_err();
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn what_follows_a_reply_on_its_line_is_not_taken_for_the_next() {
    let one = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1";
    let server = Server::new(Then::Send(one.to_owned() + &one.replace("\r\n\r\n1", "\r\n\r\n2"))).await;
    let function = function(&server.url());
    for _ in 0..3 {
        assert_eq!(call(&function).await.unwrap().get(), "1");
    }
}
