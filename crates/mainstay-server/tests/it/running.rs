//! A server that runs while a test does.

use crate::test_routes;
use mainstay_guards::limits::{Definition, Kind};
use mainstay_server::tokens::New;
use mainstay_server::{Builder, Handle, Options, Role, Route, Server, Services, Stopped, Tokens, equipped};
use mainstay_store::Store;
use mainstay_testkit::stores::{self, Place};
use std::net::SocketAddr;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) table: Vec<Route>,
    pub(crate) store: Store,
    pub(crate) handle: Handle,
    pub(crate) task: JoinHandle<Stopped>,
    stop: oneshot::Sender<()>,
    _place: Option<Place>,
}

/// Options for a port of one's own.
pub(crate) fn options() -> Options {
    Options::default().listen("127.0.0.1:0".parse().unwrap())
}

impl Running {
    /// On SQLite in memory, for tests in which the store does not matter.
    pub(crate) async fn start(options: Options) -> Self {
        let place = Place::new(stores::Kind::SqliteMemory);
        let store = equipped(place.options()).open().await.unwrap();
        let running = Self::start_on(options, store).await;
        Self { _place: Some(place), ..running }
    }

    pub(crate) async fn start_on(options: Options, store: Store) -> Self {
        let services = Builder::on_store(store.clone()).open().await.unwrap();
        Self::start_with(options, services).await
    }

    pub(crate) async fn start_with(options: Options, services: Services) -> Self {
        let store = services.work.store().clone();
        // Tests do more in a moment than people do in an hour.
        let generous = Definition::new(Kind::FixedWindow, 1e6, 3_600_000).unwrap();
        services.limits.define("adminOperations", generous).await.unwrap();
        let server = Server::bind_with(options, services, test_routes::all()).await.unwrap();
        let (address, table, handle) = (server.address(), server.routes().to_vec(), server.handle());
        let (stop, stopped) = oneshot::channel::<()>();
        // A test that ends without saying anything drops the sender, which stops nothing that still matters.
        let task = tokio::spawn(server.run(async { drop(stopped.await) }));
        Self { address, table, store, handle, task, stop, _place: None }
    }

    /// Makes a token behind the server's back, as another node would.
    pub(crate) async fn token(&self, role: Role) -> String {
        let new = New::named("test", role).unwrap();
        let (_, secret) = Tokens::new(self.store.clone()).create(new).await.unwrap();
        secret.reveal().to_owned()
    }

    /// The same for a tenant.
    pub(crate) async fn token_of(&self, tenant: &str, role: Role) -> String {
        let new = New::named("test", role).unwrap().tenant(tenant).unwrap();
        let (_, secret) = Tokens::new(self.store.clone()).create(new).await.unwrap();
        secret.reveal().to_owned()
    }

    /// Stops it by what `run` was given; the handle is the other way.
    pub(crate) async fn stop(self) -> Stopped {
        self.stop.send(()).unwrap();
        self.task.await.unwrap()
    }
}
