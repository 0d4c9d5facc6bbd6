//! What is drawn, and what somebody finds.

use super::{Browser, House, PATIENCE, follow, until};
use crate::client::get;
use mainstay_events::{Append, NewEvent};
use mainstay_flows::delivery::intents::{NewIntent, OnTimeout};
use mainstay_guards::circuits::Force;
use mainstay_server::tokens::New;
use mainstay_server::{Oversight, Role, Tokens};
use mainstay_store::Tx;
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use serde_json::Value;
use std::collections::BTreeSet;

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
    let appended = house
        .services
        .log
        .append(Append::new([event("acme", "ours"), event("other", "theirs")]))
        .await
        .unwrap();
    let [ours, theirs] = [0, 1].map(|place: usize| appended.events[place].event_id.clone());
    let new = |tenant: &str| {
        NewIntent::new("Submission", ("Order", "1"), "orders", PATIENCE, OnTimeout::alert()).tenant(tenant)
    };
    let intent = house.services.intents.record(new("acme")).await.unwrap().intent_key;
    let foreign = house.services.intents.record(new("other")).await.unwrap().intent_key;
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
        house.services.circuits.force(&format!("c{number:03}"), forced()).await.unwrap();
    }
    house.services.circuits.force("the-last-of-all", forced()).await.unwrap();
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
    house.services.projections.wait_for("orders", 2, PATIENCE).await.unwrap();
    let pending = "<strong>2</strong> wait for somebody";
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

#[tokio::test]
async fn a_page_follows_what_happens() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    let browser = house.log_in(Role::Reader).await;
    let mut live = follow(&browser, "/console/live/events?type=OrderConfirmed").await;
    house.services.log.append(NewEvent::new("OrderConfirmed", &1).unwrap().tag("order:77")).await.unwrap();
    tokio::time::timeout(PATIENCE, until(&mut live, "order:77")).await.unwrap();
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
