//! Everything that plays: the shop on its store, the services beside it, and the server with its console.

use super::provider::{self, Provider};
use super::schedule::Schedule;
use crate::{Error, Failure, Result};
use mainstay::guards::circuits::{Settings, Trip};
use mainstay::guards::limits::{Definition, Kind};
use mainstay::store::Options;
use mainstay::work::egress::Egress;
use mainstay::work::http::Secret;
use mainstay_server::{HealthRules, Routes, Server, Stopped};
use order_management::integration::notifications_at;
use order_management::notifications::NotificationService;
use order_management::payments::PaymentProvider;
use order_management::{Neighbours, OrderManagement};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long what is under way may take when the demo ends.
const GRACE: Duration = Duration::from_secs(5);
/// So many failures one after another open the circuit before the provider.
const FAILURES: u32 = 5;
/// A call of the provider is made so often; then it is a dead letter.
const ATTEMPTS: u32 = 2;

/// What a visitor may change in an hour.
const ADMIN_OPERATIONS: f64 = 1_000.0;

/// Where everything is kept.
pub(super) struct Places {
    /// The shop's store, with everything that a server needs.
    pub(super) shop: Options,
    /// The store of the service that tells customers.
    pub(super) notifications: Options,
    /// The books of the provider of payments, by their URL: another process opens them.
    pub(super) books: String,
}

/// Everything that plays.
pub(super) struct Stage {
    pub(super) app: Arc<OrderManagement>,
    pub(super) provider: Provider,
    /// Where the server listens.
    pub(super) url: String,
    /// A link that opens the console, once.
    pub(super) login: String,
    notifications: NotificationService,
    telling: JoinHandle<std::io::Result<()>>,
    server: mainstay_server::Handle,
    serving: JoinHandle<Stopped>,
}

impl Stage {
    /// Opens everything, and lets it work.
    pub(super) async fn open(places: Places, listen: Option<SocketAddr>, cycle: Duration) -> Result<Self> {
        let schedule = Schedule::new(cycle);
        let secret = || Secret::new("known to both, and to nobody else").ok_or_else(unlikely);
        let notifications = NotificationService::open(places.notifications, [secret()?]).await?;
        let (listener, url) = provider::listen().await?;
        let telling = tokio::spawn(axum::serve(listener, notifications.router()).into_future());
        // Addresses of this machine are not reached unless it is said that they may be.
        let egress = || Egress::new(&["127.0.0.1".to_owned()]).map_err(|_| unlikely());
        let webhook = notifications_at(&format!("{url}/events"), secret()?, egress()?)?;
        let provider = Provider::start(&places.books, cycle).await?;
        let payments = PaymentProvider::at(provider.url(), secret()?, egress()?)?
            .circuit(circuit(schedule))
            .attempts(ATTEMPTS, schedule.backoff())?;
        let neighbours = Neighbours { notifications: Some(webhook), payments: Some(payments) };
        let app = Arc::new(OrderManagement::open_among(places.shop, neighbours).await?);
        let server = bind(&app, listen).await?;
        let (url, handle) = (server.url(), server.handle());
        let login = server.login_link().await.map_err(Failure::from)?;
        let serving = tokio::spawn(server.run(std::future::pending()));
        Ok(Self { app, provider, url, login, notifications, telling, server: handle, serving })
    }

    /// Ends everything; what is under way is finished first.
    pub(super) async fn close(self) -> Result<()> {
        self.server.stop();
        drop(self.serving.await);
        // Whoever still holds it has been told to end, and does.
        if let Ok(app) = Arc::try_unwrap(self.app) {
            app.stop(GRACE).await?;
        }
        self.provider.stop().await?;
        self.telling.abort();
        self.notifications.stop().await;
        Ok(())
    }
}

/// What opens the circuit before the provider, and for how long.
fn circuit(schedule: Schedule) -> Settings {
    Settings {
        trip: Trip::Consecutive { failure_threshold: FAILURES },
        reset_timeout_ms: schedule.reset().as_millis() as u64,
        ..Settings::default()
    }
}

/// The server over what the application has opened: at the given address, or at the usual one, or at a free one.
async fn bind(app: &OrderManagement, listen: Option<SocketAddr>) -> Result<Server> {
    let services = app.mainstay().services();
    // Whoever looks around clicks more often than an operator should.
    let curious = Definition::new(Kind::FixedWindow, ADMIN_OPERATIONS, 3_600_000)?;
    services.limits.define("adminOperations", curious).await?;
    // One letter is enough to be told: here nobody has got used to them.
    let rules = HealthRules { max_letters: 1, ..HealthRules::default() };
    let options = mainstay_server::Options::default().health(rules).shutdown_grace(GRACE);
    let at =
        |options: mainstay_server::Options| Server::bind_with(options, services.clone(), Routes::default());
    let Some(address) = listen else {
        return match at(options.clone()).await {
            Err(mainstay_server::Error::Listen { source, .. }) if source.kind() == ErrorKind::AddrInUse => {
                Ok(at(options.listen(SocketAddr::from(([127, 0, 0, 1], 0)))).await.map_err(Failure::from)?)
            }
            bound => Ok(bound.map_err(Failure::from)?),
        };
    };
    Ok(at(options.listen(address)).await.map_err(Failure::from)?)
}

fn unlikely() -> Error {
    Failure::Broken("a constant of the demo is not one".to_owned()).into()
}
