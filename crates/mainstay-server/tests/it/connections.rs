//! Many connections at once: probes and admins are served whatever others hold open.

use crate::client::{Answer, Request, get, soon};
use crate::running::{Running, options};
use mainstay_server::Role;
use std::net::{IpAddr, SocketAddr};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

const ORDINARY: &str = "/v1/test/who";

async fn connect(server: &Running, from: IpAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    socket.connect(server.address).await.unwrap()
}

async fn ask(server: &Running, from: IpAddr, request: Request) -> Answer {
    let mut stream = connect(server, from).await;
    soon(request.send_over(&mut stream, server.address)).await
}

/// Connections that never send a whole request.
async fn half_open(server: &Running, from: IpAddr, count: usize) -> Vec<TcpStream> {
    let mut silent = Vec::new();
    for number in 0..count {
        let mut stream = connect(server, from).await;
        if number % 2 == 0 {
            // A reserved place may have been given to another meanwhile.
            let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nHost: loc").await;
        }
        silent.push(stream);
    }
    silent
}

fn local(end: u8) -> IpAddr {
    [127, 0, 0, end].into()
}

#[tokio::test]
async fn half_open_connections_of_one_address_keep_out_neither_probes_nor_others() {
    let server = Running::start(options()).await;
    let (admin, operator) = (server.token(Role::Admin).await, server.token(Role::Operator).await);
    let silent = half_open(&server, local(1), 1_140).await;
    for _ in 0..10 {
        for path in ["/livez", "/readyz", "/health/ready", "/health/live"] {
            for end in [1, 2] {
                assert_eq!(ask(&server, local(end), get(path)).await.status, 200, "{path} from {end}");
            }
        }
    }
    let request = || get(ORDINARY);
    assert_eq!(ask(&server, local(2), request().token(&operator)).await.status, 200, "another address");
    assert_eq!(ask(&server, local(1), request().token(&admin)).await.status, 200, "an admin");
    for refused in [request(), request().token(&operator), request().token("mst_wrong"), get("/nothing")] {
        let answer = ask(&server, local(1), refused).await;
        answer.problem(503, "CONNECTIONS_FULL");
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(answer.header("retry-after").is_some());
    }
    let metrics = ask(&server, local(2), get("/metrics").token(&operator)).await;
    let refused =
        metrics.body.lines().find_map(|line| line.strip_prefix("mainstay_server_connections_refused_total "));
    assert!(refused.is_some_and(|count| count != "0"), "{}", metrics.body);
    drop(silent);
    // Places that are left are free.
    soon(async { while ask(&server, local(1), request().token(&operator)).await.status != 200 {} }).await;
}

#[tokio::test]
async fn a_server_without_room_serves_probes_and_admins_from_its_reserve() {
    let server = Running::start(options().max_connections(20).max_connections_per_address(10)).await;
    let (admin, reader) = (server.token(Role::Admin).await, server.token(Role::Reader).await);
    let mut silent = half_open(&server, local(1), 10).await;
    silent.extend(half_open(&server, local(2), 10).await);
    for end in [1, 2, 3] {
        assert_eq!(ask(&server, local(end), get("/health/ready")).await.status, 200);
        assert_eq!(ask(&server, local(end), get(ORDINARY).token(&admin)).await.status, 200);
        ask(&server, local(end), get(ORDINARY).token(&reader)).await.problem(503, "CONNECTIONS_FULL");
    }
    drop(silent);
}

#[tokio::test]
async fn a_proxy_has_no_share_of_its_own() {
    let proxies = ["127.0.0.1/32".parse().unwrap()];
    let server = Running::start(options().max_connections_per_address(1).proxies(proxies)).await;
    let _silent = (half_open(&server, local(1), 5).await, half_open(&server, local(2), 1).await);
    assert_eq!(ask(&server, local(1), get(ORDINARY)).await.status, 200);
    ask(&server, local(2), get(ORDINARY)).await.problem(503, "CONNECTIONS_FULL");
}

#[tokio::test]
async fn a_request_names_the_server_once_whatever_it_asks_for() {
    let server = Running::start(options()).await;
    let said = async |text: String| {
        let mut stream = connect(&server, local(1)).await;
        stream.write_all(text.as_bytes()).await.unwrap();
        soon(crate::client::read(&mut stream)).await
    };
    for path in ["/livez", ORDINARY, "/console/login", "/nothing", "/openapi.json"] {
        for hosts in [
            "",
            "Host: localhost\r\nHost: localhost\r\n",
            "Host: a\r\nHost: b\r\n",
            "Host: a b\r\n",
            "Host: \r\n",
        ] {
            let answer = said(format!("GET {path} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n")).await;
            answer.problem(400, "HOST_INVALID");
        }
    }
    assert_eq!(said("GET /livez HTTP/1.0\r\n\r\n".to_owned()).await.status, 200, "an old probe");
}
