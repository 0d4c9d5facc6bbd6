//! Decision C62: publications belong to an event of a tenant, and ids of events are unique within a tenant.

use super::bench::{Bench, Context, PATIENCE, components, targets};
use mainstay_events::NewEvent;
use mainstay_flows::delivery::publications::{
    self, LetterFilter, LetterStatus, PublicEvent, Publisher, Status,
};
use mainstay_store::Tx;
use mainstay_store::migrations::Component;
use mainstay_testkit::stores::{Kind, for_each_lasting_store, for_each_store};
use mainstay_work::Failure;
use tokio::task::JoinSet;

fn tenants() -> [Option<&'static str>; 3] {
    [Some("acme"), Some("globex"), None]
}

fn view(publisher: &Publisher, tenant: Option<&str>) -> Publisher {
    tenant.map_or_else(|| publisher.clone(), |tenant| publisher.for_tenant(tenant))
}

async fn append(bench: &Bench, tenant: Option<&str>) {
    let event = NewEvent::new("OrderSubmitted", &1).unwrap().id("evt-1");
    bench.log.append(tenant.into_iter().fold(event, NewEvent::tenant)).await.unwrap();
}

async fn settled(publisher: &Publisher, status: Status) {
    let waiting = async {
        while publisher.status("evt-1").await.unwrap()[0].status != status {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

#[test]
fn events_of_one_id_are_published_once_for_each_tenant() {
    for_each_store(async |place| {
        let context = Context::default();
        let bench = Bench::open(&place, targets([context.target("inventory")])).await;
        let engine = bench.start().await;
        for tenant in tenants() {
            append(&bench, tenant).await;
        }
        for tenant in tenants() {
            let publisher = view(&bench.publisher, tenant);
            if tenant.is_some() {
                assert_eq!(publisher.status("evt-1").await.unwrap(), [], "no trace of the others");
            }
            for is_duplicate in [false, true] {
                let published = publisher.publish("evt-1", "orders", ["inventory"]).await.unwrap();
                assert_eq!(published[0].is_duplicate, is_duplicate, "{tenant:?}");
            }
            settled(&publisher, Status::Delivered).await;
        }
        let mut keys: Vec<String> = context.given().into_iter().map(|given| given.idempotency_key).collect();
        keys.sort();
        let expected = ["pub:evt-1:inventory", "pub@acme:evt-1:inventory", "pub@globex:evt-1:inventory"];
        assert_eq!(keys, expected, "receivers do not take one for another");
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn events_of_one_id_at_once_on_two_nodes_are_published_once_for_each_tenant() {
    for_each_store(async |place| {
        let open = || Bench::open(&place, targets([Context::default().target("inventory")]));
        let mut benches = vec![open().await];
        if place.kind() == Kind::Postgres {
            benches.push(open().await);
        }
        for tenant in tenants() {
            append(&benches[0], tenant).await;
        }
        let mut tasks = JoinSet::new();
        for number in 0..36 {
            let tenant = tenants()[number % 3];
            let publisher = view(&benches[number / 3 % benches.len()].publisher, tenant);
            tasks.spawn(async move {
                let published = publisher.publish("evt-1", "orders", ["inventory"]).await.unwrap();
                (tenant, published[0].is_duplicate)
            });
        }
        let answers = tasks.join_all().await;
        for tenant in tenants() {
            let new = answers.iter().filter(|answer| **answer == (tenant, false)).count();
            assert_eq!(new, 1, "{tenant:?}");
        }
    });
}

#[test]
fn a_letter_of_one_tenant_is_dealt_with_alone() {
    for_each_store(async |place| {
        let context = Context::failing(Failure::permanent("no"));
        let bench = Bench::open(&place, targets([context.target("inventory")])).await;
        let engine = bench.start().await;
        for tenant in ["acme", "globex"] {
            append(&bench, Some(tenant)).await;
            let publisher = bench.publisher.for_tenant(tenant);
            publisher.publish("evt-1", "orders", ["inventory"]).await.unwrap();
            settled(&publisher, Status::Failed).await;
        }
        let ambiguous = [
            bench.publisher.status("evt-1").await.map(drop),
            bench.publisher.letter("evt-1", "inventory").await.map(drop),
            bench.publisher.retry_letter("evt-1", "inventory").await.map(drop),
            bench.publisher.ignore_letter("evt-1", "inventory").await,
        ];
        for answer in ambiguous {
            assert_eq!(answer.unwrap_err().code(), "TENANT_REQUIRED");
        }
        let initech = bench.publisher.for_tenant("initech");
        assert_eq!(
            initech.retry_letter("evt-1", "inventory").await.unwrap_err().code(),
            "PUBLICATION_LETTER_NOT_FOUND"
        );
        context.fail(None);
        let (acme, globex) = (bench.publisher.for_tenant("acme"), bench.publisher.for_tenant("globex"));
        acme.retry_letter("evt-1", "inventory").await.unwrap();
        settled(&acme, Status::Delivered).await;
        globex.ignore_letter("evt-1", "inventory").await.unwrap();
        let listed = bench.publisher.letters(LetterFilter::default(), 10).await.unwrap();
        let mut states: Vec<_> = listed.into_iter().map(|one| (one.tenant_id.unwrap(), one.status)).collect();
        states.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(
            states,
            [("acme".to_owned(), LetterStatus::Retried), ("globex".to_owned(), LetterStatus::Ignored)]
        );
        let delivered: Vec<_> = context.given().into_iter().map(|given| given.event.tenant_id).collect();
        assert_eq!(delivered.iter().filter(|tenant| tenant.as_deref() == Some("globex")).count(), 1);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_tenant_publishes_no_event_of_another() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, targets([Context::default().target("inventory")])).await;
        append(&bench, Some("globex")).await;
        let acme = bench.publisher.for_tenant("acme");
        let unknown = acme.publish("evt-1", "orders", ["inventory"]).await.unwrap_err();
        assert_eq!(unknown.code(), "EVENT_NOT_FOUND");
        let foreign = PublicEvent::new("evt-1", "OrderSubmitted", &1).unwrap();
        let foreign = PublicEvent { tenant_id: Some("globex".to_owned()), ..foreign };
        let refused = acme.publish_event(foreign, "orders", ["inventory"]).await.unwrap_err();
        assert_eq!(refused.code(), "TENANT_MISMATCH");
    });
}

const BEFORE: &str = r#"INSERT INTO mainstay_publications (id, event_id, target, source_context, event_type, status,
     attempts_before, attempt_count, error, created_at, letter, failed_at, retry_count, is_translated, event) VALUES
     ('pub_1', 'evt-1', 'inventory', 'orders', 'T', 'failed', 0, 1, 'no', 5, 'pending', 7, 0, 1,
      '{"eventId":"evt-1","type":"T","data":{"tenantId":"x","note":"\u0000"},"schemaVersion":1,"tenantId":"acme"}'),
     ('pub_2', 'evt-2', 'inventory', 'orders', 'T', 'delivered', 0, 1, NULL, 5, NULL, NULL, 0, 1,
      '{"eventId":"evt-2","type":"T","data":{"tenantId":"x"},"schemaVersion":1}')"#;

#[test]
fn publications_from_before_are_found_stay_unique_and_keep_their_keys() {
    for_each_lasting_store(async |place| {
        let before = Component { name: "publications", steps: &publications::COMPONENT.steps[..2] };
        let parts = [mainstay_events::COMPONENT, mainstay_work::COMPONENT, before];
        let store = parts.into_iter().fold(place.options(), mainstay_store::Options::component);
        let store = store.open().await.unwrap();
        store.transact(async |tx: Tx| tx.execute(BEFORE, &[]).await).await.unwrap();
        store.close().await;

        let context = Context::default();
        let store = components(place.options()).open().await.unwrap();
        let bench = Bench::on(store, targets([context.target("inventory")])).await;
        let engine = bench.start().await;
        let acme = bench.publisher.for_tenant("acme");
        assert_eq!(acme.status("evt-1").await.unwrap()[0].tenant_id.as_deref(), Some("acme"));
        assert_eq!(acme.status("evt-2").await.unwrap(), []);
        assert_eq!(bench.publisher.status("evt-2").await.unwrap()[0].tenant_id, None);
        append(&bench, Some("acme")).await;
        let again = acme.publish("evt-1", "orders", ["inventory"]).await.unwrap();
        assert!(again[0].is_duplicate);
        acme.retry_letter("evt-1", "inventory").await.unwrap();
        settled(&acme, Status::Delivered).await;
        // Its receiver may have had it under this key.
        assert_eq!(context.given()[0].idempotency_key, "pub:evt-1:inventory");
        engine.stop(PATIENCE).await.unwrap();
        bench.store.close().await;
    });
}
