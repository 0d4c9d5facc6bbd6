//! Decision C62: ids of events are unique within a tenant, and so is what failed of them.

use super::support::{Bad, Bench, PATIENCE, components, noting_unless, until};
use mainstay_events::NewEvent;
use mainstay_flows::projections::failures::{LetterFilter, LetterStatus, Poison};
use mainstay_testkit::stores::for_each_store;

fn tenants() -> [Option<&'static str>; 3] {
    [Some("acme"), Some("globex"), None]
}

async fn append(bench: &Bench, tenant: Option<&str>) {
    let event = NewEvent::new("Noted", &"bad").unwrap().id("evt-1");
    bench.log.append(tenant.into_iter().fold(event, NewEvent::tenant)).await.unwrap();
}

async fn states(bench: &Bench) -> Vec<(Option<String>, String, LetterStatus)> {
    let letters = bench.projections.letters(LetterFilter::default(), 10).await.unwrap();
    letters.into_iter().map(|one| (one.tenant_id, one.event_id, one.status)).collect()
}

#[test]
fn events_of_one_id_that_fail_are_a_letter_for_each_tenant() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let bench = Bench::open(&place, vec![noting_unless("a", &bad)]).await;
        for tenant in tenants() {
            append(&bench, tenant).await;
        }
        let (projecting, engine) = bench.start().await;
        bench.caught_up("a").await;
        let of = |tenant: Option<&str>, status| (tenant.map(str::to_owned), "evt-1".to_owned(), status);
        assert_eq!(states(&bench).await, tenants().map(|tenant| of(tenant, LetterStatus::Pending)));
        bad.mend();
        let acme = bench.projections.for_tenant("acme");
        acme.retry_letter("a", "evt-1").await.unwrap();
        until("it is resolved", async || {
            acme.letter("a", "evt-1").await.unwrap().status == LetterStatus::Resolved
        })
        .await;
        bench.projections.ignore_letter("a", "evt-1").await.unwrap();
        let expected = [
            of(Some("acme"), LetterStatus::Resolved),
            of(Some("globex"), LetterStatus::Pending),
            of(None, LetterStatus::Ignored),
        ];
        assert_eq!(states(&bench).await, expected);
        assert_eq!(bench.noted("a").await, [1]);
        let unknown = bench.projections.for_tenant("initech").retry_letter("a", "evt-1").await.unwrap_err();
        assert_eq!(unknown.code(), "PROJECTION_LETTER_NOT_FOUND");
        engine.stop(PATIENCE).await.unwrap();
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn an_id_of_several_tenants_needs_the_tenant() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting_unless("a", &Bad::texts(&["bad"]))]).await;
        append(&bench, Some("acme")).await;
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        let only = bench.projections.letter("a", "evt-1").await.unwrap();
        assert_eq!(only.tenant_id.as_deref(), Some("acme"));
        append(&bench, Some("globex")).await;
        bench.caught_up("a").await;
        let ambiguous = [
            bench.projections.letter("a", "evt-1").await.map(drop),
            bench.projections.retry_letter("a", "evt-1").await.map(drop),
            bench.projections.run_letter("a", "evt-1", None).await.map(drop),
            bench.projections.prepare_letter("a", "evt-1").await.map(drop),
            bench.projections.ignore_letter("a", "evt-1").await,
        ];
        for answer in ambiguous {
            assert_eq!(answer.unwrap_err().code(), "TENANT_REQUIRED");
        }
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn events_of_one_id_are_put_aside_for_each_tenant() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let model = noting_unless("a", &bad).poison(Poison::new(2, false));
        let bench = Bench::open(&place, vec![model]).await;
        for tenant in tenants() {
            append(&bench, tenant).await;
        }
        let (projecting, engine) = bench.start().await;
        bench.caught_up("a").await;
        assert_eq!(bench.projections.quarantined(Some("a"), None, 10).await.unwrap().len(), 3);
        bad.mend();
        let (acme, globex) = (bench.projections.for_tenant("acme"), bench.projections.for_tenant("globex"));
        globex.ignore_quarantined("a", "evt-1").await.unwrap();
        let work_id = acme.unquarantine("a", "evt-1").await.unwrap();
        bench.work.wait_for(&work_id, PATIENCE).await.unwrap();
        until("one is left", async || {
            bench.projections.quarantined(Some("a"), None, 10).await.unwrap().len() == 1
        })
        .await;
        assert!(!acme.is_quarantined("a", "evt-1").await.unwrap());
        assert!(bench.projections.is_quarantined("a", "evt-1").await.unwrap());
        assert_eq!(bench.noted("a").await, [1]);
        engine.stop(PATIENCE).await.unwrap();
        projecting.stop(PATIENCE).await;
    });
}

/// A row of an earlier version has the id alone. Later failures of the event update that row.
#[test]
fn a_letter_from_before_is_the_one_that_its_event_goes_on_with() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let store = components(place.options()).open().await.unwrap();
        let bench = Bench::on(store, vec![noting_unless("a", &bad)]).await;
        append(&bench, Some("acme")).await;
        let before = "INSERT INTO mainstay_projection_failures (projection, event_id, generation, position, event_type, \
             correlation_id, is_poison, status, attempts, error, failed_at, retry_count) \
             VALUES ('a', 'evt-1', 1, 1, 'Noted', 'c', 0, 'failing', 2, 'x', 1, 0)";
        bench.store.transact(async move |tx| tx.execute(before, &[]).await).await.unwrap();
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        let letters = bench.projections.letters(LetterFilter::default(), 10).await.unwrap();
        assert_eq!(letters.len(), 1, "{letters:?}");
        let letter = bench.projections.letter("a", "evt-1").await.unwrap();
        assert_eq!((letter.status, letter.error.as_str()), (LetterStatus::Pending, "cannot take bad"));
        projecting.stop(PATIENCE).await;
    });
}
