//! The same over a socket.

use super::shop::{Shop, for_each_keeper};
use mainstay_guards::http::{Key, TrustedProxies};
use mainstay_guards::once::OnceLayer;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn send(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = "POST /orders HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: 6\r\nconnection: close\r\n\r\na lamp";
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[test]
fn a_client_that_lost_its_connection_gets_its_answer_when_it_asks_again() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::shut();
        let caller = Key::address(TrustedProxies::none());
        let router = shop.behind(OnceLayer::new(kitchen.keeper.clone(), caller));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let server = tokio::spawn(axum::serve(listener, service).into_future());
        let lost = send(address).await;
        shop.begun().await;
        drop(lost);
        let told = answer(send(address).await).await;
        assert!(told.starts_with("HTTP/1.1 409") && told.contains("retry-after: 1\r\n"), "{told}");
        shop.let_end(1);
        // As a client does that was told to come back.
        let again = async {
            loop {
                let again = answer(send(address).await).await;
                if !again.starts_with("HTTP/1.1 409") {
                    return again;
                }
                tokio::task::yield_now().await;
            }
        };
        let again = tokio::time::timeout(Duration::from_secs(30), again).await.expect("an answer");
        assert!(again.starts_with("HTTP/1.1 201") && again.ends_with("run 1: a lamp"), "{again}");
        assert!(
            again.contains("idempotency-replayed: true\r\n") && again.contains("content-length: 13\r\n"),
            "{again}"
        );
        assert_eq!(shop.runs(), 1);
        server.abort();
    });
}
