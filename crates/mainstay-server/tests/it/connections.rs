//! Many connections at once: probes and admins are served whatever others hold open.

use crate::client::{Answer, Request, get, post, read, soon};
use crate::running::{Running, options};
use crate::test_routes::gate;
use mainstay_server::{Options, Role, equipped};
use mainstay_store::{Store, Tx};
use mainstay_testkit::stores::{Kind, Place};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const ORDINARY: &str = "/v1/test/who";
/// Time for which an ordinary connection waits for the body of a request that is answered.
const LEFTOVER: Duration = Duration::from_millis(500);
/// The fewest readers of a store.
const READERS: usize = 2;
/// Far longer than a token is looked up for, and shorter than a store waits for a reader.
const LOOKUP: Duration = Duration::from_secs(3);

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

/// A server of which all ordinary places are taken, with eight in reserve.
async fn full(further: Options) -> (Running, Vec<TcpStream>) {
    full_on(further, equipped(Place::new(Kind::SqliteMemory).options()).open().await.unwrap()).await
}

async fn full_on(further: Options, store: Store) -> (Running, Vec<TcpStream>) {
    let server = Running::start_on(further.max_connections(20).max_connections_per_address(10), store).await;
    let mut silent = half_open(&server, local(1), 10).await;
    silent.extend(half_open(&server, local(2), 10).await);
    // They are counted once they are accepted, which is before a later connection is answered.
    ask(&server, local(3), get(ORDINARY)).await.problem(503, "CONNECTIONS_FULL");
    (server, silent)
}

/// Connections from several addresses that send a text, and then nothing; more than there are reserved places.
async fn unfinished(server: &Running, text: &str) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for number in 0..40 {
        let mut stream = connect(server, local(10 + number)).await;
        // Its place may have been given to another connection meanwhile.
        let _ = stream.write_all(text.as_bytes()).await;
        open.push(stream);
    }
    open
}

fn head(line: &str, token: &str) -> String {
    format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    )
}

/// Probes and admins of any address are answered.
async fn is_open(server: &Running, admin: &str) {
    for end in [3, 4] {
        assert_eq!(ask(server, local(end), get("/livez")).await.status, 200);
        assert_eq!(ask(server, local(end), get("/health/ready")).await.status, 200);
        assert_eq!(ask(server, local(end), get(ORDINARY).token(admin)).await.status, 200);
    }
}

#[tokio::test]
async fn requests_without_an_admins_token_hold_no_place_of_the_reserve() {
    let (server, _silent) = full(options()).await;
    let admin = server.token(Role::Admin).await;
    for line in [
        "GET /livez",
        "GET /health",
        "GET /health/ready",
        "POST /livez",
        "POST /v1/test/echo",
        "GET /nothing",
    ] {
        let _unfinished = unfinished(&server, &head(line, "mst_wrong")).await;
        is_open(&server, &admin).await;
        // It is answered before its body is there, and the connection ends with that.
        let mut stream = connect(&server, local(5)).await;
        stream.write_all(head(line, "mst_wrong").as_bytes()).await.unwrap();
        let asked = Instant::now();
        let answer = soon(read(&mut stream)).await;
        assert!(asked.elapsed() < LEFTOVER, "{line}: {:?}", asked.elapsed());
        assert_eq!(answer.header("connection"), Some("close"), "{line}: {answer:?}");
    }
}

#[tokio::test]
async fn an_admins_body_that_does_not_come_holds_no_place_of_the_reserve() {
    let (server, _silent) = full(options().body_timeout(Duration::from_secs(1))).await;
    let admin = server.token(Role::Admin).await;
    let slow = head("POST /v1/test/echo", &admin) + "{";
    let _unfinished = unfinished(&server, &slow).await;
    is_open(&server, &admin).await;
    let mut stream = connect(&server, local(5)).await;
    stream.write_all(slow.as_bytes()).await.unwrap();
    soon(read(&mut stream)).await.problem(408, "BODY_TIMEOUT");
    let whole = post("/v1/test/echo", r#"{"text":"all of it"}"#).token(&admin);
    assert_eq!(ask(&server, local(5), whole).await.status, 200);
}

#[tokio::test]
async fn the_reserve_serves_neither_admins_of_a_tenant_nor_answers_that_take_long() {
    let (server, _silent) = full(options()).await;
    let (admin, of_tenant) = (server.token(Role::Admin).await, server.token_of("acme", Role::Admin).await);
    ask(&server, local(3), get(ORDINARY).token(&of_tenant)).await.problem(503, "CONNECTIONS_FULL");
    for request in [
        get("/v1/events/subscribe"),
        get("/v1/test/stream/reserve"),
        post("/v1/pools/shop/claim", r#"{"functions":["remote"],"waitMs":60000}"#),
        get("/v1/work/work-1?waitMs=60000"),
        get("/console/live"),
        get("/console"),
    ] {
        let answer = ask(&server, local(3), request.clone().token(&admin)).await;
        assert_eq!(answer.problem(503, "CONNECTIONS_FULL")["code"], "CONNECTIONS_FULL", "{request:?}");
    }
    is_open(&server, &admin).await;
}

#[tokio::test]
async fn one_address_takes_no_more_than_its_share_of_the_reserve() {
    let (server, _silent) = full(options()).await;
    let admin = server.token(Role::Admin).await;
    let waiting = get("/v1/test/wait/reserve").token(&admin).text(server.address);
    let mut busy = Vec::new();
    for _ in 0..4 {
        let mut stream = connect(&server, local(3)).await;
        stream.write_all(waiting.as_bytes()).await.unwrap();
        gate("reserve").entered.acquire().await.unwrap().forget();
        busy.push(stream);
    }
    // Half of the reserve is free, and not for this address.
    let mut refused = connect(&server, local(3)).await;
    // It is closed at once, perhaps before the request is written.
    let _ = refused.write_all(get("/livez").text(server.address).as_bytes()).await;
    let mut said = Vec::new();
    let _ = soon(refused.read_to_end(&mut said)).await;
    assert!(said.is_empty(), "{said:?}");
    for _ in 0..4 {
        assert_eq!(ask(&server, local(4), get(ORDINARY).token(&admin)).await.status, 200);
    }
    gate("reserve").leave.add_permits(4);
    for mut stream in busy {
        assert_eq!(soon(read(&mut stream)).await.status, 200, "a place that is kept is not given away");
    }
    assert_eq!(ask(&server, local(3), get(ORDINARY).token(&admin)).await.status, 200);
}

#[tokio::test]
async fn a_token_is_looked_up_for_a_moment_only_while_the_reserve_is_used() {
    let place = Place::new(Kind::SqliteFile);
    let store = equipped(place.options().readers(READERS)).open().await.unwrap();
    let (server, _silent) = full_on(options(), store.clone()).await;
    let admin = server.token(Role::Admin).await;
    let ((started, has_started), (go, may_go)) = (mpsc::channel(), mpsc::channel::<()>());
    let may_go = Arc::new(Mutex::new(may_go));
    // Threads of their own, which may stand still with all readers.
    let busy = [(); READERS].map(|()| {
        let (store, started, may_go) = (store.clone(), started.clone(), may_go.clone());
        std::thread::spawn(move || {
            let hold = async |tx: Tx, (started, go): (mpsc::Sender<()>, Arc<Mutex<mpsc::Receiver<()>>>)| {
                tx.query("SELECT 1", &[]).await?;
                started.send(()).unwrap();
                let _ = go.lock().unwrap().recv();
                Ok(())
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(store.read_with((started, may_go), hold)).unwrap();
        })
    });
    let all_started = move || (0..READERS).for_each(|_| has_started.recv().unwrap());
    tokio::task::spawn_blocking(all_started).await.unwrap();
    let asked = Instant::now();
    ask(&server, local(3), get(ORDINARY).token(&admin)).await.problem(503, "CONNECTIONS_FULL");
    assert!(asked.elapsed() < LOOKUP, "{:?}", asked.elapsed());
    drop(go);
    tokio::task::spawn_blocking(move || busy.map(|thread| thread.join().unwrap())).await.unwrap();
    assert_eq!(ask(&server, local(3), get(ORDINARY).token(&admin)).await.status, 200);
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
        soon(read(&mut stream)).await
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
