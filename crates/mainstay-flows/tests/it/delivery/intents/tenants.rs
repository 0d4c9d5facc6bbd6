//! Decision C62: keys of intents are unique within a tenant.

use super::house::{House, MINUTE, components, submission};
use mainstay_flows::delivery::intents::{
    self, Completion, IntentFilter, IntentStatus, Intents, NewIntent, OnTimeout, Orphans,
};
use mainstay_store::migrations::Component;
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::{Kind, for_each_lasting_store, for_each_store};
use tokio::task::JoinSet;

const AT: i64 = 1_700_000_000_000;
const KEY: &str = "OrderSubmission:Order:ord-1:1700000000000";

fn tenants() -> [Option<&'static str>; 3] {
    [Some("acme"), Some("globex"), None]
}

fn view(intents: &Intents, tenant: Option<&str>) -> Intents {
    tenant.map_or_else(|| intents.clone(), |tenant| intents.for_tenant(tenant))
}

fn new() -> NewIntent {
    submission("ord-1", OnTimeout::alert()).started_at_ms(AT)
}

#[test]
fn intents_of_one_key_begin_and_end_once_for_each_tenant() {
    for_each_store(async |place| {
        let house = House::open(place.options()).await;
        for tenant in tenants() {
            let intents = view(&house.intents, tenant);
            if tenant.is_some() {
                assert_eq!(intents.get(KEY).await.unwrap_err().code(), "INTENT_NOT_FOUND");
            }
            let begun = intents.record(new()).await.unwrap();
            assert_eq!((&*begun.intent_key, begun.is_duplicate), (KEY, false), "{tenant:?}");
            let again = intents.record(new()).await.unwrap();
            assert_eq!((again.is_duplicate, again.intent_event_id), (true, begun.intent_event_id));
        }
        let acme = house.intents.for_tenant("acme");
        let completed = acme.complete(Completion::success(KEY)).await.unwrap();
        assert!(acme.complete(Completion::success(KEY)).await.unwrap().is_duplicate);
        assert_eq!(acme.get(KEY).await.unwrap().completion_event_id, Some(completed.completion_event_id));
        for other in [Some("globex"), None] {
            let intents = view(&house.intents, other);
            assert_eq!(intents.get(KEY).await.unwrap().status, IntentStatus::Pending, "{other:?}");
            let ended = intents.complete(Completion::failure(KEY, "no")).await.unwrap();
            assert!(!ended.is_duplicate, "{other:?}");
        }
        let unknown =
            house.intents.for_tenant("initech").complete(Completion::success(KEY)).await.unwrap_err();
        assert_eq!(unknown.code(), "INTENT_NOT_FOUND");
        assert_eq!(house.log.head().await.unwrap(), 6);
    });
}

#[test]
fn intents_of_one_key_at_once_on_two_nodes_begin_once_for_each_tenant() {
    for_each_store(async |place| {
        let mut houses = vec![House::open(place.options()).await];
        if place.kind() == Kind::Postgres {
            houses.push(House::open(place.options()).await);
        }
        let mut tasks = JoinSet::new();
        for number in 0..36 {
            let tenant = tenants()[number % 3];
            let intents = view(&houses[number / 3 % houses.len()].intents, tenant);
            tasks.spawn(async move { (tenant, intents.record(new()).await.unwrap()) });
        }
        let answers = tasks.join_all().await;
        for tenant in tenants() {
            let own: Vec<_> = answers.iter().filter(|(of, _)| *of == tenant).map(|(_, one)| one).collect();
            assert_eq!(own.iter().filter(|one| !one.is_duplicate).count(), 1, "{tenant:?}");
            assert!(own.iter().all(|one| one.intent_event_id == own[0].intent_event_id), "{tenant:?}");
        }
        assert_eq!(houses[0].log.head().await.unwrap(), 3);
    });
}

#[test]
fn a_key_of_several_tenants_needs_the_tenant() {
    for_each_store(async |place| {
        let house = House::open(place.options()).await;
        house.intents.for_tenant("acme").record(new()).await.unwrap();
        assert_eq!(house.intents.get(KEY).await.unwrap().tenant_id.as_deref(), Some("acme"));
        house.intents.for_tenant("globex").record(new()).await.unwrap();
        let ambiguous = [
            house.intents.get(KEY).await.map(drop),
            house.intents.complete(Completion::success(KEY)).await.map(drop),
        ];
        for answer in ambiguous {
            assert_eq!(answer.unwrap_err().code(), "TENANT_REQUIRED");
        }
        house.intents.record(new()).await.unwrap();
        house.intents.complete(Completion::success(KEY)).await.unwrap();
        for (tenant, status) in [(Some("acme"), IntentStatus::Pending), (None, IntentStatus::Completed)] {
            assert_eq!(view(&house.intents, tenant).get(KEY).await.unwrap().status, status, "{tenant:?}");
        }
    });
}

#[test]
fn a_timer_is_that_of_its_tenants_intent() {
    for_each_store(async |place| {
        let house = House::open(place.options()).await;
        let brief = || {
            let policy = OnTimeout::abandon().handler("handle");
            let new =
                NewIntent::new("OrderSubmission", ("Order", "ord-1"), "orders", MINUTE / 60_000, policy);
            new.started_at_ms(AT)
        };
        let key = house.intents.for_tenant("acme").record(brief()).await.unwrap().intent_key;
        house.intents.for_tenant("globex").record(new()).await.unwrap();
        house.intents.record(new()).await.unwrap();
        let engine = house.work.start().await.unwrap();
        let acme = house.intents.for_tenant("acme");
        let abandoned = async {
            while acme.get(&key).await.unwrap().status != IntentStatus::Abandoned
                || house.handled().await.is_empty()
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(MINUTE, abandoned).await.unwrap();
        for other in [Some("globex"), None] {
            let intent = view(&house.intents, other).get(KEY).await.unwrap();
            assert_eq!((intent.status, intent.timeouts), (IntentStatus::Pending, 0), "{other:?}");
        }
        assert_eq!(house.handled().await[0].tenant_id.as_deref(), Some("acme"));
        engine.stop(MINUTE).await.unwrap();
    });
}

#[test]
fn pages_leave_out_none_of_those_that_share_a_key() {
    for_each_store(async |place| {
        let house = House::open(place.options()).await;
        for number in 0..5 {
            house.intents.for_tenant(&format!("t.{number}")).record(new()).await.unwrap();
        }
        house.intents.record(new()).await.unwrap();
        for limit in [1, 2, 4] {
            let (mut seen, mut orphans) = (Vec::new(), Vec::new());
            let (mut filter, mut wanted) = (IntentFilter::default(), Orphans::default());
            loop {
                let page = house.intents.list(filter.clone(), limit).await.unwrap();
                seen.extend(page.intents.into_iter().map(|intent| intent.tenant_id));
                // As a client gives it back.
                let Some(next) = page.next else { break };
                filter.after = Some(next.to_string().parse().unwrap());
            }
            loop {
                let page = house.intents.orphans(wanted.clone(), limit).await.unwrap();
                orphans.extend(page.intents.into_iter().map(|intent| intent.tenant_id));
                let Some(next) = page.next else { break };
                wanted.after = Some(next.to_string().parse().unwrap());
            }
            seen.reverse();
            let mut expected = vec![None];
            expected.extend((0..5).map(|number| Some(format!("t.{number}"))));
            assert_eq!((&seen, &orphans), (&expected, &expected), "{limit} a page");
        }
    });
}

const BEFORE: &str = "INSERT INTO mainstay_intents (intent_key, operation_type, correlation_id, status, started_at, \
     timeout_at, timeouts, intent, tenant) VALUES ($1, 'OrderSubmission', 'corr-1', 0, 1700000000000, 9000000000000, 0, $2, $3)";

fn written(tenant: &str) -> String {
    let tenant = if tenant.is_empty() { String::new() } else { format!(r#""tenantId":"{tenant}","#) };
    format!(
        r#"{{"streamType":"Order","streamId":"ord-1","boundedContext":"orders",{tenant}"timeoutMs":300000,
        "onTimeout":{{"policy":"alert"}},"names":{{"started":"S","completed":"C","failed":"F","abandoned":"A"}},
        "trace":{{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331"}},
        "intentEventId":"evt-1","metadata":{{"tenantId":"other","note":"\u0000"}}}}"#
    )
}

#[test]
fn intents_from_before_are_found_completed_and_stay_unique() {
    for_each_lasting_store(async |place| {
        let before = Component { name: "intents", steps: &intents::COMPONENT.steps[..3] };
        let parts = [mainstay_events::COMPONENT, mainstay_work::COMPONENT, before];
        let store = parts.into_iter().fold(place.options(), mainstay_store::Options::component);
        let store = store.open().await.unwrap();
        // The second is from before there was a column for it.
        let write = async |tx: Tx| {
            tx.execute(BEFORE, params!["of-acme", written("acme"), "acme"]).await?;
            tx.execute(BEFORE, params!["older", written("acme"), None::<&str>]).await?;
            tx.execute(BEFORE, params!["of-none", written(""), None::<&str>]).await
        };
        store.transact(write).await.unwrap();
        store.close().await;

        let house = House::on(components(place.options()).open().await.unwrap()).await;
        let acme = house.intents.for_tenant("acme");
        for key in ["of-acme", "older"] {
            assert_eq!(acme.get(key).await.unwrap().tenant_id.as_deref(), Some("acme"));
            assert_eq!(house.intents.get(key).await.unwrap().tenant_id.as_deref(), Some("acme"));
        }
        assert_eq!(acme.get("of-none").await.unwrap_err().code(), "INTENT_NOT_FOUND");
        let listed = acme.list(IntentFilter::default(), 10).await.unwrap().intents;
        assert_eq!(listed.len(), 2);
        for (view, key) in [(&acme, "older"), (&house.intents, "of-none")] {
            let ended = view.complete(Completion::success(key)).await.unwrap();
            assert_eq!(ended.status, IntentStatus::Completed);
        }
        let insert = async |tx: Tx| tx.execute(BEFORE, params!["of-acme", written("acme"), "acme"]).await;
        let taken = house.store.transact(insert).await.unwrap_err();
        assert!(matches!(taken, mainstay_store::Error::Constraint { .. }), "{taken:?}");
        house.store.close().await;
    });
}
