//! Decision C62: ids of commands are unique within a tenant.

use super::house::{Diary, House, order, shop};
use mainstay_events::{NewEvent, Selection};
use mainstay_flows::commands::{
    self, Command, Commands, ConflictRetry, Decision, Dispatcher, Handling, Outcome, State,
};
use mainstay_store::migrations::Component;
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::{Kind, Place, for_each_lasting_store, for_each_store};
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(60);

fn tenants() -> [Option<&'static str>; 3] {
    [Some("acme"), Some("globex"), None]
}

fn view(house: &House, tenant: Option<&str>) -> Dispatcher {
    tenant.map_or_else(|| house.dispatcher.clone(), |tenant| house.dispatcher.for_tenant(tenant))
}

/// A second node where the database allows one.
async fn two_nodes(place: &Place) -> Vec<House> {
    let mut houses = vec![House::open(place).await];
    if place.kind() == Kind::Postgres {
        houses.push(House::open(place).await);
    }
    houses
}

#[test]
fn commands_of_one_id_are_decided_once_for_each_tenant() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        for (number, tenant) in tenants().into_iter().enumerate() {
            let (dispatcher, id) = (view(&house, tenant), number as u32);
            let unknown =
                dispatcher.for_tenant(tenant.unwrap_or("initech")).status("cmd-1").await.unwrap_err();
            assert_eq!(unknown.code(), "COMMAND_NOT_FOUND", "{tenant:?} sees no trace of the others");
            let first = dispatcher.dispatch(order("PlaceOrder", id).id("cmd-1")).await.unwrap();
            assert!(!first.is_duplicate, "{tenant:?}");
            let again = dispatcher.dispatch(order("PlaceOrder", id).id("cmd-1")).await.unwrap();
            assert!(again.is_duplicate, "{tenant:?}");
            assert_eq!(again.outcome.events(), first.outcome.events());
            let taken = dispatcher.dispatch(order("PlaceOrder", 99).id("cmd-1")).await.unwrap_err();
            assert_eq!(taken.code(), "COMMAND_ID_TAKEN", "{tenant:?}");
        }
        for (number, tenant) in tenants().into_iter().enumerate() {
            let status = view(&house, tenant).status("cmd-1").await.unwrap();
            assert_eq!(status.tenant_id.as_deref(), tenant);
            let Outcome::Success { data, events } = status.outcome else { panic!("{tenant:?}") };
            assert_eq!(data.get(), json!({ "orderId": number }).to_string());
            assert_eq!(events[0].position, number as u64 + 1);
        }
        assert_eq!(house.orders().await.len(), 3);
    });
}

#[test]
fn commands_of_one_id_at_once_on_two_nodes_are_decided_once_for_each_tenant() {
    for_each_store(async |place| {
        let houses = two_nodes(&place).await;
        let mut sent = JoinSet::new();
        for number in 0..48 {
            let tenant = tenants()[number % 3];
            let dispatcher = view(&houses[number / 3 % houses.len()], tenant);
            sent.spawn(async move {
                (tenant, dispatcher.dispatch(order("PlaceOrder", 7).id("cmd-1")).await.unwrap())
            });
        }
        let answers = sent.join_all().await;
        for tenant in tenants() {
            let own: Vec<_> = answers.iter().filter(|(of, _)| *of == tenant).map(|(_, one)| one).collect();
            assert_eq!(own.iter().filter(|one| !one.is_duplicate).count(), 1, "{tenant:?}");
            assert!(own.iter().all(|one| one.outcome.events() == own[0].outcome.events()), "{tenant:?}");
        }
        assert_eq!(houses[0].orders().await.len(), 3);
        assert_eq!(houses[0].log.head().await.unwrap(), 3);
    });
}

#[test]
fn an_id_of_several_tenants_needs_the_tenant_and_one_without_a_tenant_comes_first() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.dispatcher.for_tenant("acme").dispatch(order("PlaceOrder", 1).id("cmd-1")).await.unwrap();
        let only = house.dispatcher.status("cmd-1").await.unwrap();
        assert_eq!(only.tenant_id.as_deref(), Some("acme"));
        house.dispatcher.for_tenant("globex").dispatch(order("PlaceOrder", 1).id("cmd-1")).await.unwrap();
        assert_eq!(house.dispatcher.status("cmd-1").await.unwrap_err().code(), "TENANT_REQUIRED");
        house.dispatcher.dispatch(order("PlaceOrder", 1).id("cmd-1")).await.unwrap();
        assert_eq!(house.dispatcher.status("cmd-1").await.unwrap().tenant_id, None);
    });
}

/// Moves the scope of its tenant on.
fn moving() -> Commands {
    Commands::new()
        .on("Move", async |_: Handling, id: u32| Ok(Decision::success(id, [NewEvent::new("Moved", &id)?])))
}

#[test]
fn overtaken_commands_of_one_id_are_decided_again_for_each_tenant() {
    for_each_store(async |place| {
        let house = House::open_with(&place, moving(), Diary::default()).await;
        for tenant in ["acme", "globex"] {
            let scope = format!("tenant:{tenant}:stock:lamp");
            let moved = NewEvent::new("Moved", &0).unwrap().scope(&scope, 0);
            house.log.for_tenant(tenant).append(moved).await.unwrap();
            let retry = ConflictRetry { initial_backoff_ms: 1, ..ConflictRetry::default() };
            let command = Command::new("Move", &1).unwrap().id("cmd-1").within(&scope, 0).retrying(retry);
            let deferred = house.dispatcher.for_tenant(tenant).dispatch(command).await.unwrap();
            assert!(matches!(deferred.outcome, Outcome::Deferred(_)), "{deferred:?}");
        }
        let engine = house.work.start().await.unwrap();
        for tenant in ["acme", "globex"] {
            let view = house.dispatcher.for_tenant(tenant);
            let status = view.wait_for("cmd-1", PATIENCE).await.unwrap();
            assert_eq!((status.state, status.tenant_id.as_deref()), (State::Executed, Some(tenant)));
            let events = house.log.for_tenant(tenant).read(&Selection::all(), 10).await.unwrap().events;
            assert_eq!(events.len(), 2, "{tenant}");
        }
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_command_in_a_scope_of_another_tenant_is_told_nothing_of_it() {
    for_each_store(async |place| {
        let house = House::open_with(&place, moving(), Diary::default()).await;
        let scope = "tenant:globex:stock:lamp";
        house.log.append(NewEvent::new("Moved", &0).unwrap().tenant("globex").scope(scope, 0)).await.unwrap();
        for expected in [0, 1] {
            let command = Command::new("Move", &1).unwrap().within(scope, expected);
            let refused = house.dispatcher.for_tenant("acme").dispatch(command).await.unwrap_err();
            assert_eq!(refused.code(), "TENANT_MISMATCH");
        }
        assert_eq!(house.log.head().await.unwrap(), 1);
    });
}

const BEFORE: &str = "INSERT INTO mainstay_commands (command_id, command_type, correlation_id, state, attempt, created_at, \
     executed_at, expires_at, command, result) VALUES ($1, 'PlaceOrder', 'corr-1', 1, 0, 1, 1, 9000000000000, $2, $3)";

/// As a program wrote it before ids were a tenant's own.
fn written(tenant: &str, payload: &str) -> String {
    let trace = r#"{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331"}"#;
    let tenant = if tenant.is_empty() { String::new() } else { format!(r#""tenantId":"{tenant}","#) };
    format!(r#"{{"payload":{payload},{tenant}"trace":{trace}}}"#)
}

#[test]
fn commands_from_before_are_found_and_stay_unique() {
    for_each_lasting_store(async |place| {
        let before = Component { name: "commands", steps: &commands::COMPONENT.steps[..3] };
        let parts = [mainstay_events::COMPONENT, mainstay_work::COMPONENT, before];
        let store = parts.into_iter().fold(place.options(), mainstay_store::Options::component);
        let store = store.open().await.unwrap();
        let rows = [
            ("cmd-1", written("acme", r#"{"id":1}"#)),
            ("cmd-2", written("", r#"{"id":2}"#)),
            // Data that resembles a tenant, and text that PostgreSQL cannot hold.
            ("cmd-3", written("", r#"{"id":3,"tenantId":"acme"}"#)),
            ("cmd-4", written("acme", r#"{"id":4,"note":"\u0000 \ud800 \\u0000"}"#)),
        ];
        let write = async |tx: Tx, rows: [(&str, String); 4]| {
            let result = r#"{"status":"success","data":{"orderId":1},"eventIds":[]}"#;
            for (id, command) in rows {
                tx.execute(BEFORE, params![id, command, result]).await?;
            }
            Ok(())
        };
        store.transact_with(rows, write).await.unwrap();
        store.close().await;

        let diary = Diary::default();
        let house = House::open_with(&place, shop(&diary), diary).await;
        let acme = house.dispatcher.for_tenant("acme");
        for (id, tenant) in
            [("cmd-1", Some("acme")), ("cmd-2", None), ("cmd-3", None), ("cmd-4", Some("acme"))]
        {
            let found = acme.status(id).await.map(|status| status.tenant_id).map_err(|error| error.code());
            let expected = match tenant {
                Some(_) => Ok(Some("acme".to_owned())),
                None => Err("COMMAND_NOT_FOUND"),
            };
            assert_eq!(found, expected, "{id}");
            assert_eq!(house.dispatcher.status(id).await.unwrap().tenant_id.as_deref(), tenant, "{id}");
        }
        assert!(acme.dispatch(order("PlaceOrder", 1).id("cmd-1")).await.unwrap().is_duplicate);
        assert!(house.dispatcher.dispatch(order("PlaceOrder", 2).id("cmd-2")).await.unwrap().is_duplicate);
        assert!(!house.dispatcher.dispatch(order("PlaceOrder", 1).id("cmd-1")).await.unwrap().is_duplicate);
        house.store.close().await;
    });
}
