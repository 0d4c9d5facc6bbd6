//! Events of other contexts: who may send them, and that each is taken once.

use super::publications::bench::{Bench, PATIENCE, targets};
use axum::Router;
use mainstay_core::json::MAX_DEPTH;
use mainstay_events::{Log, NewEvent, Selection};
use mainstay_flows::delivery::inbox::{self, Inbox, Received, Reception};
use mainstay_flows::delivery::publications::{Status, Target, Webhook};
use mainstay_store::{Error as StoreError, Store, Tx, params};
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_testkit::time::VirtualTime;
use mainstay_work::egress::Egress;
use mainstay_work::http::{HttpConfig, Secret, sign};
use mainstay_work::{Call, Class, Failure, Functions, NewWork, Pool, Work};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) fn secret(text: &str) -> Secret {
    Secret::new(text).unwrap()
}

/// A table that says how often each event was taken.
pub(crate) async fn open(options: mainstay_store::Options) -> Store {
    let store = options.component(inbox::COMPONENT).open().await.unwrap();
    let table = "CREATE TABLE IF NOT EXISTS taken (event_id TEXT NOT NULL)";
    store.transact(async move |tx| tx.execute(table, &[]).await).await.unwrap();
    store
}

pub(crate) async fn take(tx: Tx, received: Received) -> mainstay_store::Result<()> {
    tx.execute("INSERT INTO taken (event_id) VALUES ($1)", params![received.event.id]).await.map(drop)
}

pub(crate) async fn taken(store: &Store) -> Vec<String> {
    let read = async |tx: Tx| {
        let rows = tx.query("SELECT event_id FROM taken ORDER BY event_id", &[]).await?;
        rows.iter().map(|row| row.get(0)).collect::<mainstay_store::Result<Vec<String>>>()
    };
    store.read(read).await.unwrap()
}

/// Serves a router on a port of its own.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

fn body(id: &str) -> Vec<u8> {
    let event = json!({
        "specversion": "1.0", "id": id, "source": "orders", "type": "OrderSubmitted",
        "idempotencykey": format!("pub:{id}:inventory"), "data": { "orderId": "ord-1" },
    });
    event.to_string().into_bytes()
}

async fn timed(place: &Place) -> (Store, VirtualTime) {
    let options = place.options().component(inbox::COMPONENT);
    let (store, time) = VirtualTime::open_with(place, options).await.unwrap();
    let table = "CREATE TABLE taken (event_id TEXT NOT NULL)";
    store.transact(async move |tx| tx.execute(table, &[]).await).await.unwrap();
    (store, time)
}

#[test]
fn a_signature_that_is_wrong_old_or_missing_is_refused_and_changes_nothing() {
    for_each_store(async |place| {
        let (store, time) = timed(&place).await;
        let inbox = Inbox::new(&store, "inventory", [secret("s")]).unwrap();
        let now_ms = store.clock().now_ms();
        let code = |signature: Option<&str>, body: &[u8]| {
            inbox.verify(signature, None, body).map(drop).map_err(|error| error.code())
        };
        let (one, other) = (body("evt-1"), body("evt-2"));
        let good = sign(&[secret("s")], &one, now_ms);
        assert_eq!(code(Some(&good), &one), Ok(()));
        let invalid = Err("WEBHOOK_SIGNATURE_INVALID");
        assert_eq!(code(None, &one), invalid);
        assert_eq!(code(Some(""), &one), invalid);
        assert_eq!(code(Some(&good), &other), invalid, "a signature is for one body");
        assert_eq!(code(Some(&sign(&[secret("t")], &one, now_ms)), &one), invalid);
        assert_eq!(code(Some(&sign(&[], &one, now_ms)), &one), invalid);
        time.advance(300_000).await.unwrap();
        assert_eq!(code(Some(&good), &one), Ok(()));
        time.advance(1_000).await.unwrap();
        assert_eq!(code(Some(&good), &one), Err("WEBHOOK_SIGNATURE_STALE"));
        let early = sign(&[secret("s")], &one, store.clock().now_ms() + 302_000);
        assert_eq!(code(Some(&early), &one), Err("WEBHOOK_SIGNATURE_STALE"), "from the future");
        assert_eq!(taken(&store).await.len(), 0);
    });
}

#[test]
fn either_secret_is_good_while_one_replaces_the_other() {
    for_each_store(async |place| {
        let store = open(place.options()).await;
        let (one, now_ms) = (body("evt-1"), store.clock().now_ms());
        let both = Inbox::new(&store, "inventory", [secret("new"), secret("old")]).unwrap();
        for known in ["new", "old"] {
            let header = sign(&[secret(known)], &one, now_ms);
            assert!(both.verify(Some(&header), None, &one).is_ok(), "{known}");
        }
        let only_old = Inbox::new(&store, "inventory", [secret("old")]).unwrap();
        let header = sign(&[secret("new"), secret("old")], &one, now_ms);
        assert!(only_old.verify(Some(&header), None, &one).is_ok(), "a sender that signs with both");
        assert_eq!(Inbox::new(&store, "inventory", []).map(drop).unwrap_err().code(), "FLOW_INVALID");
    });
}

#[test]
fn an_event_that_is_sent_again_is_taken_once_whatever_its_signature() {
    for_each_store(async |place| {
        let (store, time) = timed(&place).await;
        let inbox = Inbox::new(&store, "inventory", [secret("s")]).unwrap();
        let one = body("evt-1");
        let receive = async |header: &str| {
            let received = inbox.verify(Some(header), Some("pub:evt-1:inventory"), &one).unwrap();
            inbox.receive(received, take).await.unwrap()
        };
        let header = sign(&[secret("s")], &one, store.clock().now_ms());
        assert_eq!(receive(&header).await, Reception::Handled);
        assert_eq!(receive(&header).await, Reception::Duplicate, "the same request, replayed");
        time.advance(10_000).await.unwrap();
        let anew = sign(&[secret("s")], &one, store.clock().now_ms());
        assert_eq!(receive(&anew).await, Reception::Duplicate, "signed anew by an honest sender");
        let under_another = inbox.verify(Some(&anew), Some("pub:evt-9:inventory"), &one).unwrap_err();
        assert_eq!(under_another.code(), "WEBHOOK_MALFORMED", "the key is part of what was signed");
        assert_eq!(taken(&store).await, ["evt-1"]);
        let other = Inbox::new(&store, "analytics", [secret("s")]).unwrap();
        let received = other.verify(Some(&anew), None, &one).unwrap();
        assert_eq!(other.receive(received, take).await.unwrap(), Reception::Handled, "inboxes are apart");
    });
}

#[test]
fn many_who_send_the_same_at_once_are_taken_once() {
    for_each_store(async |place| {
        let store = open(place.options()).await;
        let inbox = Inbox::new(&store, "inventory", [secret("s")]).unwrap();
        let one = body("evt-1");
        let header = sign(&[secret("s")], &one, store.clock().now_ms());
        let senders = (0..16).map(|_| inbox.receive(inbox.verify(Some(&header), None, &one).unwrap(), take));
        let receptions = futures_util::future::join_all(senders).await;
        let handled = receptions.iter().filter(|one| *one.as_ref().unwrap() == Reception::Handled).count();
        assert_eq!((handled, taken(&store).await.len()), (1, 1));
    });
}

#[test]
fn a_handler_that_fails_leaves_nothing_and_is_given_the_event_again() {
    for_each_store(async |place| {
        let store = open(place.options()).await;
        let inbox = Inbox::new(&store, "inventory", [secret("s")]).unwrap();
        let one = body("evt-1");
        let header = sign(&[secret("s")], &one, store.clock().now_ms());
        let received = || inbox.verify(Some(&header), None, &one).unwrap();
        let failing = async |tx: Tx, received: Received| {
            take(tx, received).await?;
            Err(StoreError::application("not now"))
        };
        let failed = inbox.receive(received(), failing).await.unwrap_err();
        assert_eq!((failed.code(), failed.is_retryable()), ("WEBHOOK_NOT_HANDLED", true));
        let refusing = async |tx: Tx, received: Received| {
            take(tx, received).await?;
            Err(StoreError::application(Failure::new(Class::ValidationError, "never")))
        };
        let refused = inbox.receive(received(), refusing).await.unwrap_err();
        assert_eq!((refused.code(), refused.is_retryable()), ("WEBHOOK_REFUSED", false));
        let panicking = async |_: Tx, _: Received| panic!("on purpose");
        assert_eq!(inbox.receive(received(), panicking).await.unwrap_err().code(), "WEBHOOK_NOT_HANDLED");
        assert_eq!(taken(&store).await.len(), 0);
        assert_eq!(inbox.receive(received(), take).await.unwrap(), Reception::Handled);
        assert_eq!(taken(&store).await, ["evt-1"]);
    });
}

#[test]
fn keys_are_forgotten_after_their_retention_and_never_while_a_signature_is_good() {
    for_each_store(async |place| {
        let (store, time) = timed(&place).await;
        let inbox = Inbox::new(&store, "inventory", [secret("s")]).unwrap().retention(Duration::from_secs(1));
        let kept = Inbox::new(&store, "kept", [secret("s")]).unwrap();
        let one = body("evt-1");
        let receive = async |inbox: &Inbox| {
            let header = sign(&[secret("s")], &one, store.clock().now_ms());
            inbox.receive(inbox.verify(Some(&header), None, &one).unwrap(), take).await.unwrap()
        };
        assert_eq!(receive(&inbox).await, Reception::Handled);
        assert_eq!(receive(&kept).await, Reception::Handled);
        time.advance(600_000).await.unwrap();
        assert_eq!((inbox.forget().await.unwrap(), receive(&inbox).await), (0, Reception::Duplicate));
        time.advance(1).await.unwrap();
        assert_eq!((inbox.forget().await.unwrap(), kept.forget().await.unwrap()), (1, 0));
        assert_eq!(receive(&inbox).await, Reception::Handled);
        assert_eq!(receive(&kept).await, Reception::Duplicate);
    });
}

#[test]
fn what_is_no_event_is_refused() {
    for_each_store(async |place| {
        let store = open(place.options()).await;
        let inbox = Inbox::new(&store, "inventory", [secret("s")]).unwrap();
        let code = |body: &[u8]| {
            let header = sign(&[secret("s")], body, store.clock().now_ms());
            inbox.verify(Some(&header), None, body).map(drop).unwrap_err().code()
        };
        for bad in [
            &b""[..],
            b"[]",
            b"\xff\xff",
            br#"{"specversion":"1.0"}"#,
            br#"{"specversion":"0.3","id":"a","source":"b","type":"c"}"#,
            br#"{"specversion":"1.0","id":"","source":"b","type":"c"}"#,
            br#"{"specversion":"1.0","id":"a","source":"","type":"c"}"#,
        ] {
            assert_eq!(code(bad), "WEBHOOK_MALFORMED", "{:?}", String::from_utf8_lossy(bad));
        }
        let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
        for data in [&*deep, r#""\u0000""#, "1e999", r#""\ud800""#] {
            let body = format!(r#"{{"specversion":"1.0","id":"a","source":"b","type":"c","data":{data}}}"#);
            assert_eq!(code(body.as_bytes()), "WEBHOOK_MALFORMED", "{data:.20}");
        }
        let nested = |depth: usize| {
            let data = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            format!(r#"{{"specversion":"1.0","id":"a","source":"b","type":"c","data":{data}}}"#)
        };
        // The event itself is one level.
        assert_eq!(code(nested(MAX_DEPTH).as_bytes()), "WEBHOOK_MALFORMED");
        let most = nested(MAX_DEPTH - 1);
        let header = sign(&[secret("s")], most.as_bytes(), store.clock().now_ms());
        assert!(inbox.verify(Some(&header), None, most.as_bytes()).is_ok());
        for field in
            [r#""id":"\u0000""#, r#""id":"a","subject":"\u0000""#, r#""id":"a","idempotencykey":"a\u0000""#]
        {
            let body = format!(r#"{{"specversion":"1.0",{field},"source":"b","type":"c","data":1}}"#);
            assert_eq!(code(body.as_bytes()), "WEBHOOK_MALFORMED", "{field}");
        }
        // The parser would read the text again, from a depth of its own.
        let own = r#"{"$serde_json::private::RawValue":"[[1]]"}"#;
        let body = format!(r#"{{"specversion":"1.0","id":"a","source":"b","type":"c","data":{own}}}"#);
        assert_eq!(code(body.as_bytes()), "WEBHOOK_MALFORMED");
        let long = json!({ "specversion": "1.0", "id": "x".repeat(600), "source": "b", "type": "c" });
        assert_eq!(code(long.to_string().as_bytes()), "WEBHOOK_MALFORMED");
        assert_eq!(code(&vec![b' '; inbox::MAX_BODY_BYTES + 1]), "WEBHOOK_TOO_LARGE");
    });
}

#[test]
fn a_publication_goes_from_one_store_into_another_and_is_taken_once() {
    for_each_store(async |place| {
        let receiving = open(mainstay_store::Options::new("sqlite::memory:")).await;
        let inbox = Inbox::new(&receiving, "inventory", [secret("s")]).unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let receiver = inbox.receiver(move |tx: Tx, received: Received| {
            let call = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                take(tx, received).await?;
                if call == 0 { Err(StoreError::application("not now")) } else { Ok(()) }
            }
        });
        let address = serve(Router::new().route_service("/events", receiver)).await;
        let target = |name: &str, text: &str| {
            let secrets = vec![secret(text)];
            let config = HttpConfig { secrets, ..HttpConfig::new(format!("http://{address}/events")) };
            let egress = Arc::new(Egress::new(&["127.0.0.1".to_owned()]).unwrap());
            Target::webhook(name, Webhook::new(config, egress).unwrap())
        };
        let bench = Bench::open(&place, targets([target("inventory", "s"), target("forged", "t")])).await;
        let engine = bench.start().await;
        let id = bench.event("OrderSubmitted", &json!(1)).await;
        bench.publish(&id, &["inventory", "forged"]).await;
        let delivered = bench.until(&id, "inventory", Status::Delivered).await;
        assert_eq!(delivered.attempt_count, 2, "a handler that failed is given it again");
        let refused = bench.until(&id, "forged", Status::Failed).await;
        assert!(
            refused.error.as_ref().is_some_and(|error| error.contains("WEBHOOK_SIGNATURE_INVALID")),
            "{refused:?}"
        );
        assert_eq!(taken(&receiving).await, [id]);
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// What the handler writes belongs to what the event belongs to.
#[test]
fn what_a_handler_writes_inherits_the_correlation_causation_tenant_and_trace_of_the_event() {
    for_each_store(async |place| {
        let components = [inbox::COMPONENT, mainstay_events::COMPONENT, mainstay_work::COMPONENT];
        let store = components.into_iter().fold(place.options(), mainstay_store::Options::component);
        let store = store.open().await.unwrap();
        let log = Log::open(&store).await.unwrap();
        let work =
            Work::open(&store, Functions::new().action("ship", async |_: Call, _: ()| Ok(()))).await.unwrap();
        work.pool(Pool::new("shop")).await.unwrap();
        let inbox = Inbox::new(&store, "inventory", [secret("s")]).unwrap();
        let receive = async |extensions: serde_json::Value| {
            let mut event = json!({ "specversion": "1.0", "source": "orders", "type": "OrderSubmitted" });
            event.as_object_mut().unwrap().extend(extensions.as_object().unwrap().clone());
            let body = event.to_string().into_bytes();
            let header = sign(&[secret("s")], &body, store.clock().now_ms());
            let received = inbox.verify(Some(&header), None, &body).unwrap();
            let (of_handler, work) = (log.clone(), work.clone());
            let handler = move |tx: Tx, received: Received| {
                let (log, work) = (of_handler.clone(), work.clone());
                async move {
                    let key = received.event.id.chars().take(8).collect::<String>();
                    let appended = NewEvent::new("Reserved", &key)?.context("inventory");
                    log.append_in(&tx, appended).map_err(mainstay_store::Error::from)?;
                    let ship = NewWork::new("shop", "ship", &()).map_err(mainstay_store::Error::from)?;
                    work.enqueue_in(&tx, [ship]).map_err(mainstay_store::Error::from)?;
                    Ok(())
                }
            };
            assert_eq!(inbox.receive(received, handler).await.unwrap(), Reception::Handled);
            let event = log.read(&Selection::all(), 10).await.unwrap().events.pop().unwrap();
            let item = async |tx: Tx| {
                let sql = "SELECT item FROM mainstay_work ORDER BY place DESC LIMIT 1";
                tx.query_one(sql, &[]).await?.get::<String>(0)
            };
            let item: serde_json::Value = serde_json::from_str(&store.read(item).await.unwrap()).unwrap();
            (event, item)
        };
        let (event, item) = receive(json!({
            "id": "evt-1", "correlationid": "corr-1", "causationid": "cmd-1", "tenantid": "acme",
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        }))
        .await;
        assert_eq!((event.correlation_id(), event.causation_id()), ("corr-1", Some("evt-1")));
        assert_eq!(event.tenant(), Some("acme"));
        assert_eq!(event.trace().unwrap().trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
        let fields = ["correlation", "causation", "tenant"].map(|name| item[name].as_str().unwrap());
        assert_eq!(fields, ["corr-1", "evt-1", "acme"]);
        assert_eq!(item["trace"]["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");

        // What another program says and no record here can have is left out, and the event is taken all the same.
        let (event, item) = receive(json!({
            "id": "x".repeat(300), "correlationid": "a\nb", "tenantid": "", "traceparent": "none",
        }))
        .await;
        assert_eq!((event.causation_id(), event.tenant()), (None, None));
        assert!(event.correlation_id() != "a\nb" && item.get("causation").is_none(), "{item}");
    });
}
