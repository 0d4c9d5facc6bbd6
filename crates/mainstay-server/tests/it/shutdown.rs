//! Stopping: what is under way is finished, what streams is told, what waits for nothing is closed.

use crate::client::{get, soon};
use crate::running::{Running, options};
use crate::test_routes::gate;
use mainstay_server::Stopped;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn what_is_under_way_is_finished_and_nothing_new_is_accepted() {
    let server = Running::start(options()).await;
    let gate = gate("finishes");
    let under_way = tokio::spawn(get("/v1/test/wait/finishes").send_to(server.address));
    gate.entered.acquire().await.unwrap().forget();
    // Connected and silent: it must not hold anything up.
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut seen = [0; 12];
    idle.read_exact(&mut seen).await.unwrap();

    server.handle.stop();
    let mut rest = Vec::new();
    soon(silent.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"");
    soon(idle.read_to_end(&mut rest)).await.unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
    assert!(!server.task.is_finished());
    gate.leave.add_permits(1);
    assert_eq!(under_way.await.unwrap().body, "\"done\"");
    assert_eq!(server.task.await.unwrap(), Stopped { abandoned: 0 });
}

#[tokio::test]
async fn answers_that_stream_are_told_to_end() {
    let server = Running::start(options()).await;
    let streaming = tokio::spawn(get("/v1/test/stream/told").send_to(server.address));
    gate("told").entered.acquire().await.unwrap().forget();
    assert_eq!(soon(server.stop()).await, Stopped { abandoned: 0 });
    assert_eq!(streaming.await.unwrap().body, "hello goodbye");
}

#[tokio::test]
async fn a_request_that_outlasts_the_grace_is_given_up() {
    let server = Running::start(options().shutdown_grace(Duration::from_millis(50))).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let ask = get("/v1/test/wait/outlasts").text(server.address);
    stream.write_all(ask.as_bytes()).await.unwrap();
    gate("outlasts").entered.acquire().await.unwrap().forget();
    assert_eq!(soon(server.stop()).await, Stopped { abandoned: 1 });
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert_eq!(rest, b"");
}
