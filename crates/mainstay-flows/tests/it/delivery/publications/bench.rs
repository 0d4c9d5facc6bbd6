//! What the tests of publications have in common: a store with a log and targets, and a target that does as it is told.

use mainstay_events::{Append, Log, NewEvent};
use mainstay_flows::delivery::publications::{
    self, Delivery, Letter, LetterFilter, Publication, Publisher, Retry, Status, Target, Targets,
};
use mainstay_store::{Options, Store};
use mainstay_testkit::stores::Place;
use mainstay_work::{Engine, Failure, Functions, Work};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longer than anything takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Bench {
    pub(crate) store: Store,
    pub(crate) log: Log,
    pub(crate) work: Work,
    pub(crate) publisher: Publisher,
}

pub(crate) fn components(options: Options) -> Options {
    options
        .component(mainstay_events::COMPONENT)
        .component(mainstay_work::COMPONENT)
        .component(mainstay_guards::circuits::COMPONENT)
        .component(mainstay_flows::projections::COMPONENT)
        .component(publications::COMPONENT)
}

impl Bench {
    pub(crate) async fn open(place: &Place, targets: Targets) -> Self {
        let store = components(place.options()).open().await.unwrap();
        Self::on(store, targets).await
    }

    pub(crate) async fn on(store: Store, targets: Targets) -> Self {
        Self::leased(store, targets, Duration::from_secs(15)).await
    }

    /// With leases of another length, for nodes that die or are paused.
    pub(crate) async fn leased(store: Store, targets: Targets, lease: Duration) -> Self {
        let log = Log::open(&store).await.unwrap();
        let work = Work::open_with_lease(&store, Functions::new(), lease).await.unwrap();
        let publisher = Publisher::open(&log, &work, targets).await.unwrap();
        Self { store, log, work, publisher }
    }

    pub(crate) async fn start(&self) -> Engine {
        self.work.start().await.unwrap()
    }

    /// Appends an event; its id.
    pub(crate) async fn event(&self, event_type: &str, data: &Value) -> String {
        let event = NewEvent::new(event_type, data).unwrap().stream("Order", "ord-1").correlation("corr-1");
        let appended = self.log.append(Append::from(event)).await.unwrap();
        appended.events[0].event_id.clone()
    }

    /// Publishes an event of the context `orders`.
    pub(crate) async fn publish(&self, event_id: &str, targets: &[&str]) {
        self.publisher.publish(event_id, "orders", targets).await.unwrap();
    }

    /// Where the publication to a target stands.
    pub(crate) async fn publication(&self, event_id: &str, target: &str) -> Publication {
        let all = self.publisher.status(event_id).await.unwrap();
        all.into_iter().find(|one| one.target_context == target).expect("it was published there")
    }

    /// Waits until the publication to a target stands so.
    pub(crate) async fn until(&self, event_id: &str, target: &str, status: Status) -> Publication {
        let waiting = async {
            loop {
                let publication = self.publication(event_id, target).await;
                if publication.status == status {
                    return publication;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(publication) => publication,
            Err(_) => panic!("never {status:?}: {:?}", self.publication(event_id, target).await),
        }
    }

    pub(crate) async fn letters(&self, target: &str) -> Vec<Letter> {
        let filter = LetterFilter { target: Some(target.to_owned()), ..LetterFilter::default() };
        self.publisher.letters(filter, 1_000).await.unwrap()
    }

    /// How much waits or runs in the pool of publications.
    pub(crate) async fn under_way(&self) -> u64 {
        let depth = self.work.depth(publications::POOL).await.unwrap();
        depth.pending + depth.running
    }
}

/// Retries follow at once.
pub(crate) fn at_once(max_retries: u32) -> Retry {
    Retry { max_retries, initial_backoff_ms: 1, base: 1.0 }
}

/// Targets whose retries follow at once, five of them.
pub(crate) fn targets(targets: impl IntoIterator<Item = Target>) -> Targets {
    targets.into_iter().fold(Targets::new(at_once(5)), Targets::with)
}

/// A target that notes what it is given, and fails as often as it was told to.
#[derive(Clone, Default)]
pub(crate) struct Context {
    given: Arc<Mutex<Vec<Delivery>>>,
    failures: Arc<Mutex<VecDeque<Failure>>>,
    /// What it fails with when there is nothing else to fail with.
    always: Arc<Mutex<Option<Failure>>>,
}

impl Context {
    pub(crate) fn failing(failure: Failure) -> Self {
        let context = Self::default();
        context.fail(Some(failure));
        context
    }

    /// Fails from now on, or no more.
    pub(crate) fn fail(&self, failure: Option<Failure>) {
        *self.always.lock().unwrap() = failure;
    }

    /// Fails the next so many times.
    pub(crate) fn fail_times(&self, times: usize, failure: &Failure) {
        self.failures.lock().unwrap().extend(std::iter::repeat_n(failure.clone(), times));
    }

    pub(crate) fn given(&self) -> Vec<Delivery> {
        self.given.lock().unwrap().clone()
    }

    fn take(&self, delivery: Delivery) -> Result<(), Failure> {
        self.given.lock().unwrap().push(delivery);
        let next = self.failures.lock().unwrap().pop_front();
        match next.or_else(|| self.always.lock().unwrap().clone()) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    pub(crate) fn target(&self, name: &str) -> Target {
        let context = self.clone();
        Target::subscriber(name, move |delivery: Delivery| {
            let taken = context.take(delivery);
            async move { taken }
        })
    }
}
