//! The console as a browser meets it: who comes in, what is drawn, what forms do, and what keeps others out.

use crate::client::{Answer, Request, get, request, soon};
use crate::running::{Running, options};
use mainstay_events::{Append, Event, NewEvent};
use mainstay_flows::commands::Commands;
use mainstay_flows::delivery::intents::{NewIntent, OnTimeout};
use mainstay_flows::projections::{Category, Model, Poison, Projecting, Projection, Registry};
use mainstay_guards::circuits::Force;
use mainstay_server::audit::{Audit, Entry, Filter, Outcome};
use mainstay_server::tokens::New;
use mainstay_server::{Oversight, Role, Rooms, Server, Tokens, equipped};
use mainstay_store::{Store, Tx};
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use mainstay_work::{Call, Engine, Failure, Functions, NewWork, Pool, RetryPolicy};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(20);
/// What somebody else may have written, and no page may run.
const EVIL: &str = "<script>alert(1)</script><img src=x onerror=alert(1)>";

/// A server with something of everything.
struct House {
    server: Running,
    rooms: Rooms,
    _engine: Engine,
    _projecting: Projecting,
    event_id: String,
    work_id: String,
}

impl House {
    async fn open(place: &Place) -> Self {
        let functions = Functions::new()
            .action("charge", async |_: Call, _: String| Err::<(), _>(Failure::permanent(EVIL)));
        let spoiled = async |_: Tx, _: Model, event: Event| match event.event_type() {
            "OrderSpoiled" => Err(mainstay_store::Error::application("spoiled")),
            _ => Ok(()),
        };
        let orders = Projection::new("orders", Category::View).poison(Poison::new(1, false)).each(spoiled);
        let store = equipped(place.options()).open().await.unwrap();
        let registry = Registry::new().with(orders);
        let rooms = Rooms::open_with(&store, Commands::new(), registry, |_| functions).await.unwrap();
        rooms.work.pool(Pool::new("shop").retry(RetryPolicy::new(1, 1, 1.0, 1).unwrap())).await.unwrap();
        let (engine, projecting) = (rooms.work.start().await.unwrap(), rooms.projections.start());
        let server = Running::start_with(options(), rooms.clone()).await;
        let charge = NewWork::new("shop", "charge", EVIL).unwrap().correlated("corr-1");
        let work_id = rooms.work.enqueue(charge).await.unwrap().work_id;
        rooms.work.wait_for(&work_id, PATIENCE).await.unwrap();
        let events = ["OrderSubmitted", "OrderSpoiled"].map(|name| {
            NewEvent::new(name, &EVIL).unwrap().stream("Order", "o/1").tag("order:o 1").correlation("corr-1")
        });
        let appended = rooms.log.append(Append::new(events)).await.unwrap();
        let event_id = appended.events[0].event_id.clone();
        Self { server, rooms, _engine: engine, _projecting: projecting, event_id, work_id }
    }

    async fn log_in(&self, role: Role) -> Browser {
        let token = self.server.token(role).await;
        Browser::log_in(&self.server, &token).await
    }
}

/// Somebody with a cookie.
struct Browser {
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
    async fn log_in(server: &Running, token: &str) -> Self {
        let answer =
            form("/console/login", &[("token", token), ("to", "/console/work")]).send(server.address).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/console/work")), "{answer:?}");
        Self { address: server.address, cookie: cookie_of(&answer) }
    }

    async fn send(&self, request: Request) -> Answer {
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

#[tokio::test]
async fn who_is_not_logged_in_is_sent_to_the_login_and_back() {
    let server = Running::start(options()).await;
    for path in ["/console", "/console/events?type=A", "/console/live"] {
        let answer = get(path).send(server.address).await;
        let to = format!("/console/login?to={}", escaped(path).replace("%2D", "-"));
        assert_eq!((answer.status, answer.header("location")), (303, Some(to.as_str())));
    }
    let login = get("/console/login?to=/console/events").send(server.address).await;
    assert_eq!(login.status, 200);
    assert!(login.body.contains("value=\"/console/events\""), "{}", login.body);
    form("/console/act", &[("call", "POST /admin/replays")])
        .send(server.address)
        .await
        .problem(401, "UNAUTHENTICATED");
    for (asset, kind) in
        [("console.css", "text/css"), ("htmx.js", "text/javascript"), ("icon.svg", "image/svg+xml")]
    {
        let answer = get(&format!("/console/assets/{asset}")).send(server.address).await;
        assert!(answer.status == 200 && answer.header("content-type").unwrap().starts_with(kind), "{asset}");
    }
    assert_eq!(get("/console/assets/../Cargo.toml").send(server.address).await.status, 303);
}

#[tokio::test]
async fn a_wrong_token_comes_in_nowhere_and_is_written_down() {
    let server = Running::start(options()).await;
    let answer = form("/console/login", &[("token", "mst_no")]).send(server.address).await;
    assert!(
        answer.status == 401
            && answer.header("set-cookie").is_none()
            && answer.body.contains("unknown, revoked or expired")
    );
    let admin = server.token(Role::Admin).await;
    let audit = get("/admin/audit").token(&admin).send(server.address).await.json();
    let entry = &audit["entries"][0];
    assert_eq!(
        (&entry["action"], &entry["outcome"]),
        (&"POST /console/login".into(), &"refused".into()),
        "{audit}"
    );
    assert!(!audit.to_string().contains("mst_no"));
}

#[test]
fn a_link_lets_the_first_one_in_and_closes_nothing() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Server::bind(options(), store.clone()).await.unwrap();
        let link = server.login_link().await.unwrap();
        let path = link.strip_prefix(&server.url()).unwrap().to_owned();
        let another = server.login_link().await.unwrap().strip_prefix(&server.url()).unwrap().to_owned();
        let (address, handle) = (server.address(), server.handle());
        let running = tokio::spawn(server.run(std::future::pending()));
        let first = get(&path).send(address).await;
        assert_eq!((first.status, first.header("location")), (303, Some("/console")));
        let browser = Browser { address, cookie: cookie_of(&first) };
        assert!(browser.page("/console").await.contains("admin"));
        let second = get(&path).send(address).await;
        assert!(second.status == 401 && second.header("set-cookie").is_none(), "{second:?}");
        assert_eq!(
            written(&store).await,
            [("GET /console/login", "done"), ("GET /console/login", "refused")]
        );
        let both = tokio::join!(get(&another).send_to(address), get(&another).send_to(address));
        let mut both = [both.0.status, both.1.status];
        both.sort_unstable();
        assert_eq!(both, [303, 401], "of two at once, one");
        assert!(!Tokens::new(store.clone()).exist().await.unwrap(), "the API is as open as before");
        assert_eq!(get("/v1/events").send(address).await.status, 200);
        handle.stop();
        running.await.unwrap();
    });
}

/// What is written down of ways in and out, the oldest first.
async fn written(store: &Store) -> Vec<(&'static str, &'static str)> {
    let all = Filter { after: Some(0), ..Filter::default() };
    let all = Audit::new(store.clone()).list(all, 1_000).await.unwrap();
    let ways = ["GET /console/login", "POST /console/login", "POST /console/logout"];
    let of = |entry: Entry| {
        let way = ways.into_iter().find(|way| *way == entry.action)?;
        assert!(!entry.args.to_string().contains("link="), "{entry:?}");
        assert!(entry.outcome == Outcome::Refused || entry.user_id != "nobody", "{entry:?}");
        Some((way, entry.outcome.as_str()))
    };
    all.into_iter().filter_map(of).collect()
}

#[test]
fn a_link_of_a_token_that_was_revoked_lets_nobody_in() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Server::bind(options(), store.clone()).await.unwrap();
        let path = server.login_link().await.unwrap().strip_prefix(&server.url()).unwrap().to_owned();
        let address = server.address();
        let running = tokio::spawn(server.run(std::future::pending()));
        let sessions = async || {
            let ids = async |tx: Tx| tx.query("SELECT token_id FROM mainstay_console_sessions", &[]).await;
            let rows = store.read(ids).await.unwrap();
            rows.iter().map(|row| row.get::<String>(0).unwrap()).collect::<Vec<_>>()
        };
        let [id] = &sessions().await[..] else { panic!("one link") };
        let tokens = Tokens::new(store.clone());
        let (_, admin) = tokens.create(New::named("admin", Role::Admin).unwrap()).await.unwrap();
        let revoke = request("DELETE", &format!("/admin/tokens/{id}")).token(admin.reveal());
        assert_eq!(revoke.send(address).await.status, 200);
        let refused = get(&path).send(address).await;
        assert!(refused.status == 401 && refused.header("set-cookie").is_none(), "{refused:?}");
        assert!(sessions().await.is_empty(), "the link is used up, and left no session");
        assert_eq!(written(&store).await, [("GET /console/login", "refused")]);
        running.abort();
    });
}

#[tokio::test]
async fn what_proxies_say_counts_from_ones_own_alone() {
    let place = Place::new(Kind::SqliteMemory);
    let store = equipped(place.options()).open().await.unwrap();
    let plain = Running::start_on(options(), store.clone()).await;
    let behind = options().proxies(["127.0.0.1".parse().unwrap()]);
    let behind = Running::start_on(behind, store.clone()).await;
    let elsewhere = options().proxies(["203.0.113.0/24".parse().unwrap()]);
    let elsewhere = Running::start_on(elsewhere, store).await;
    let token = plain.token(Role::Reader).await;
    let log_in = |header: &str, value: &str| {
        form("/console/login", &[("token", &token)]).header("Host", "console.example").header(header, value)
    };
    for (header, value) in [
        ("X-Forwarded-For", "203.0.113.5"),
        ("X-Forwarded-Host", "console.example"),
        ("X-Forwarded-Proto", "https"),
        ("Forwarded", "for=203.0.113.5;proto=https"),
        ("Via", "1.1 proxy"),
        ("X-Real-IP", "203.0.113.5"),
    ] {
        for server in [&plain, &elsewhere] {
            log_in(header, value).send(server.address).await.problem(403, "ORIGIN_REFUSED");
        }
        let let_in = log_in(header, value).send(behind.address).await;
        let cookie = let_in.header("set-cookie").unwrap_or_else(|| panic!("{header}: {let_in:?}"));
        assert_eq!(cookie.ends_with("; Secure"), value.contains("https"), "{header}: {cookie}");
    }
    log_in("X-Other", "1").send(behind.address).await.problem(403, "ORIGIN_REFUSED");
    // Under a name of this machine anybody may ask; what it says about TLS counts for nothing.
    let local = form("/console/login", &[("token", &token)]).header("X-Forwarded-Proto", "https");
    assert!(!local.send(plain.address).await.header("set-cookie").unwrap().contains("Secure"));
}

#[test]
fn every_view_is_drawn_and_runs_nothing_of_others() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let browser = house.log_in(Role::Admin).await;
        let letter = {
            let page = browser.page("/console/dead-letters").await;
            let (_, rest) = page
                .split_once("href=\"/console/dead-letters/")
                .filter(|_| page.contains("&lt;script"))
                .unwrap();
            let found =
                rest.split("href=\"/console/dead-letters/").find(|rest| !rest.starts_with("operations"));
            found.unwrap().split('"').next().unwrap().to_owned()
        };
        let views = [
            "/console".to_owned(),
            "/console/events".to_owned(),
            "/console/events?type=OrderSubmitted&tag=order%3Ao+1&from=2020-01-01T00:00&to=".to_owned(),
            format!("/console/events/{}", house.event_id),
            "/console/streams/Order/o%2F1".to_owned(),
            "/console/events?stream=Order/o%2F1".to_owned(),
            "/console/traces/corr-1".to_owned(),
            "/console/work".to_owned(),
            "/console/work?state=failed&function=charge".to_owned(),
            "/console/work/pools/shop".to_owned(),
            format!("/console/work/{}", house.work_id),
            "/console/work/unknown".to_owned(),
            "/console/projections".to_owned(),
            "/console/projections/orders".to_owned(),
            format!("/console/dead-letters/{letter}"),
            "/console/dead-letters?status=pending&kind=work".to_owned(),
            "/console/dead-letters/operations".to_owned(),
            "/console/publications".to_owned(),
            "/console/intents".to_owned(),
            "/console/circuits".to_owned(),
            "/console/circuits/payments".to_owned(),
            "/console/limits".to_owned(),
            "/console/limits/adminOperations?key=a".to_owned(),
            "/console/audit".to_owned(),
            "/console/configuration".to_owned(),
        ];
        let forced = [("set.state", "open"), ("set.reason", "by hand")];
        assert_eq!(browser.act("POST /admin/circuits/payments/force", &forced).await.status, 303);
        let api = get("/openapi.json").send(house.server.address).await.json();
        let mut calls = BTreeSet::new();
        for view in views {
            let page = browser.page(&view).await;
            for form in page.split("action=\"/console/act\"").skip(1) {
                let form = form.split("</form>").next().unwrap();
                calls.insert(check_call(form, &api));
            }
            assert!(
                page.contains("<h1>") && page.contains("hx-sse:connect=\"/console/live"),
                "{view}: {page}"
            );
            assert!(
                !page.contains("<script>") && !page.contains("<img") && !page.contains("style="),
                "{view}: {page}"
            );
        }
        for call in &calls {
            let route =
                house.server.table.iter().find(|route| format!("{} {}", route.method, route.path) == *call);
            assert_ne!(
                route.unwrap().oversight,
                Oversight::Usual,
                "what {call} does is written down nowhere"
            );
        }
        let called = "POST /admin/circuits/{name}/release";
        assert!(calls.len() >= 12 && calls.contains(called), "{calls:?}");
        for (view, status) in [
            ("/console/nothing", 404),
            ("/console/events/unknown", 404),
            ("/console/projections/unknown", 404),
            ("/console/work?cursor=bad", 400),
        ] {
            let answer = browser.send(get(view)).await;
            assert!(answer.status == status && answer.body.contains("notice bad"), "{view}: {answer:?}");
        }
        let found = browser.send(get(&format!("/console/find?id={}", house.event_id))).await;
        assert_eq!(found.header("location"), Some(format!("/console/events/{}", house.event_id).as_str()));
        let found = browser.send(get("/console/find?id=corr-1")).await;
        assert_eq!(found.header("location"), Some("/console/traces/corr-1"));
        let trace = browser.page("/console/traces/corr-1").await;
        for part in ["OrderSubmitted", "charge", "dead letter", "id=\"failure\""] {
            assert!(trace.contains(part), "{part}: {trace}");
        }
    });
}

#[tokio::test]
async fn a_token_of_a_tenant_is_led_to_what_it_may_see_and_told_why_of_the_rest() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    let event = |tenant, what: &str| {
        let data =
            NewEvent::new("OrderSubmitted", &what).unwrap().stream("Order", tenant).correlation("corr-2");
        data.tenant(tenant)
    };
    let appended =
        house.rooms.log.append(Append::new([event("acme", "ours"), event("other", "theirs")])).await.unwrap();
    let [ours, theirs] = [0, 1].map(|place: usize| appended.events[place].event_id.clone());
    let new = |tenant: &str| {
        NewIntent::new("Submission", ("Order", "1"), "orders", PATIENCE, OnTimeout::alert()).tenant(tenant)
    };
    let intent = house.rooms.intents.record(new("acme")).await.unwrap().intent_key;
    let foreign = house.rooms.intents.record(new("other")).await.unwrap().intent_key;
    let shown = [
        "/console/events".to_owned(),
        format!("/console/events/{ours}"),
        "/console/streams/Order/acme".to_owned(),
        "/console/traces/corr-2".to_owned(),
        "/console/intents".to_owned(),
        format!("/console/intents/{intent}"),
    ];
    let of_admins = ["/console/audit", "/console/configuration"];
    let of_nobody = [
        "/console/work".to_owned(),
        "/console/work/pools/shop".to_owned(),
        format!("/console/work/{}", house.work_id),
        "/console/projections".to_owned(),
        "/console/projections/orders".to_owned(),
        "/console/dead-letters".to_owned(),
        "/console/dead-letters/operations".to_owned(),
        "/console/dead-letters/letter_1".to_owned(),
        "/console/publications".to_owned(),
        "/console/circuits".to_owned(),
        "/console/circuits/payments".to_owned(),
        "/console/limits".to_owned(),
        "/console/limits/adminOperations".to_owned(),
    ];
    for role in [Role::Reader, Role::Operator, Role::Admin] {
        let tokens = Tokens::new(house.server.store.clone());
        let new = New::named("acme", role).unwrap().tenant("acme").unwrap();
        let (_, secret) = tokens.create(new).await.unwrap();
        let browser = Browser::log_in(&house.server, secret.reveal()).await;
        let landing = browser.send(get("/console")).await;
        assert_eq!((landing.status, landing.header("location")), (303, Some("/console/events")));
        let mut shown = shown.to_vec();
        if role == Role::Admin {
            shown.extend(of_admins.map(str::to_owned));
        }
        for view in &shown {
            let page = browser.page(view).await;
            assert!(!page.contains(&theirs) && !page.contains(&foreign), "{view}: {page}");
            // Whatever a page leads to is a page that can be seen.
            let (_, places) = page.split_once("nav class=\"places\"").unwrap();
            for place in places.split("</nav>").next().unwrap().split("href=\"").skip(1) {
                let place = place.split('"').next().unwrap();
                assert!(shown.iter().any(|view| view == place), "{view} leads to {place}");
            }
        }
        let trace = browser.page("/console/traces/corr-2").await;
        assert!(trace.contains(&ours) && trace.contains("belong to no tenant"), "{trace}");
        for view in &of_nobody {
            let answer = browser.send(get(view)).await;
            assert_eq!(answer.status, 403, "{view}");
            assert!(answer.body.contains("Your token is of the tenant acme"), "{view}: {}", answer.body);
        }
        let found = browser.send(get(&format!("/console/find?id={}", house.work_id))).await;
        assert_eq!(found.header("location"), Some(format!("/console/traces/{}", house.work_id).as_str()));
    }
}

#[tokio::test]
async fn a_circuit_is_found_by_a_part_of_its_name_however_many_there_are() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    for number in 0..130 {
        house.rooms.circuits.force(&format!("c{number:03}"), forced()).await.unwrap();
    }
    house.rooms.circuits.force("the-last-of-all", forced()).await.unwrap();
    let browser = house.log_in(Role::Reader).await;
    let page = browser.page("/console/circuits?name=LAST-of").await;
    let list = page.split("<h2>Changes").next().unwrap();
    assert!(list.contains("the-last-of-all") && !list.contains("c000"), "{page}");
    let first = browser.page("/console/circuits?name=c").await;
    let list = first.split("<h2>Changes").next().unwrap();
    assert!(list.contains("c099") && !list.contains("c100"), "{first}");
    let second = browser.page("/console/circuits?name=c&cursor=c099").await;
    let list = second.split("<h2>Changes").next().unwrap();
    assert!(list.contains("c100") && list.contains("c129") && !list.contains("rel=\"next\""), "{second}");
}

#[tokio::test]
async fn a_page_that_is_loaded_counts_and_pages_that_follow_do_with_that() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    let browser = house.log_in(Role::Reader).await;
    let pending = "<strong>1</strong> wait for somebody";
    assert!(browser.page("/console/dead-letters").await.contains(pending));
    let mut live = follow(&browser, "/console/live/dead-letters").await;
    let ignore =
        async |tx: Tx| tx.execute("UPDATE mainstay_dead_letters SET status = 3", &[]).await.map(drop);
    house.server.store.transact(ignore).await.unwrap();
    tokio::time::timeout(PATIENCE, until(&mut live, pending)).await.unwrap();
    assert!(browser.page("/console/dead-letters").await.contains("<strong>0</strong> wait for somebody"));
}

fn forced() -> Force {
    Force { is_open: false, actor: "test".to_owned(), reason: "by hand".to_owned(), for_ms: None }
}

/// So much ended work that one page of the API does not reach what was before.
async fn bury(house: &House, many: u32) {
    let sql = format!(
        "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < {many}) \
         INSERT INTO mainstay_ended (id, pool, state, ended_at, record) \
         SELECT unhex('ffffffffffff70008000' || printf('%012x', number)), 1, 0, 0, '{{}}' FROM numbers"
    );
    let write = async |tx: Tx, sql: String| tx.execute(&sql, &[]).await.map(drop);
    house.server.store.transact_with(sql, write).await.unwrap();
}

#[tokio::test]
async fn work_is_found_however_much_came_after_it() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    let browser = house.log_in(Role::Reader).await;
    bury(&house, 21_000).await;
    let item = format!("href=\"/console/work/{}\"", house.work_id);

    let trace = browser.page("/console/traces/corr-1").await;
    assert!(trace.contains(&item), "{trace}");
    assert!(trace.contains("Work was looked for around these moments"), "{trace}");
    let (_, rest) = trace.split_once("href=\"/console/work?").unwrap();
    let mut page = browser.page(&format!("/console/work?{}", rest.split('"').next().unwrap())).await;
    assert!(page.contains("The newest 20 000 items were looked at"), "{page}");
    assert!(page.contains("None of those is like that.") && !page.contains(&item), "{page}");
    let (_, rest) = page.rsplit_once("rel=\"next\" href=\"").unwrap();
    page = browser.page(&rest.split('"').next().unwrap().replace("&amp;", "&")).await;
    assert!(page.contains(&item) && !page.contains("items were looked at"), "{page}");
    let failed = browser.page("/console/work?state=failed").await;
    assert!(failed.contains("Go on"), "{failed}");
}

/// Asserts that a form names a call of the API and brings what that must be told; the call.
fn check_call(form: &str, api: &Value) -> String {
    let values = form.split("name=\"").skip(1).map(|rest| {
        let (name, rest) = rest.split_once('"').unwrap();
        (name, rest.strip_prefix(" value=\"").and_then(|rest| rest.split('"').next()).unwrap_or_default())
    });
    let fields: Vec<(&str, &str)> = values.collect();
    let call = fields.iter().find(|(name, _)| *name == "call").unwrap_or_else(|| panic!("{form}")).1;
    let (method, path) = call.split_once(' ').unwrap();
    let parts: Vec<&str> = path.split('/').collect();
    let is_it = |known: &&String| {
        let known: Vec<&str> = known.split('/').collect();
        let are_alike = |(one, other): (&&str, &&str)| one == other || one.starts_with('{');
        known.len() == parts.len() && known.iter().zip(&parts).all(are_alike)
    };
    let paths = api["paths"].as_object().unwrap();
    let mut found: Vec<&String> = paths.keys().filter(is_it).collect();
    found.sort_by_key(|known| known.matches('{').count());
    let route = found.first().unwrap_or_else(|| panic!("{call} is no call of the API"));
    let operation = &paths[*route][&method.to_lowercase()];
    assert!(operation.is_object(), "{call} is no call of the API");
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()).unwrap_or_default();
    let needed = api["components"]["schemas"][name]["required"].as_array().cloned().unwrap_or_default();
    let has = |field: &str| {
        fields.iter().any(|(name, _)| *name == format!("set.{field}") || *name == format!("number.{field}"))
    };
    for field in needed.iter().map(|field| field.as_str().unwrap()) {
        assert!(has(field), "{call} must be told {field}: {form}");
    }
    assert!(
        schema.is_null()
            || operation["requestBody"]["required"] != true
            || fields.iter().any(|(name, _)| name.contains('.') || *name == "document"),
        "{call} takes a document: {form}"
    );
    format!("{method} {route}")
}

#[tokio::test]
async fn a_form_does_what_its_sender_may_and_is_written_down() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    let reader = house.log_in(Role::Reader).await;
    for view in [
        "/console/work/pools/shop",
        "/console/projections/orders",
        "/console/dead-letters",
        "/console/circuits/payments",
    ] {
        let page = reader.page(view).await;
        assert!(!page.contains("action=\"/console/act\""), "{view}: {page}");
    }
    let refused = reader.act("POST /admin/pools/shop/pause", &[]).await;
    assert!(
        refused.status == 303 && refused.header("set-cookie").unwrap().contains("Operator+role+required"),
        "{refused:?}"
    );
    assert!(!house.rooms.work.pool_status("shop").await.unwrap().is_paused);

    let operator = house.log_in(Role::Operator).await;
    let done = operator.act("POST /admin/pools/shop/pause", &[("said", "The pool rests.")]).await;
    assert_eq!((done.status, done.header("location")), (303, Some("/console/work")));
    assert!(house.rooms.work.pool_status("shop").await.unwrap().is_paused);
    let told = done.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let page = get("/console/work")
        .header("Cookie", &format!("{}; {told}", operator.cookie))
        .send(operator.address)
        .await;
    assert!(page.body.contains("The pool rests."), "{}", page.body);

    let preview = [
        ("set.action", "ignore"),
        ("set.filter.kind", "work"),
        ("onward", "/console/dead-letters/operations/ with operationId"),
    ];
    let made = operator.act("POST /admin/dead-letter-operations", &preview).await;
    let place = made.header("location").unwrap().to_owned();
    assert!(place.starts_with("/console/dead-letters/operations/"), "{made:?}");
    assert!(
        operator.page(&place).await.contains("1 letters will be left for good"),
        "it says what it will do"
    );

    let admin = house.log_in(Role::Admin).await;
    let audit = admin.page("/console/audit").await;
    assert!(audit.contains("POST /admin/pools/{pool}/pause") && audit.contains("refused"), "{audit}");
    for call in ["GET /admin/tokens", "POST /console/act", "POST https://evil.example/", "nonsense"] {
        let csrf = admin.csrf().await;
        admin
            .send(form("/console/act", &[("csrf", &csrf), ("call", call)]))
            .await
            .problem(400, "BODY_INVALID");
    }
}

#[tokio::test]
async fn pages_of_elsewhere_can_do_nothing_with_somebody_elses_session() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    let admin = house.log_in(Role::Admin).await;
    let other = house.log_in(Role::Admin).await;
    let (csrf, foreign) = (admin.csrf().await, other.csrf().await);
    assert_ne!(csrf, foreign);
    let pause =
        |csrf: &str| form("/console/act", &[("csrf", csrf), ("call", "POST /admin/pools/shop/pause")]);
    for refused in [
        pause(""),
        pause(&foreign),
        pause(&csrf).header("Origin", "http://evil.example"),
        pause(&csrf).header("Origin", "null"),
        pause(&csrf).header("Sec-Fetch-Site", "cross-site"),
        pause(&csrf).header("Sec-Fetch-Site", "same-site"),
        pause(&csrf).header("Host", "evil.example"),
        get("/console").header("Host", "evil.example"),
        form("/console/logout", &[("csrf", &foreign)]),
    ] {
        admin.send(refused).await.problem(403, "ORIGIN_REFUSED");
    }
    assert!(!house.rooms.work.pool_status("shop").await.unwrap().is_paused);
    let own = format!("http://{}", house.server.address);
    assert_eq!(
        admin.send(pause(&csrf).header("Origin", &own).header("Sec-Fetch-Site", "same-origin")).await.status,
        303
    );
    assert!(house.rooms.work.pool_status("shop").await.unwrap().is_paused);
    for path in ["/console", "/console/login", "/console/nothing", "/console/assets/console.js"] {
        let answer = admin.send(get(path)).await;
        let policy = answer.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(
            (answer.header("x-frame-options"), answer.header("x-content-type-options")),
            (Some("DENY"), Some("nosniff"))
        );
    }
}

#[tokio::test]
async fn a_session_ends_with_its_token_and_by_leaving() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    let leaver = house.log_in(Role::Reader).await;
    let csrf = leaver.csrf().await;
    let mut left_open = follow(&leaver, "/console/live/events").await;
    assert_eq!(leaver.send(form("/console/logout", &[("csrf", &csrf)])).await.status, 303);
    let ways = [("POST /console/login", "done"), ("POST /console/logout", "done")];
    assert_eq!(written(&house.server.store).await, ways);
    assert_eq!(leaver.send(get("/console")).await.status, 303);
    tokio::time::timeout(PATIENCE, until(&mut left_open, "event: over")).await.unwrap();

    let tokens = Tokens::new(house.server.store.clone());
    let (token, secret) = tokens.create(New::named("gone", Role::Operator).unwrap()).await.unwrap();
    let browser = Browser::log_in(&house.server, secret.reveal()).await;
    browser.page("/console/work").await;
    let mut live = follow(&browser, "/console/live/work").await;
    tokens.revoke(&token.id, None).await.unwrap();
    // Another node revoked it; this one knows within a second.
    soon(async { while browser.send(get("/console")).await.status != 303 {} }).await;
    soon(until(&mut live, "event: over")).await;
}

#[tokio::test]
async fn a_page_follows_what_happens() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    let browser = house.log_in(Role::Reader).await;
    let mut live = follow(&browser, "/console/live/events?type=OrderConfirmed").await;
    house.rooms.log.append(NewEvent::new("OrderConfirmed", &1).unwrap().tag("order:77")).await.unwrap();
    tokio::time::timeout(PATIENCE, until(&mut live, "order:77")).await.unwrap();
}

async fn follow(browser: &Browser, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(browser.address).await.unwrap();
    let text = get(path).header("Cookie", &browser.cookie).header("HX-Request", "true").text(browser.address);
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
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
