//! How one comes in, and out again.

use super::{Browser, House, PATIENCE, cookie_of, escaped, follow, form, until};
use crate::client::{get, request, soon};
use crate::running::{Running, options};
use mainstay_server::audit::{Audit, Entry, Filter, Outcome};
use mainstay_server::tokens::New;
use mainstay_server::{Role, Server, Tokens, equipped};
use mainstay_store::{Store, Tx};
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use mainstay_testkit::time::VirtualTime;
use std::time::Duration;

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
async fn a_token_has_twenty_sessions_at_most_and_the_newest_stay() {
    let server = Running::start(options()).await;
    let token = server.token(Role::Reader).await;
    let mut browsers = Vec::new();
    for _ in 0..22 {
        browsers.push(Browser::log_in(&server, &token).await);
    }
    let count = async |tx: Tx| {
        tx.query_one("SELECT count(*) FROM mainstay_console_sessions", &[]).await?.get::<i64>(0)
    };
    assert_eq!(server.store.read(count).await.unwrap(), 20);
    assert_eq!(browsers.last().unwrap().send(get("/console")).await.status, 200);
}

#[tokio::test]
async fn those_who_follow_leave_room_for_those_who_ask() {
    let server = Running::start(options().max_connections(4).token_share(100)).await;
    let token = server.token(Role::Reader).await;
    let browser = Browser::log_in(&server, &token).await;
    let mut first = follow(&browser, "/console/live/work").await;
    until(&mut first, "200 OK").await;
    let mut second = follow(&browser, "/console/live/work").await;
    until(&mut second, "200 OK").await;
    browser.send(get("/console/live/work")).await.problem(503, "STREAMS_FULL");
    get("/v1/events/subscribe").token(&token).send(server.address).await.problem(503, "STREAMS_FULL");
    assert_eq!(get("/health/live").send(server.address).await.status, 200);
}

#[test]
fn a_session_ends_when_nobody_uses_it_and_a_page_that_is_open_is_no_use() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, equipped(place.options())).await.unwrap();
        let (life, idle) = (Duration::from_secs(3 * 3_600), Duration::from_secs(3_600));
        let server = Running::start_on(options().sessions(life, idle), store).await;
        let token = server.token(Role::Reader).await;
        let browser = Browser::log_in(&server, &token).await;
        let status = async || browser.send(get("/console")).await.status;
        // Used now and then, it lasts.
        for _ in 0..2 {
            time.advance(3_599_000).await.unwrap();
            assert_eq!(status().await, 200);
        }
        let mut live = follow(&browser, "/console/live/work").await;
        until(&mut live, "200 OK").await;
        time.advance(3_599_000).await.unwrap();
        let mut again = follow(&browser, "/console/live/work").await;
        until(&mut again, "200 OK").await;
        time.advance(2_000).await.unwrap();
        assert_eq!(status().await, 303, "what a page loads by itself has not kept it");
        tokio::time::timeout(PATIENCE, until(&mut live, "event: over")).await.unwrap();

        // Used all the time, it ends all the same.
        let browser = Browser::log_in(&server, &token).await;
        let status = async || browser.send(get("/console")).await.status;
        for _ in 0..5 {
            time.advance(1_800_000).await.unwrap();
            assert_eq!(status().await, 200);
        }
        time.advance(1_800_000).await.unwrap();
        assert_eq!(status().await, 303);
    });
}

#[test]
fn one_signs_out_everywhere_and_an_admin_signs_others_out() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store).await;
        let tokens = Tokens::new(server.store.clone());
        let (mine, secret) = tokens.create(New::named("mine", Role::Operator).unwrap()).await.unwrap();
        let admin = server.token(Role::Admin).await;
        let log_in = async || {
            let two = [&secret, &secret].map(|secret| secret.reveal().to_owned());
            let mut browsers = Vec::new();
            for token in two.iter().chain([&admin]) {
                browsers.push(Browser::log_in(&server, token).await);
            }
            browsers
        };
        let status = async |browsers: &[Browser]| {
            let mut status = Vec::new();
            for browser in browsers {
                status.push(browser.send(get("/console")).await.status);
            }
            status
        };
        let browsers = log_in().await;
        let csrf = browsers[0].csrf().await;
        let leave = form("/console/logout", &[("csrf", &csrf), ("everywhere", "1")]);
        assert_eq!(browsers[0].send(leave).await.status, 303);
        assert_eq!(status(&browsers).await, [303, 303, 200], "those of the own token");

        let browsers = log_in().await;
        let sign_out = request("POST", &format!("/admin/tokens/{}/sign-out", mine.id)).token(&admin);
        assert_eq!(sign_out.send(server.address).await.json()["ended"], 2);
        assert_eq!(status(&browsers).await, [303, 303, 200]);
        assert_eq!(
            get("/v1/events").token(secret.reveal()).send(server.address).await.status,
            200,
            "the token lives on"
        );

        let browsers = log_in().await;
        // An admin of a tenant ends those of its own tenant, which are none.
        let new = New::named("acme", Role::Admin).unwrap().tenant("acme").unwrap();
        let (_, acme) = tokens.create(new).await.unwrap();
        let all = |token: &str| request("DELETE", "/admin/sessions").token(token);
        assert_eq!(all(acme.reveal()).send(server.address).await.json()["ended"], 0);
        request("POST", &format!("/admin/tokens/{}/sign-out", mine.id))
            .token(acme.reveal())
            .send(server.address)
            .await
            .problem(404, "TOKEN_NOT_FOUND");
        assert_eq!(status(&browsers).await, [200, 200, 200]);
        assert!(all(&admin).send(server.address).await.json()["ended"].as_u64() >= Some(3));
        assert_eq!(status(&browsers).await, [303, 303, 303]);
    });
}
