//! What forms do, and what keeps those of others out.

use super::{House, form};
use crate::client::get;
use mainstay_server::Role;
use mainstay_server::audit::{Audit, Filter, Outcome};
use mainstay_testkit::stores::{Kind, Place};

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
    assert!(!house.services.work.pool_status("shop").await.unwrap().is_paused);

    let operator = house.log_in(Role::Operator).await;
    let done = operator.act("POST /admin/pools/shop/pause", &[("said", "The pool rests.")]).await;
    assert_eq!((done.status, done.header("location")), (303, Some("/console/work")));
    assert!(house.services.work.pool_status("shop").await.unwrap().is_paused);
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
    form("/console/act", &[]).send(house.server.address).await.problem(401, "UNAUTHENTICATED");
    let refused = Filter { outcome: Some(Outcome::Refused), after: Some(0), ..Filter::default() };
    let refused = Audit::new(house.server.store.clone()).list(refused, 100).await.unwrap();
    let codes: Vec<_> = refused.iter().filter_map(|entry| entry.code.as_deref()).collect();
    assert_eq!(codes, [&["ORIGIN_REFUSED"; 9][..], &["UNAUTHENTICATED"]].concat());
    assert_eq!(refused.iter().filter(|entry| entry.user_id != "nobody").count(), 3, "whose forms they were");
    assert!(!house.services.work.pool_status("shop").await.unwrap().is_paused);
    let own = format!("http://{}", house.server.address);
    assert_eq!(
        admin.send(pause(&csrf).header("Origin", &own).header("Sec-Fetch-Site", "same-origin")).await.status,
        303
    );
    assert!(house.services.work.pool_status("shop").await.unwrap().is_paused);
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
