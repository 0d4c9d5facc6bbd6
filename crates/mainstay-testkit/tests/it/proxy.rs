//! The proxy in front of an echo server.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use mainstay_testkit::proxy::Proxy;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// Long enough that a machine under load gets there, short enough that a hanging test ends.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long silence must last to count as silence.
const SILENCE: Duration = Duration::from_millis(200);

async fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    addr
}

async fn proxied() -> (Proxy, TcpStream) {
    let proxy = Proxy::start(echo_server().await).unwrap();
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    assert_eq!(round_trip(&mut client, b"hello").await.unwrap(), b"hello");
    (proxy, client)
}

async fn round_trip(client: &mut TcpStream, bytes: &[u8]) -> io::Result<Vec<u8>> {
    client.write_all(bytes).await?;
    receive(client, bytes.len()).await
}

async fn receive(client: &mut TcpStream, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    timeout(PATIENCE, client.read_exact(&mut bytes)).await.expect("the proxy forwards in time")?;
    Ok(bytes)
}

async fn assert_silent(client: &mut TcpStream) {
    let mut byte = [0];
    let heard = timeout(SILENCE, client.read(&mut byte)).await;
    assert!(heard.is_err(), "nothing should arrive, not even an end, but: {heard:?}");
}

async fn assert_reset(client: &mut TcpStream) {
    let ended = receive(client, 1).await.unwrap_err();
    assert_eq!(ended.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn forwards_both_ways_and_ends_in_order() {
    let (proxy, mut client) = proxied().await;
    assert_eq!(proxy.connections(), 1);
    // More than every buffer on the way holds, so that back-pressure is part of the test.
    let sent: Vec<u8> = (0..8_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (mut from, mut to) = client.split();
    let mut received = Vec::new();
    let (read, ()) = tokio::join!(from.read_to_end(&mut received), async {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    });
    read.unwrap();
    assert!(received == sent, "{} bytes of {} came back", received.len(), sent.len());
}

#[tokio::test]
async fn cut_resets_the_live_and_refuses_the_new_until_healed() {
    let (proxy, mut client) = proxied().await;
    proxy.cut().await;
    assert_eq!(proxy.connections(), 0);
    assert_reset(&mut client).await;
    let refused = TcpStream::connect(proxy.addr()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

    proxy.heal().await;
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    assert_eq!(round_trip(&mut client, b"again").await.unwrap(), b"again");
}

#[tokio::test]
async fn cut_connections_spares_the_new() {
    let (proxy, mut client) = proxied().await;
    proxy.cut_connections().await;
    assert_reset(&mut client).await;
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    assert_eq!(round_trip(&mut client, b"new").await.unwrap(), b"new");
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn half_open_is_silent_and_delivers_in_order_when_healed() {
    let (proxy, mut old) = proxied().await;
    proxy.half_open();
    let mut new = TcpStream::connect(proxy.addr()).await.unwrap();
    old.write_all(b"one ").await.unwrap();
    assert_silent(&mut old).await;
    old.write_all(b"two").await.unwrap();
    new.write_all(b"three").await.unwrap();
    assert_silent(&mut new).await;

    proxy.heal().await;
    assert_eq!(receive(&mut old, 7).await.unwrap(), b"one two");
    assert_eq!(receive(&mut new, 5).await.unwrap(), b"three");
}

#[tokio::test]
async fn half_open_hides_the_end_of_a_stream() {
    let (proxy, mut client) = proxied().await;
    proxy.half_open();
    client.shutdown().await.unwrap();
    assert_silent(&mut client).await;
    proxy.heal().await;
    let ended = timeout(PATIENCE, client.read(&mut [0])).await.expect("the end arrives in time");
    assert_eq!(ended.unwrap(), 0);
}

#[tokio::test]
async fn a_half_open_connection_can_be_cut() {
    let (proxy, mut client) = proxied().await;
    proxy.half_open();
    client.write_all(b"lost").await.unwrap();
    proxy.cut().await;
    assert_reset(&mut client).await;
}

#[tokio::test]
async fn delay_holds_each_direction() {
    const DELAY: Duration = Duration::from_millis(150);
    let (proxy, mut client) = proxied().await;
    proxy.delay(DELAY);
    let start = Instant::now();
    round_trip(&mut client, b"slow").await.unwrap();
    let took = start.elapsed();
    assert!(took >= 2 * DELAY, "both directions are delayed, but it took {took:?}");

    proxy.delay(PATIENCE * 10);
    client.write_all(b"late").await.unwrap();
    assert_silent(&mut client).await;
    proxy.heal().await;
    assert_eq!(receive(&mut client, 4).await.unwrap(), b"late");
}

#[tokio::test]
async fn delay_does_not_add_up_chunk_by_chunk() {
    let (proxy, mut client) = proxied().await;
    proxy.delay(Duration::from_millis(50));
    let start = Instant::now();
    let sent = vec![7; 12_000_000];
    let (mut from, mut to) = client.split();
    let mut received = vec![0; sent.len()];
    let (read, written) = tokio::join!(from.read_exact(&mut received), to.write_all(&sent));
    read.unwrap();
    written.unwrap();
    // About 750 chunks: one delay after the other would be more than half a minute.
    let took = start.elapsed();
    assert!(took < Duration::from_secs(8), "chunks wait side by side, but it took {took:?}");
}

#[tokio::test]
async fn stops_when_dropped() {
    let (proxy, mut client) = proxied().await;
    let addr = proxy.addr();
    drop(proxy);
    let ended = timeout(PATIENCE, client.read(&mut [0])).await.expect("the connection ends in time");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    let refused = TcpStream::connect(addr).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_server_that_is_away_resets_the_client() {
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = Proxy::start(away).unwrap();
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    assert_reset(&mut client).await;
}
