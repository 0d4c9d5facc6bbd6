//! Commits that nobody heard of: whoever dispatched a command is told what was committed, and an error when nothing was.

use super::house::{Diary, House, order, shop};
use mainstay_core::failpoints::{Action, Point};
use mainstay_flows::commands;
use mainstay_store::{Options, Store, Tx, params};
use mainstay_testkit::proxy::Proxy;
use mainstay_testkit::stores::{Kind, Place, for_each_kind, for_each_store};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// A commit that has written an order waits at the server until it is let through.
const SLOW_COMMIT: [&str; 3] = [
    "CREATE TABLE gate (is_open BIGINT NOT NULL)",
    "CREATE FUNCTION wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
     WHILE NOT EXISTS (SELECT 1 FROM gate) LOOP PERFORM pg_sleep(0.002); END LOOP; RETURN NULL; END $$",
    "CREATE CONSTRAINT TRIGGER wait_at_the_gate AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED \
     FOR EACH ROW EXECUTE FUNCTION wait_at_the_gate()",
];
/// The server's process whose commit waits.
const WAITING: &str = "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query = 'COMMIT' \
     AND datname = current_database()";

/// A shop at the end of a line that can be cut, and a store that reaches the database by another way.
struct Far {
    house: House,
    line: Proxy,
    near: Store,
}

impl Far {
    async fn open(place: &Place) -> Self {
        let (line, url) = Proxy::before(place).unwrap();
        let diary = Diary::default();
        let components = [mainstay_events::COMPONENT, mainstay_work::COMPONENT, commands::COMPONENT];
        let options = components.into_iter().fold(Options::new(url), Options::component);
        let house = House::open_on(options.open().await.unwrap(), shop(&diary), diary).await;
        let near = place.open().await;
        for sql in SLOW_COMMIT {
            near.transact(async move |tx| tx.execute(sql, &[]).await).await.unwrap();
        }
        Self { house, line, near }
    }

    /// The commits that wait at the server.
    async fn waiting(&self) -> Vec<i64> {
        let read = async |tx: Tx| {
            let rows = tx.query(WAITING, &[]).await?;
            rows.iter().map(|row| row.get(0)).collect::<mainstay_store::Result<Vec<i64>>>()
        };
        self.near.read(read).await.unwrap()
    }

    /// Cuts the line once a commit is on its way, and lets the server do something with that before it is back.
    async fn lose_the_answer(&self, then: impl AsyncFn(i64)) {
        self.lose_the_line(then).await;
        self.line.heal().await;
    }

    /// The same, and the line stays cut.
    async fn lose_the_line(&self, then: impl AsyncFn(i64)) {
        let pid = until(async || self.waiting().await.first().copied()).await;
        self.line.cut().await;
        then(pid).await;
        until(async || self.waiting().await.is_empty().then_some(())).await;
    }

    async fn open_the_gate(&self) {
        let open = async |tx: Tx| tx.execute("INSERT INTO gate (is_open) VALUES (1)", &[]).await;
        self.near.transact(open).await.unwrap();
    }
}

async fn until<T>(look: impl AsyncFn() -> Option<T>) -> T {
    let looking = async {
        loop {
            match look().await {
                Some(found) => return found,
                None => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it happens")
}

#[test]
fn who_did_not_hear_of_a_commit_is_told_what_was_committed() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let far = Far::open(&place).await;
        let sending = far.house.dispatcher.dispatch(order("PlaceOrder", 1).id("cmd-1"));
        let losing = far.lose_the_answer(async |_| far.open_the_gate().await);
        let (dispatched, ()) = tokio::join!(sending, losing);
        let dispatched = dispatched.unwrap();
        assert_eq!((dispatched.command_id.as_str(), dispatched.outcome.status()), ("cmd-1", "success"));
        assert_eq!(dispatched.outcome.events().len(), 1);
        assert_eq!(dispatched.outcome.events()[0].position, far.house.log.head().await.unwrap());
        assert_eq!(far.house.orders().await, ["PlaceOrder"]);
        assert_eq!(far.house.depth("shop").await, 1);
    });
}

#[test]
fn who_did_not_hear_of_a_commit_that_never_was_gets_the_error() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let far = Far::open(&place).await;
        let sending = far.house.dispatcher.dispatch(order("PlaceOrder", 1).id("cmd-1"));
        let losing = far.lose_the_answer(async |pid| {
            let end = async |tx: Tx, pid: i64| {
                tx.query("SELECT pg_terminate_backend(CAST($1 AS INTEGER))", params![pid]).await.map(drop)
            };
            far.near.transact_with(pid, end).await.unwrap();
        });
        let (dispatched, ()) = tokio::join!(sending, losing);
        let error = dispatched.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("STORE_COMMIT_UNKNOWN", true));
        assert!(far.house.orders().await.is_empty());
        assert_eq!((far.house.log.head().await.unwrap(), far.house.depth("shop").await), (0, 0));
        // The same id is decided now, since it was not before.
        far.open_the_gate().await;
        let again = far.house.dispatcher.dispatch(order("PlaceOrder", 1).id("cmd-1")).await.unwrap();
        assert_eq!((again.is_duplicate, again.outcome.status()), (false, "success"));
        assert_eq!(far.house.orders().await, ["PlaceOrder"]);
    });
}

#[test]
fn who_can_neither_hear_nor_look_is_told_that_it_is_not_known() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let far = Far::open(&place).await;
        let sending = far.house.dispatcher.dispatch(order("PlaceOrder", 1).id("cmd-1"));
        let losing = far.lose_the_line(async |_| far.open_the_gate().await);
        let (dispatched, ()) = tokio::join!(sending, losing);
        // The order was placed: "not reached" would be a lie that lets it be placed again under another id.
        assert_eq!(dispatched.unwrap_err().code(), "STORE_COMMIT_UNKNOWN");
        far.line.heal().await;
        assert_eq!(far.house.orders().await, ["PlaceOrder"]);
    });
}

#[test]
fn a_commit_that_fails_is_an_error_and_leaves_the_command_undecided() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.store.failpoints().arm(Point::StoreCommit, Action::Error, 0, 20);
        let error = house.dispatcher.dispatch(order("PlaceOrder", 1).id("cmd-1")).await.unwrap_err();
        house.store.failpoints().arm(Point::StoreCommit, Action::Error, 0, 0);
        assert_eq!(error.code(), "STORE_IO_FAILED");
        assert_eq!(house.dispatcher.status("cmd-1").await.unwrap_err().code(), "COMMAND_NOT_FOUND");
        assert!(house.orders().await.is_empty());
        let again = house.dispatcher.dispatch(order("PlaceOrder", 1).id("cmd-1")).await.unwrap();
        assert_eq!((again.is_duplicate, again.outcome.status()), (false, "success"));
        assert_eq!(house.orders().await, ["PlaceOrder"]);
    });
}
