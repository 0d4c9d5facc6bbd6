//! The console as a browser meets it: who comes in, what is drawn, what forms do, and what keeps others out.

mod events;
mod forms;
mod login;
mod overview;
mod traces;
mod views;
mod work;

use crate::client::{Answer, Request, get, request};
use crate::running::{Running, options};
use mainstay_events::{Append, Event, NewEvent};
use mainstay_flows::delivery::publications::{Delivery, Retry, Target, Targets};
use mainstay_flows::projections::{Category, Model, Poison, Projecting, Projection, Registry};
use mainstay_server::{Builder, Role, Services, equipped};
use mainstay_store::{Store, Tx};
use mainstay_testkit::stores::Place;
use mainstay_work::{Call, Engine, Failure, Functions, NewWork, Pool, RetryPolicy};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(20);
/// What somebody else may have written, and no page may run.
const EVIL: &str = "<script>alert(1)</script><img src=x onerror=alert(1)>";

/// A server with something of everything.
struct House {
    server: Running,
    services: Services,
    _engine: Engine,
    _projecting: Projecting,
    event_id: String,
    work_id: String,
}

impl House {
    async fn open(place: &Place) -> Self {
        let functions = Functions::new()
            .action("note", async |_: Call, what: String| Ok::<_, Failure>(what))
            .action("charge", async |_: Call, _: String| Err::<(), _>(Failure::permanent(EVIL)));
        let spoiled = async |_: Tx, _: Model, event: Event| match event.event_type() {
            "OrderSpoiled" => Err(mainstay_store::Error::application("spoiled")),
            _ => Ok(()),
        };
        let orders = Projection::new("orders", Category::View)
            .poison(Poison::new(1, false))
            .reset(async |_: Tx| Ok(()))
            .each(spoiled);
        let store = equipped(place.options()).open().await.unwrap();
        let registry = Registry::new().with(orders);
        let targets = Targets::new(Retry { max_retries: 1, initial_backoff_ms: 1, base: 1.0 })
            .with(Target::subscriber("inventory", async |_: Delivery| Err(Failure::permanent("no"))));
        let services = Builder::on_store(store.clone())
            .projections(registry)
            .targets(targets)
            .functions(functions)
            .open();
        let services = services.await.unwrap();
        services.work.pool(Pool::new("shop").retry(RetryPolicy::new(1, 1, 1.0, 1).unwrap())).await.unwrap();
        let (engine, projecting) = (services.work.start().await.unwrap(), services.projections.start());
        let server = Running::start_with(options(), services.clone()).await;
        let charge = NewWork::new("shop", "charge", EVIL).unwrap().correlated("corr-1");
        let work_id = services.work.enqueue(charge).await.unwrap().work_id;
        services.work.wait_for(&work_id, PATIENCE).await.unwrap();
        let events = ["OrderSubmitted", "OrderSpoiled"].map(|name| {
            NewEvent::new(name, &EVIL).unwrap().stream("Order", "o/1").tag("order:o 1").correlation("corr-1")
        });
        let appended = services.log.append(Append::new(events)).await.unwrap();
        let event_id = appended.events[0].event_id.clone();
        Self { server, services, _engine: engine, _projecting: projecting, event_id, work_id }
    }

    pub(crate) async fn log_in(&self, role: Role) -> Browser {
        let token = self.server.token(role).await;
        Browser::log_in(&self.server, &token).await
    }
}

/// Somebody with a cookie.
pub(crate) struct Browser {
    address: std::net::SocketAddr,
    cookie: String,
}

fn form(path: &str, fields: &[(&str, &str)]) -> Request {
    let body =
        fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect::<Vec<_>>().join("&");
    request("POST", path).header("Content-Type", "application/x-www-form-urlencoded").body(&body)
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() { (byte as char).to_string() } else { format!("%{byte:02X}") }
            },
        )
        .collect()
}

/// The cookie that an answer sets.
fn cookie_of(answer: &Answer) -> String {
    let set = answer.header("set-cookie").unwrap_or_else(|| panic!("no cookie: {answer:?}"));
    assert!(set.contains("HttpOnly") && set.contains("SameSite=") && set.contains("Path=/console"), "{set}");
    set.split(';').next().unwrap().to_owned()
}

impl Browser {
    pub(crate) async fn log_in(server: &Running, token: &str) -> Self {
        let answer =
            form("/console/login", &[("token", token), ("to", "/console/work")]).send(server.address).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/console/work")), "{answer:?}");
        Self { address: server.address, cookie: cookie_of(&answer) }
    }

    pub(crate) async fn send(&self, request: Request) -> Answer {
        request.header("Cookie", &self.cookie).send(self.address).await
    }

    async fn page(&self, path: &str) -> String {
        let answer = self.send(get(path)).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }

    /// What forms of this session bring along.
    async fn csrf(&self) -> String {
        let page = self.page("/console").await;
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    async fn act(&self, call: &str, fields: &[(&str, &str)]) -> Answer {
        let csrf = self.csrf().await;
        let fields = [&[("csrf", csrf.as_str()), ("call", call), ("back", "/console/work")], fields].concat();
        self.send(form("/console/act", &fields)).await
    }
}

async fn follow(browser: &Browser, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(browser.address).await.unwrap();
    let text = get(path).header("Cookie", &browser.cookie).header("HX-Request", "true").text(browser.address);
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Comes back when the clock of the store has moved on, so that what follows is newer.
async fn later(store: &Store) {
    let now = async || store.read(async |tx: Tx| tx.now_ms().await).await.unwrap();
    let before = now().await;
    while now().await == before {
        tokio::task::yield_now().await;
    }
}

/// The value of a tile of the overview.
fn tile<'a>(page: &'a str, title: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("<span class=\"title\">{title}</span><strong>")).unwrap();
    rest.split('<').next().unwrap()
}

/// Reads until a text has come.
async fn until(stream: &mut TcpStream, text: &str) {
    let (mut heard, mut buffer) = (String::new(), [0; 4096]);
    while !heard.contains(text) {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "it ended: {heard}");
        heard += &String::from_utf8_lossy(&buffer[..read]);
    }
}
