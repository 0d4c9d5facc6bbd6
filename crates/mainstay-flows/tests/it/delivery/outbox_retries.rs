//! Failed actions, their records and their retries, in every order: what was charged is what the log says.

use super::support::{CAUGHT, PATIENCE, POOL, Payment, components, data, outbox, retries, until};
use mainstay_core::failpoints::{Action, Failpoints, Point};
use mainstay_events::{Event, Log, NewEvent, Selection};
use mainstay_flows::delivery::outbox::Outbox;
use mainstay_store::{Options, Store};
use mainstay_testkit::stores::{Kind, for_each_lasting_store, for_each_store};
use mainstay_work::{
    Call, Failure, Functions, Letter, LetterFilter, LetterStatus, NewWork, Pool, Recording, RetryPolicy,
    Work, WorkResult,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// On PostgreSQL another node takes over once this is over.
const LEASE: Duration = Duration::from_millis(400);

/// The provider of payments, which knows a payment by its order and so charges it once.
#[derive(Default)]
struct Provider {
    accepts: Mutex<bool>,
    charged: Mutex<BTreeSet<String>>,
}

impl Provider {
    fn accept(&self, accepts: bool) {
        *self.accepts.lock().unwrap() = accepts;
    }

    fn charge(&self, order: String) -> Result<&'static str, Failure> {
        match *self.accepts.lock().unwrap() {
            true => {
                self.charged.lock().unwrap().insert(order);
                Ok("ch-456")
            }
            false => Err(Failure::permanent("card declined")),
        }
    }

    fn has_charged(&self, order: &str) -> bool {
        self.charged.lock().unwrap().contains(order)
    }
}

fn plain(max_retries: u32) -> Outbox {
    outbox(retries(max_retries))
}

fn correctable(max_retries: u32) -> Outbox {
    plain(max_retries).retryable(|result: &WorkResult, payment: &Payment| {
        let WorkResult::Success { .. } = result else { return Err("only a success corrects".into()) };
        let event = NewEvent::new("PaymentCorrected", &json!({ "orderId": payment.order_id }))?;
        Ok(event.stream("Order", &payment.order_id))
    })
}

struct Shop {
    store: Store,
    log: Log,
    work: Work,
    provider: Arc<Provider>,
}

impl Shop {
    async fn open(options: Options, outbox: Outbox, provider: &Arc<Provider>) -> Self {
        Self::with(options, provider, |functions, log| outbox.functions(functions, log)).await
    }

    async fn with(
        options: Options,
        provider: &Arc<Provider>,
        add: impl FnOnce(Functions, &Log) -> Functions,
    ) -> Self {
        let store = components(options).open().await.unwrap();
        let log = Log::open(&store).await.unwrap();
        let asked = provider.clone();
        let pay = move |_: Call, order: String| {
            let answer = asked.charge(order);
            async move { answer }
        };
        let functions = add(Functions::new().action("pay", pay), &log);
        let work = Work::open_with_lease(&store, functions, LEASE).await.unwrap();
        work.pool(Pool::new(POOL).retry(RetryPolicy::new(3, 1, 1.0, 1).unwrap())).await.unwrap();
        Self { store, log, work, provider: provider.clone() }
    }

    /// Lets an order be paid, and waits for the end of that.
    async fn pay(&self, payment: &Payment) -> String {
        let new = NewWork::new(POOL, "pay", &payment.order_id).unwrap();
        let work_id = self.work.enqueue(new.on_complete(CAUGHT, payment).unwrap()).await.unwrap().work_id;
        self.ended(&work_id).await;
        work_id
    }

    async fn ended(&self, work_id: &str) {
        self.work.wait_for(work_id, PATIENCE).await.unwrap();
    }

    /// The order is placed: what waits for that can be recorded.
    async fn place(&self, order: &str) {
        self.log.append(NewEvent::new("OrderPlaced", &()).unwrap().stream("Order", order)).await.unwrap();
    }

    /// The events of payments of an order, the newest last.
    async fn said(&self, order: &str) -> Vec<String> {
        let events = self.log.read(&Selection::all(), 1_000).await.unwrap().events;
        let of_order = |event: &&Event| {
            event.stream().is_some_and(|stream| stream.id == order) && event.event_type() != "OrderPlaced"
        };
        events.iter().filter(of_order).map(|event| event.event_type().to_owned()).collect()
    }

    async fn says(&self, order: &str, expected: &[&str]) {
        until(async || Some(self.said(order).await).filter(|said| said.len() >= expected.len())).await;
        assert_eq!(self.said(order).await, expected);
        let is_paid = expected.last().is_some_and(|last| *last != "PaymentFailed");
        assert_eq!(self.provider.has_charged(order), is_paid, "the log says {expected:?}");
    }

    async fn letters(&self) -> Vec<Letter> {
        self.work.letters(LetterFilter::default(), 10).await.unwrap()
    }

    /// The kinds of the letters that are listed, in both of their tables.
    async fn kinds(&self) -> Vec<String> {
        let kinds: Vec<String> =
            self.letters().await.into_iter().map(|letter| letter.kind.to_string()).collect();
        assert_eq!(self.work.count_letters(100).await.unwrap(), kinds.len() as u64, "{kinds:?}");
        kinds
    }

    /// The one letter of this kind, once there is one.
    async fn letter(&self, kind: &str) -> String {
        let letters = until(async || {
            let letters = self.letters().await;
            letters.iter().any(|letter| letter.kind == kind).then_some(letters)
        });
        let letters = letters.await;
        assert_eq!(letters.len(), 1, "{letters:?}");
        letters[0].work_id.clone()
    }

    /// Tries a letter again and waits for the end of that.
    async fn retry(&self, work_id: &str) -> String {
        let again = self.work.retry_letter(work_id).await.unwrap();
        self.ended(&again).await;
        again
    }
}

/// Recorded only once its order was placed.
fn waits(order: &str) -> Payment {
    Payment { expected: Some(1), ..Payment::of(order) }
}

#[test]
fn a_failure_that_is_recorded_for_good_leaves_no_letter_to_retry() {
    for_each_store(async |place| {
        let provider = Arc::default();
        let shop = Shop::open(place.options(), plain(1_000), &provider).await;
        let engine = shop.work.start().await.unwrap();
        // Recorded at once, and recorded later by an item of its own.
        let at_once = shop.pay(&Payment::of("ord-1")).await;
        let later = shop.pay(&waits("ord-2")).await;
        provider.accept(true);
        for work_id in [&at_once, &later] {
            let refused = shop.work.retry_letter(work_id).await.unwrap_err();
            assert_eq!(refused.code(), "DEAD_LETTER_NOT_FOUND");
        }
        assert!(shop.kinds().await.is_empty());
        assert_eq!(shop.work.retry_letters(LetterFilter::default()).await.unwrap(), 0);
        shop.says("ord-1", &["PaymentFailed"]).await;
        shop.says("ord-2", &[]).await;
        shop.place("ord-2").await;
        shop.says("ord-2", &["PaymentFailed"]).await;
        assert!(shop.kinds().await.is_empty());
        // The failure stays visible where it happened.
        let status = shop.work.status(&later).await.unwrap().unwrap();
        assert_eq!((status.native, status.attempts), (mainstay_work::Native::Failed, 1));
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_record_that_was_given_up_is_retried_as_a_record_and_not_as_a_charge() {
    for_each_store(async |place| {
        let provider = Arc::default();
        let shop = Shop::open(place.options(), plain(1), &provider).await;
        let engine = shop.work.start().await.unwrap();
        shop.pay(&waits("ord-1")).await;
        let record = shop.letter("onComplete").await;
        assert_eq!(shop.kinds().await, ["onComplete"]);
        provider.accept(true);
        // Too early: it is given up again, and nothing was charged.
        shop.retry(&record).await;
        shop.says("ord-1", &[]).await;
        shop.place("ord-1").await;
        let record = shop.letter("onComplete").await;
        shop.retry(&record).await;
        shop.says("ord-1", &["PaymentFailed"]).await;
        assert!(shop.kinds().await.is_empty());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_retry_after_the_record_is_a_correction_with_a_key_of_its_own() {
    for_each_store(async |place| {
        let provider = Arc::default();
        let shop = Shop::open(place.options(), correctable(1_000), &provider).await;
        let engine = shop.work.start().await.unwrap();
        shop.pay(&Payment::of("ord-1")).await;
        // A retry that fails as well adds nothing and leaves one letter.
        for _ in 0..2 {
            let letter = shop.letter("work").await;
            shop.retry(&letter).await;
            shop.says("ord-1", &["PaymentFailed"]).await;
        }
        // One that is cancelled leaves its letter where it was.
        let letter = shop.letter("work").await;
        shop.work.pause(POOL).await.unwrap();
        let again = shop.work.retry_letter(&letter).await.unwrap();
        shop.work.cancel(&again).await.unwrap();
        shop.ended(&again).await;
        shop.work.resume(POOL).await.unwrap();
        shop.says("ord-1", &["PaymentFailed"]).await;

        provider.accept(true);
        let letter = shop.letter("work").await;
        shop.retry(&letter).await;
        shop.says("ord-1", &["PaymentFailed", "PaymentCorrected"]).await;
        assert!(shop.kinds().await.is_empty());
        let refused = shop.work.retry_letter(&letter).await.unwrap_err();
        assert_eq!(refused.code(), "DEAD_LETTER_NOT_FOUND");
        let events = shop.log.read(&Selection::all(), 10).await.unwrap().events;
        let keys: Vec<_> = events.iter().filter_map(Event::idempotency_key).collect();
        assert_eq!(keys, ["payment:ord-1", "payment:ord-1:corrected"]);
        assert_eq!(data(&events[1]), json!({ "orderId": "ord-1" }));
        assert_eq!(events[1].context(), Some("orders"));
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_retry_before_the_record_is_refused_and_possible_after_it() {
    for_each_store(async |place| {
        let provider = Arc::default();
        let shop = Shop::open(place.options(), correctable(1_000), &provider).await;
        let engine = shop.work.start().await.unwrap();
        let work_id = shop.pay(&waits("ord-1")).await;
        provider.accept(true);
        let refused = shop.work.retry_letter(&work_id).await.unwrap_err();
        assert_eq!((refused.code(), refused.is_retryable()), ("WORK_FAILURE_UNRECORDED", true));
        assert_eq!(shop.work.letter(&work_id).await.unwrap().status, LetterStatus::Recording);
        assert!(shop.kinds().await.is_empty());
        assert_eq!(shop.work.retry_letters(LetterFilter::default()).await.unwrap(), 0);
        shop.says("ord-1", &[]).await;
        shop.place("ord-1").await;
        assert_eq!(shop.letter("work").await, work_id);
        assert_eq!(shop.kinds().await, ["work"]);
        shop.says_failed_then_retry(&work_id).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

impl Shop {
    /// The failure of ord-1 is recorded although the provider would accept by now; the retry corrects it.
    async fn says_failed_then_retry(&self, work_id: &str) {
        assert_eq!(self.said("ord-1").await, ["PaymentFailed"]);
        assert!(!self.provider.has_charged("ord-1"));
        self.retry(work_id).await;
        self.says("ord-1", &["PaymentFailed", "PaymentCorrected"]).await;
        assert!(self.kinds().await.is_empty());
    }
}

#[test]
fn a_record_that_was_given_up_comes_before_the_retry_too() {
    for_each_store(async |place| {
        let provider = Arc::default();
        let shop = Shop::open(place.options(), correctable(1), &provider).await;
        let engine = shop.work.start().await.unwrap();
        let work_id = shop.pay(&waits("ord-1")).await;
        let record = shop.letter("onComplete").await;
        provider.accept(true);
        let refused = shop.work.retry_letter(&work_id).await.unwrap_err();
        assert_eq!(refused.code(), "WORK_FAILURE_UNRECORDED");
        shop.retry(&record).await;
        let record = shop.letter("onComplete").await;
        shop.place("ord-1").await;
        shop.retry(&record).await;
        assert_eq!(shop.letter("work").await, work_id);
        shop.says_failed_then_retry(&work_id).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_letter_from_before_is_not_retried_behind_the_record() {
    for_each_lasting_store(async |place| {
        let provider = Arc::default();
        // As programs before this one told the end: the letter was there at once.
        let before = |functions: Functions, log: &Log| {
            plain(1_000).functions(functions, log).recording(CAUGHT, Recording::Nothing)
        };
        let shop = Shop::with(place.options(), &provider, before).await;
        let engine = shop.work.start().await.unwrap();
        let work_id = shop.pay(&Payment::of("ord-1")).await;
        assert_eq!(shop.letter("work").await, work_id);
        engine.stop(PATIENCE).await.unwrap();
        shop.store.close().await;

        provider.accept(true);
        let shop = Shop::open(place.options(), plain(1_000), &provider).await;
        let engine = shop.work.start().await.unwrap();
        let refused = shop.work.retry_letter(&work_id).await.unwrap_err();
        assert_eq!(refused.code(), "WORK_FAILURE_RECORDED");
        assert_eq!(shop.work.retry_letters(LetterFilter::default()).await.unwrap(), 0);
        assert_eq!(shop.kinds().await, ["work"]);
        shop.says("ord-1", &["PaymentFailed"]).await;
        engine.stop(PATIENCE).await.unwrap();
        shop.store.close().await;

        // With a correction the letter can be tried again.
        let shop = Shop::open(place.options(), correctable(1_000), &provider).await;
        let engine = shop.work.start().await.unwrap();
        shop.says_failed_then_retry(&work_id).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_second_charge_that_succeeds_after_the_record_is_a_correction_too() {
    for_each_store(async |place| {
        let provider = Arc::default();
        let shop = Shop::open(place.options(), correctable(1_000), &provider).await;
        let engine = shop.work.start().await.unwrap();
        shop.pay(&Payment::of("ord-1")).await;
        provider.accept(true);
        // The application starts the payment again, and no operator retries a letter.
        shop.pay(&Payment::of("ord-1")).await;
        shop.says("ord-1", &["PaymentFailed", "PaymentCorrected"]).await;
        assert_eq!(shop.kinds().await, ["work"]);
        // The retry of the first charge is recognised by the provider and by the log.
        let letter = shop.letter("work").await;
        shop.retry(&letter).await;
        shop.says("ord-1", &["PaymentFailed", "PaymentCorrected"]).await;
        assert!(shop.kinds().await.is_empty());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_cancelled_record_of_a_charge_is_a_letter_and_not_lost() {
    for_each_store(async |place| {
        let provider: Arc<Provider> = Arc::default();
        // A wait of an hour before the record is tried again.
        let hourly = outbox(mainstay_flows::delivery::Retries::new(1_000, 3_600_000, 1.0).unwrap());
        let shop = Shop::open(place.options(), hourly, &provider).await;
        let engine = shop.work.start().await.unwrap();
        for (order, accepts, event) in
            [("ord-1", true, "PaymentCompleted"), ("ord-2", false, "PaymentFailed")]
        {
            provider.accept(accepts);
            shop.pay(&waits(order)).await;
            let filter = |pool: &str| mainstay_work::WorkFilter {
                pool: pool.to_owned(),
                function: Some(CAUGHT.to_owned()),
                key: None,
            };
            until(async || {
                // Waiting or running, wherever the record is.
                shop.work.cancel_all(filter(POOL)).await.unwrap();
                (!shop.letters().await.is_empty()).then_some(())
            })
            .await;
            let record = shop.letter("onComplete").await;
            shop.place(order).await;
            shop.retry(&record).await;
            shop.says(order, &[event]).await;
            assert!(shop.kinds().await.is_empty());
        }
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_node_without_the_outbox_leaves_no_letter_to_retry_either() {
    for_each_lasting_store(async |place| {
        let provider = Arc::default();
        for (make, order) in [(plain as fn(u32) -> Outbox, "ord-1"), (correctable, "ord-2")] {
            let shop = Shop::open(place.options(), make(1_000), &provider).await;
            shop.store.close().await;
            // A node of another program runs the action, and does not know what is told of its end.
            let shop = Shop::with(place.options(), &provider, |functions, _| functions).await;
            let engine = shop.work.start().await.unwrap();
            let work_id = shop.pay(&Payment::of(order)).await;
            assert!(shop.kinds().await.is_empty());
            assert!(shop.work.retry_letter(&work_id).await.is_err());
            shop.says(order, &[]).await;
            engine.stop(PATIENCE).await.unwrap();
            shop.store.close().await;

            let shop = Shop::open(place.options(), make(1_000), &provider).await;
            let engine = shop.work.start().await.unwrap();
            shop.says(order, &["PaymentFailed"]).await;
            let kinds = shop.kinds().await;
            assert_eq!(kinds.len(), usize::from(order == "ord-2"), "{kinds:?}");
            engine.stop(PATIENCE).await.unwrap();
            shop.store.close().await;
        }
    });
}

#[test]
fn operators_on_two_nodes_race_the_record_and_each_other() {
    for_each_store(async |place| {
        let provider: Arc<Provider> = Arc::default();
        let shop = Shop::open(place.options(), correctable(1_000), &provider).await;
        let other = match place.kind() {
            Kind::Postgres => Shop::open(place.options(), correctable(1_000), &provider).await,
            // One process has the store to itself.
            _ => Shop {
                store: shop.store.clone(),
                log: shop.log.clone(),
                work: shop.work.clone(),
                provider: provider.clone(),
            },
        };
        let engines = [shop.work.start().await.unwrap(), other.work.start().await.unwrap()];
        for round in 0..5 {
            let order = format!("ord-{round}");
            provider.accept(false);
            let work_id = shop.pay(&waits(&order)).await;
            provider.accept(true);
            // Both try until it is possible; one of them gets it.
            let try_again = async |work: &Work| {
                loop {
                    match work.retry_letter(&work_id).await {
                        Ok(again) => return Some(again),
                        Err(error) if error.code() == "WORK_FAILURE_UNRECORDED" => {}
                        Err(error) if error.code() == "DEAD_LETTER_NOT_FOUND" => return None,
                        Err(error) if error.is_retryable() => {}
                        Err(error) => panic!("{error}"),
                    }
                    tokio::task::yield_now().await;
                }
            };
            let (one, two, ()) =
                tokio::join!(try_again(&shop.work), try_again(&other.work), shop.place(&order));
            let again: Vec<String> = one.into_iter().chain(two).collect();
            assert_eq!(again.len(), 1, "{again:?}");
            shop.ended(&again[0]).await;
            shop.says(&order, &["PaymentFailed", "PaymentCorrected"]).await;
            assert!(shop.kinds().await.is_empty());
        }
        for engine in engines {
            engine.stop(PATIENCE).await.unwrap();
        }
    });
}

/// Fails, records and retries one payment to its end; false when the process died on the way.
async fn to_the_end(shop: &Shop, points: &Failpoints, order: &str) -> bool {
    let is_over = async || {
        let said = shop.said(order).await;
        said.last().is_some_and(|last| last == "PaymentCorrected") && shop.letters().await.is_empty()
    };
    let going = async {
        loop {
            if points.is_dead() {
                return false;
            }
            if is_over().await {
                return true;
            }
            // Placed late, so that the failure is recorded at once or by an item of its own.
            let placed = NewEvent::new("OrderPlaced", &()).unwrap().stream("Order", order).expecting(0);
            drop(shop.log.append(placed).await);
            // The operator retries every letter, once the provider is well.
            for letter in shop.letters().await {
                shop.provider.accept(true);
                drop(shop.work.retry_letter(&letter.work_id).await);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, going).await.expect("it ends in time")
}

#[test]
fn a_death_at_any_commit_between_failure_record_and_retry_leaves_what_the_log_says() {
    for_each_lasting_store(async |place| {
        let provider: Arc<Provider> = Arc::default();
        for dies_at in 0..8 {
            let order = format!("ord-{dies_at}");
            provider.accept(false);
            let points = Failpoints::default();
            let options = place.options().failpoints(points.clone());
            let shop = Shop::open(options, correctable(1_000), &provider).await;
            let new = NewWork::new(POOL, "pay", &order).unwrap();
            let new = new.on_complete(CAUGHT, &waits(&order)).unwrap();
            shop.work.enqueue(new).await.unwrap();
            if dies_at % 2 == 0 {
                shop.place(&order).await;
            }
            points.arm(Point::StoreCommit, Action::Die, dies_at, 1);
            let engine = shop.work.start().await.ok();
            let mut is_over = to_the_end(&shop, &points, &order).await;
            drop(engine);
            shop.store.close().await;
            while !is_over {
                let shop = Shop::open(place.options(), correctable(1_000), &provider).await;
                let engine = shop.work.start().await.unwrap();
                is_over = to_the_end(&shop, &Failpoints::default(), &order).await;
                engine.stop(PATIENCE).await.unwrap();
                shop.store.close().await;
            }
            let shop = Shop::open(place.options(), correctable(1_000), &provider).await;
            shop.says(&order, &["PaymentFailed", "PaymentCorrected"]).await;
            assert!(shop.kinds().await.is_empty());
            shop.store.close().await;
        }
    });
}
