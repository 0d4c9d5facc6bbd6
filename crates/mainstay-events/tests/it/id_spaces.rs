//! Decision C62: ids of events and idempotency keys are unique within a tenant.

use crate::support::{all, event, open};
use mainstay_events::{Append, Erasure, Error, IdempotencyKey, Log, NewEvent, Status};
use mainstay_store::Tx;
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use tokio::task::JoinSet;

/// More than are read at once.
const MANY: usize = 150;

fn tenants() -> [Option<&'static str>; 3] {
    [Some("acme"), Some("globex"), None]
}

fn view(log: &Log, tenant: Option<&str>) -> Log {
    tenant.map_or_else(|| log.clone(), |tenant| log.for_tenant(tenant))
}

fn of(tenant: Option<&str>) -> NewEvent {
    event(&format!("Of{}", tenant.unwrap_or("Nobody")), &["shared"]).id("evt-1")
}

/// A second node where the database allows one.
async fn other_node(place: &Place, log: &Log) -> Log {
    match place.kind() {
        Kind::Postgres => open(place).await,
        _ => log.clone(),
    }
}

async fn is_sound(log: &Log) -> bool {
    log.verify(|_| ()).await.unwrap().is_sound()
}

#[test]
fn every_tenant_has_an_event_of_the_same_id_one_after_the_other() {
    for_each_store(async |place| {
        let log = open(&place).await;
        for tenant in tenants() {
            let view = view(&log, tenant);
            assert_eq!(view.append(of(tenant)).await.unwrap().status, Status::Appended, "{tenant:?}");
            let again = view.append(of(tenant)).await.unwrap_err();
            assert_eq!(again.code(), "EVENT_ID_TAKEN", "{tenant:?} has one already");
            let position = log.head().await.unwrap();
            assert!(matches!(again, Error::EventIdTaken { position: taken, .. } if taken == position));
        }
        for tenant in tenants() {
            let found = view(&log, tenant).find("evt-1").await.unwrap().unwrap();
            assert_eq!(found.tenant(), tenant, "the view of all prefers the event without a tenant");
        }
        assert!(log.for_tenant("initech").find("evt-1").await.unwrap().is_none());
        assert!(is_sound(&log).await);
    });
}

#[test]
fn every_tenant_has_an_event_of_the_same_id_at_once_on_two_nodes() {
    for_each_store(async |place| {
        let here = open(&place).await;
        let there = other_node(&place, &here).await;
        let mut tries = JoinSet::new();
        for number in 0..60 {
            let tenant = tenants()[number % 3];
            let log = view(if number % 2 == 0 { &here } else { &there }, tenant);
            tries.spawn(
                async move { log.append(of(tenant)).await.map(|_| tenant).map_err(|error| error.code()) },
            );
        }
        let mut appended = Vec::new();
        for answer in tries.join_all().await {
            match answer {
                Ok(tenant) => appended.push(tenant),
                Err(code) => assert_eq!(code, "EVENT_ID_TAKEN"),
            }
        }
        appended.sort_unstable();
        assert_eq!(appended, [None, Some("acme"), Some("globex")]);
    });
}

#[test]
fn one_append_may_hold_the_same_id_and_key_for_two_tenants() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let key = IdempotencyKey::action("payment", "1").unwrap();
        let keyed = |tenant: &str| of(Some(tenant)).tenant(tenant).idempotent(&key);
        let both = Append::new([keyed("acme"), keyed("globex")]);
        assert_eq!(log.append(both.clone()).await.unwrap().status, Status::Appended);
        assert_eq!(log.append(both).await.unwrap().status, Status::Duplicate);
        let twice = Append::new([keyed("acme"), keyed("acme")]);
        assert_eq!(log.append(twice).await.unwrap_err().code(), "EVENT_INVALID");
        assert_eq!(all(&log).await.len(), 2);
    });
}

#[test]
fn every_tenant_has_an_event_of_the_same_id_in_one_transaction() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let append = async |log: &Log, tenants: [Option<&'static str>; 2]| {
            let append = async |tx: Tx, (log, tenants): (Log, [Option<&'static str>; 2])| {
                for tenant in tenants {
                    view(&log, tenant).append_in(&tx, of(tenant))?;
                }
                Ok(())
            };
            log.store().transact_with((log.clone(), tenants), append).await.map_err(Error::from)
        };
        let twice = append(&log, [Some("acme"), Some("acme")]).await.unwrap_err();
        assert_eq!(twice.code(), "EVENT_ID_TAKEN");
        append(&log, [Some("acme"), Some("globex")]).await.unwrap();
        assert_eq!(log.head().await.unwrap(), 2);
    });
}

#[test]
fn an_id_of_many_tenants_is_found_taken_and_free_all_the_same() {
    for_each_store(async |place| {
        let log = open(&place).await;
        for number in 0..MANY {
            log.for_tenant(format!("t{number}")).append(of(None)).await.unwrap();
        }
        for tenant in ["t0", "t75", "t149"] {
            let view = log.for_tenant(tenant);
            assert_eq!(view.append(of(None)).await.unwrap_err().code(), "EVENT_ID_TAKEN", "{tenant}");
            assert_eq!(view.find("evt-1").await.unwrap().unwrap().tenant(), Some(tenant));
        }
        let ambiguous = log.find("evt-1").await.unwrap_err();
        assert_eq!(ambiguous.code(), "TENANT_REQUIRED");
        assert_eq!(log.append(of(None)).await.unwrap().status, Status::Appended);
        assert_eq!(log.find("evt-1").await.unwrap().unwrap().position(), MANY as u64 + 1);
    });
}

#[test]
fn an_erasure_by_id_touches_one_tenant() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let erasure = || Erasure::of_event("evt-1").by("ada").because("request 17");
        for tenant in ["acme", "globex"] {
            log.for_tenant(tenant).append(of(Some(tenant))).await.unwrap();
        }
        let ambiguous = log.erase(erasure()).await.unwrap_err();
        assert_eq!(ambiguous.code(), "TENANT_REQUIRED", "nothing is erased by guessing");
        let unknown = log.for_tenant("initech").erase(erasure()).await.unwrap_err();
        assert_eq!(unknown.code(), "EVENT_NOT_FOUND");
        assert_eq!(log.for_tenant("acme").erase(erasure()).await.unwrap().events, 1);
        let erased: Vec<bool> = all(&log).await.iter().map(mainstay_events::Event::is_erased).collect();
        assert_eq!(erased, [true, false]);
    });
}

#[test]
fn a_scope_of_another_tenant_tells_nothing_of_its_version() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let key = "tenant:globex:course:c1";
        log.for_tenant("globex").append(event("Opened", &[]).scope(key, 0)).await.unwrap();
        let acme = log.for_tenant("acme");
        for expected_version in [0, 1] {
            let claim = mainstay_events::ScopeClaim { key: key.to_owned(), expected_version };
            let expect = async |tx: Tx, (log, claim): (Log, mainstay_events::ScopeClaim)| {
                Ok(log.expect_scope_in(&tx, &claim).await?)
            };
            let refused = log.store().transact_with((acme.clone(), claim), expect).await.unwrap_err();
            assert_eq!(Error::from(refused).code(), "TENANT_MISMATCH");
            let refused = acme.append(event("Opened", &[]).scope(key, expected_version)).await.unwrap_err();
            assert_eq!(refused.code(), "TENANT_MISMATCH");
        }
    });
}
