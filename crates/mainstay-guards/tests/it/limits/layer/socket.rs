//! The same over a socket.

use super::{Door, bucket};
use mainstay_guards::http::{Key, ProxyHeader, TrustedProxies};
use mainstay_guards::limits::{RateLimitLayer, Rule};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn ask(address: SocketAddr, forwarded: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nhost: x\r\n{forwarded}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn b_045_whoever_connects_is_known_by_the_socket_and_not_by_what_it_says() {
    let proxies = TrustedProxies::within(ProxyHeader::x_forwarded_for(), ["10.0.0.0/8"]).unwrap();
    let rule = Rule::new("address", bucket(2.0, 0.1), Key::address(proxies)).unwrap();
    let door = Door::behind(RateLimitLayer::http().rule(rule).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = door.router.clone().into_make_service_with_connect_info::<SocketAddr>();
    let server = tokio::spawn(axum::serve(listener, service).into_future());
    for number in 0..2 {
        let answer = ask(address, &format!("x-forwarded-for: 192.0.2.{number}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("served"), "{answer}");
        assert!(answer.contains(&format!("ratelimit: \"address\";r={}", 1 - number)), "{answer}");
    }
    let denied = ask(address, "x-forwarded-for: 192.0.2.77\r\n").await;
    assert!(denied.starts_with("HTTP/1.1 429 Too Many Requests"), "{denied}");
    assert!(
        denied.contains("retry-after: 10\r\n") && denied.contains("\"code\":\"RATE_LIMITED\""),
        "{denied}"
    );
    server.abort();
}
