//! One trace, from an HTTP call through command, event, read model, work and publication, across retries and restarts.

use crate::client::post;
use crate::logged::{self, Span};
use crate::running::{Running, options};
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use mainstay_core::failure::Failure;
use mainstay_core::random::{Random, SeededRandom};
use mainstay_core::trace::TraceContext;
use mainstay_events::{Event, NewEvent, Selection};
use mainstay_flows::commands::{Commands, Decision, Handling};
use mainstay_flows::delivery::publications::{Publisher, Retry, Target, Targets, Webhook};
use mainstay_flows::projections::{Category, Model, Projecting, Projection, Registry};
use mainstay_server::{Builder, Role, Services, equipped};
use mainstay_store::Tx;
use mainstay_testkit::stores::{Place, for_each_lasting_store};
use mainstay_work::egress::Egress;
use mainstay_work::http::HttpConfig;
use mainstay_work::{Call, Engine, Functions, NewWork, Pool, RetryPolicy};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const PATIENCE: Duration = Duration::from_secs(20);

/// Somebody else's server, which takes what is published to it once it is well. Tells each `traceparent` that it sees.
async fn receiver(is_well: Arc<AtomicBool>) -> (SocketAddr, UnboundedReceiver<String>) {
    let (seen, told): (UnboundedSender<String>, _) = unbounded_channel();
    let take = move |headers: HeaderMap| {
        let _ = seen.send(headers["traceparent"].to_str().unwrap().to_owned());
        let is_well = is_well.load(Ordering::SeqCst);
        async move { if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE } }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, Router::new().fallback(take)).await });
    (address, told)
}

/// A process: it lives as long as nobody stops it.
struct House {
    server: Running,
    services: Services,
    working: Option<(Engine, Projecting)>,
}

impl House {
    async fn open(place: &Place, webhook: SocketAddr, is_working: bool) -> Self {
        let commands = Commands::new().on("SubmitOrder", async |handling: Handling, order: u32| {
            let often = RetryPolicy::new(5, 1, 1.0, 1).unwrap();
            handling.start(NewWork::new("shop", "ship", &order)?.retry(often))?;
            Ok(Decision::success((), [NewEvent::new("OrderSubmitted", &order)?]))
        });
        let orders = Projection::new("orders", Category::Logic).each(async |_: Tx, _: Model, _: Event| {
            tracing::info!("an order is taken up");
            Ok(())
        });
        let egress = Arc::new(Egress::new(&["127.0.0.1".to_owned()]).unwrap());
        let hook = Webhook::new(HttpConfig::new(format!("http://{webhook}/")), egress).unwrap();
        let targets = Targets::new(Retry { max_retries: 1_000, initial_backoff_ms: 20, base: 1.0 })
            .with(Target::webhook("inventory", hook));
        let publisher: Arc<OnceLock<(Publisher, mainstay_events::Log)>> = Arc::default();
        let publishing = publisher.clone();
        let functions = Functions::new().action("ship", move |call: Call, _: u32| {
            let publisher = publishing.clone();
            async move {
                tracing::info!("an order is shipped");
                if call.attempt == 1 {
                    return Err(Failure::retryable("the van is away"));
                }
                let (publisher, log) = publisher.get().unwrap();
                let page = log.read(&Selection::all(), 1).await.unwrap();
                let published = publisher.publish(page.events[0].id(), "orders", ["inventory"]).await;
                published.map(drop).map_err(|error| Failure::retryable(error.to_string()))
            }
        });
        let store = equipped(place.options()).open().await.unwrap();
        let registry = Registry::new().with(orders);
        let services = Builder::on_store(store.clone())
            .commands(commands)
            .projections(registry)
            .targets(targets)
            .functions(functions)
            .open()
            .await
            .unwrap();
        publisher.set((services.publications.clone(), services.log.clone())).ok().unwrap();
        services.work.pool(Pool::new("shop")).await.unwrap();
        let working = match is_working {
            true => Some((services.work.start().await.unwrap(), services.projections.start())),
            false => None,
        };
        let server = Running::start_with(options(), services.clone()).await;
        Self { server, services, working }
    }

    async fn stop(self) {
        if let Some((engine, projecting)) = self.working {
            projecting.stop(PATIENCE).await;
            engine.stop(PATIENCE).await.unwrap();
        }
        let store = self.server.store.clone();
        self.server.stop().await;
        drop(self.services);
        store.close().await;
    }
}

/// The spans of a trace that are called so and have this field.
fn named(trace_id: &str, name: &str, (field, value): (&str, &str)) -> Vec<Span> {
    let spans = logged::spans(trace_id).into_iter();
    spans.filter(|span| span.name == name && span.get(field) == value).collect()
}

fn only(mut spans: Vec<Span>) -> Span {
    assert_eq!(spans.len(), 1, "{spans:?}");
    spans.remove(0)
}

async fn waiting<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it comes")
}

#[test]
fn b_258_b_260_b_261_one_trace_goes_from_a_call_to_a_publication_across_retries_and_restarts() {
    logged::start();
    for_each_lasting_store(async |place| {
        let is_well = Arc::new(AtomicBool::new(false));
        let (webhook, mut seen) = receiver(is_well.clone()).await;
        // A trace that no other test has, on this store or another.
        let random = SeededRandom::new(u64::from(webhook.port()) << 32 | u64::from(std::process::id()));
        random.next_u64();
        let caller = TraceContext::root(&random);
        let trace_id = caller.trace_id.as_str();

        let first = House::open(&place, webhook, false).await;
        let token = first.server.token(Role::Admin).await;
        let body = json!({"commandType": "SubmitOrder", "payload": 7, "correlationId": "corr-7"}).to_string();
        let ask = post("/v1/commands", &body).header("traceparent", &caller.to_traceparent().unwrap());
        let answer = ask.token(&token).send(first.server.address).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let page = first.services.log.read(&Selection::all(), 1).await.unwrap();
        let (event_id, event) = (page.events[0].id().to_owned(), page.events[0].trace().unwrap());
        first.stop().await;

        // Another process carries out what was begun, and the receiver of publications is not well.
        let second = House::open(&place, webhook, true).await;
        let refused = waiting(seen.recv()).await.unwrap();
        second.services.projections.wait_for("orders", 1, PATIENCE).await.unwrap();
        second.stop().await;

        is_well.store(true, Ordering::SeqCst);
        let third = House::open(&place, webhook, true).await;
        let mut delivered = refused.clone();
        let publication = async {
            loop {
                let found = third.services.publications.status(&event_id).await.unwrap();
                if found.iter().all(|one| one.status.as_str() == "delivered") {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        waiting(publication).await;
        while let Ok(traceparent) = seen.try_recv() {
            delivered = traceparent;
        }
        third.stop().await;

        let request = only(named(trace_id, "request", ("path", "/v1/commands")));
        assert_eq!(request.get("parent_span_id"), caller.span_id);
        assert!(answer.header("traceparent").unwrap().contains(request.get("span_id")));
        let command = only(named(trace_id, "command", ("command_type", "SubmitOrder")));
        assert_eq!(command.get("parent_span_id"), request.get("span_id"));
        assert_eq!(command.get("outcome"), "success");
        let told = only(named(trace_id, "event", ("event_id", &event_id)));
        assert_eq!(told.get("parent_span_id"), command.get("span_id"));
        assert_eq!((told.get("span_id"), trace_id), (&*event.span_id, &*event.trace_id), "as it is kept");
        let projected = only(named(trace_id, "projection", ("event_id", &event_id)));
        assert_eq!((projected.get("projection"), projected.get("outcome")), ("orders", "success"));
        assert_eq!(projected.get("parent_span_id"), event.span_id);

        let shipped = named(trace_id, "work", ("function", "ship"));
        let outcomes: Vec<_> = shipped.iter().map(|one| (one.get("attempt"), one.get("outcome"))).collect();
        assert_eq!(outcomes, [("1", "failed"), ("2", "success")]);
        assert!(shipped.iter().all(|one| one.get("parent_span_id") == command.get("span_id")));
        assert_ne!(shipped[0].get("span_id"), shipped[1].get("span_id"));

        let deliveries: Vec<_> = logged::spans(trace_id)
            .into_iter()
            .filter(|span| span.name == "work" && span.get("function").contains("inventory"))
            .collect();
        assert!(deliveries.len() >= 2, "{deliveries:?}");
        assert!(deliveries.iter().all(|one| one.get("parent_span_id") == event.span_id), "{deliveries:?}");
        for traceparent in [&refused, &delivered] {
            let sent = deliveries.iter().filter(|one| traceparent.contains(one.get("span_id")));
            assert_eq!(sent.count(), 1, "{traceparent} {deliveries:?}");
            assert!(traceparent.starts_with(&format!("00-{trace_id}-")), "{traceparent}");
        }
        for span in logged::spans(trace_id) {
            assert_eq!(span.get("correlation_id"), "corr-7", "{span:?}");
        }

        let text = logged::text();
        for said in ["an order is taken up", "an order is shipped"] {
            let lines = text.lines().filter(|line| line.contains(said) && line.contains(trace_id));
            assert!(lines.filter(|line| line.contains("corr-7")).count() > 0, "{said}");
        }
    });
}

#[test]
fn b_260_work_that_nobody_traced_is_a_trace_by_itself_over_all_its_executions() {
    for_each_lasting_store(async |place| {
        let (seen, mut told) = unbounded_channel();
        let functions = Functions::new().action("ship", move |call: Call, _: ()| {
            let _ = seen.send((call.work_id.clone(), call.trace.clone().unwrap()));
            async move { if call.attempt == 1 { Err(Failure::retryable("no")) } else { Ok(()) } }
        });
        let store = equipped(place.options()).open().await.unwrap();
        let services = Builder::on_store(store.clone()).functions(functions).open().await.unwrap();
        services.work.pool(Pool::new("shop")).await.unwrap();
        let engine = services.work.start().await.unwrap();
        let often = RetryPolicy::new(5, 1, 1.0, 1).unwrap();
        services.work.enqueue(NewWork::new("shop", "ship", &()).unwrap().retry(often)).await.unwrap();
        let (work_id, first) = waiting(told.recv()).await.unwrap();
        let (_, second) = waiting(told.recv()).await.unwrap();
        assert_eq!(first.trace_id, work_id.rsplit('_').next().unwrap_or_default().replace('-', ""));
        assert_eq!((&first.trace_id, &first.parent_span_id), (&second.trace_id, &None));
        assert_ne!(first.span_id, second.span_id);
        assert!(first.to_traceparent().is_some());
        engine.stop(PATIENCE).await.unwrap();
    });
}
