//! What every handler can reach: `State(app): State<App>`.

use crate::access::quota::{Held, Quota};
use crate::audit::Auditor;
use crate::console::Past;
use crate::figures::Figures;
use crate::health::{self, Watch};
use crate::lately::Lately;
use crate::report::{self, Rates};
use crate::{Answer, Options, Principal, Problem, Services, Shutdown, Tokens, error};
use mainstay_core::measure::Measured;
use mainstay_events::Log;
use mainstay_flows::commands::Dispatcher;
use mainstay_flows::dead_letters::{DeadLetters, Groups, Stats};
use mainstay_flows::delivery::intents::Intents;
use mainstay_flows::delivery::publications::Publisher;
use mainstay_flows::projections::{Aside, Projections};
use mainstay_guards::circuits::Circuits;
use mainstay_guards::limits::store::Limits;
use mainstay_store::Store;
use mainstay_store::system::SystemRandom;
use mainstay_work::Work;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What every handler can reach. Clones are the same.
#[derive(Clone)]
pub struct App(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) address: SocketAddr,
    pub(crate) store: Store,
    pub(crate) services: Services,
    pub(crate) tokens: Tokens,
    pub(crate) shutdown: Shutdown,
    pub(crate) figures: Figures,
    pub(crate) random: SystemRandom,
    pub(crate) watch: Watch,
    pub(crate) auditor: Auditor,
    pub(crate) collected: report::Figures,
    pub(crate) rates: Rates,
    pub(crate) past: Past,
    pub(crate) letter_stats: Lately<Stats>,
    pub(crate) letter_groups: Lately<Groups>,
    pub(crate) put_aside: Lately<Vec<Aside>>,
    /// Room for answers that have no end.
    pub(crate) streams: Arc<Semaphore>,
    /// Shares of tokens and tenants in these.
    pub(crate) stream_quota: Quota,
    /// Shares of tokens and tenants in the requests under way.
    pub(crate) request_quota: Quota,
    /// The description of the API, as it is served.
    pub(crate) openapi: String,
}

/// Room for an answer that has no end.
pub(crate) struct RoomToFollow {
    _permit: OwnedSemaphorePermit,
    _held: Held,
}

impl App {
    /// What handlers reach, with nothing measured yet. `openapi` is the description of the API, as it is served.
    pub(crate) fn open(options: Options, address: SocketAddr, services: Services, openapi: String) -> Self {
        let store = services.store().clone();
        let room_to_follow = (options.max_connections / 2).max(1);
        let quota = |what, whole| Quota::new(what, whole, options.token_share, options.tenant_share);
        Self(Arc::new(Inner {
            stream_quota: quota("streams", room_to_follow),
            request_quota: quota("requests", options.max_connections),
            options,
            address,
            tokens: Tokens::new(store.clone()),
            store,
            services,
            shutdown: Shutdown::default(),
            figures: Default::default(),
            random: SystemRandom::default(),
            auditor: Auditor::default(),
            watch: health::watch(),
            collected: report::figures(),
            rates: Default::default(),
            past: Default::default(),
            letter_stats: Default::default(),
            letter_groups: Default::default(),
            put_aside: Default::default(),
            streams: Arc::new(Semaphore::new(room_to_follow)),
            openapi,
        }))
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// The services of the store.
    pub(crate) fn services(&self) -> &Services {
        &self.0.services
    }

    /// The log of the store.
    pub fn log(&self) -> &Log {
        &self.0.services.log
    }

    /// Who decides about commands.
    pub fn commands(&self) -> &Dispatcher {
        &self.0.services.commands
    }

    /// The read models.
    pub fn projections(&self) -> &Projections {
        &self.0.services.projections
    }

    /// The intents of the store.
    pub fn intents(&self) -> &Intents {
        &self.0.services.intents
    }

    /// Its dead letters.
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.0.services.dead_letters
    }

    /// Who publishes events to other contexts.
    pub fn publications(&self) -> &Publisher {
        &self.0.services.publications
    }

    /// The work of the store.
    pub fn work(&self) -> &Work {
        &self.0.services.work
    }

    /// The circuits of the store.
    pub fn circuits(&self) -> &Circuits {
        &self.0.services.circuits
    }

    /// The limits of the store.
    pub fn limits(&self) -> &Limits {
        &self.0.services.limits
    }

    /// The tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// The wish that the server stops; answers that stream end when it comes.
    pub fn shutdown(&self) -> &Shutdown {
        &self.0.shutdown
    }

    /// Room for an answer that has no end, as long as it is held. There is less of it than there may be connections, so that
    /// those who follow do not keep out those who ask, probes among them; and one token or tenant has a share of it only.
    pub(crate) fn room_to_follow(&self, principal: &Principal) -> Answer<RoomToFollow> {
        let taken = |_| Problem::new(&error::STREAMS_FULL, "As many follow as the server has room for.");
        let permit = self.0.streams.clone().try_acquire_owned().map_err(taken)?;
        let held = self.0.stream_quota.take(principal)?;
        Ok(RoomToFollow { _permit: permit, _held: held })
    }

    /// Counts a request of a caller for as long as it is held.
    pub(crate) fn room_to_ask(&self, principal: &Principal) -> Answer<Held> {
        self.0.request_quota.take(principal)
    }

    /// Everything that keeps figures about itself, for `/metrics`. A further part is a further line.
    pub(crate) fn measured(&self) -> [&dyn Measured; 7] {
        [
            self.0.store.figures(),
            &**self.log().figures(),
            self.commands().figures(),
            &**self.work().figures(),
            &**self.circuits().figures(),
            self.limits().figures(),
            &self.0.figures,
        ]
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    pub(crate) fn figures(&self) -> &Figures {
        &self.0.figures
    }

    pub(crate) fn auditor(&self) -> &Auditor {
        &self.0.auditor
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.0.watch
    }

    /// What was last read from the database for figures.
    pub(crate) fn collected(&self) -> &report::Figures {
        &self.0.collected
    }

    pub(crate) fn rates(&self) -> &Rates {
        &self.0.rates
    }

    /// How things were in the last minutes.
    pub(crate) fn past(&self) -> &Past {
        &self.0.past
    }

    /// How many dead letters there were, a moment ago.
    pub(crate) fn letter_stats(&self) -> &Lately<Stats> {
        &self.0.letter_stats
    }

    /// How they were grouped, a moment ago.
    pub(crate) fn letter_groups(&self) -> &Lately<Groups> {
        &self.0.letter_groups
    }

    /// What lay aside of each projection, a moment ago.
    pub(crate) fn put_aside(&self) -> &Lately<Vec<Aside>> {
        &self.0.put_aside
    }

    pub(crate) fn random(&self) -> &SystemRandom {
        &self.0.random
    }

    pub(crate) fn openapi(&self) -> &str {
        &self.0.openapi
    }
}
