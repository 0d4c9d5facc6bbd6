//! What the provider of payments does: a server at a port of its own, with books of its own, which is not always well.

use super::super::schedule::{Schedule, Weather};
use super::{Booked, Books};
use crate::{Failure, Result};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::routing::post;
use mainstay::store::migrations::{Component, Script, Step};
use mainstay::store::{self, Options, Store, Tx, params};
use order_management::payments::{Charge, Refund, Said};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// More than this is not charged.
const LIMIT_CENTS: i64 = 1_000_000;
/// While it is down, one of so many charges is made all the same, and only the answer gets lost.
const LOSES_ONE_OF: u64 = 3;

static COMPONENT: Component = Component { name: "payment_provider", steps: &[CREATE_BOOKS] };

const CREATE_BOOKS: Step = Step { name: "create_books", script: Script::Both(&[BOOKS]), needs: 0 };

const BOOKS: &str = "CREATE TABLE books (
    payment_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    amount_cents BIGINT NOT NULL,
    is_refunded BIGINT NOT NULL)";

const CHARGE: &str = "INSERT INTO books (payment_id, amount_cents, is_refunded) VALUES ($1, $2, 0) \
                      ON CONFLICT DO NOTHING";
const REFUND: &str = "UPDATE books SET is_refunded = 1 WHERE payment_id = $1";

/// What a call comes to.
type Outcome<T> = std::result::Result<T, StatusCode>;
/// What is said to it.
type Answer = ([(HeaderName, &'static str); 1], String);

/// Where payments are made.
pub(super) struct Desk {
    store: Store,
    schedule: Schedule,
    /// When its schedule began; it is well until then.
    began: OnceLock<Instant>,
    is_calm: AtomicBool,
    calls: AtomicU64,
    failed: AtomicU64,
}

/// What an HTTP function is called with, as far as it matters here.
#[derive(Deserialize)]
struct Called<T> {
    args: T,
}

impl Desk {
    /// Opens its books. It is well until its schedule begins.
    pub(super) async fn open(options: Options, schedule: Schedule) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            store: options.component(COMPONENT).open().await?,
            schedule,
            began: OnceLock::new(),
            is_calm: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }))
    }

    /// Begins to answer at a free port of this machine: where, and who does.
    pub(super) async fn answer(self: &Arc<Self>) -> Result<(String, JoinHandle<std::io::Result<()>>)> {
        let (listener, url) = listen().await?;
        let router = Router::new().route("/charges", post(charge)).route("/refunds", post(refund));
        Ok((url, tokio::spawn(axum::serve(listener, router.with_state(self.clone())).into_future())))
    }

    /// Lets its schedule begin, if it has not.
    pub(super) fn begin(&self, at: Instant) {
        self.began.get_or_init(|| at);
    }

    /// Lets it be well from now on.
    pub(super) fn calm(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
    }

    /// What it has charged, and how often it was asked.
    pub(super) async fn books(&self) -> Result<Books> {
        let read = async |tx: Tx| {
            let rows = tx.query("SELECT payment_id, amount_cents, is_refunded FROM books", &[]).await?;
            let booked = rows.iter().map(|row| {
                let is_refunded = row.get::<i64>(2)? != 0;
                Ok((row.get(0)?, Booked { amount_cents: row.get(1)?, is_refunded }))
            });
            booked.collect::<store::Result<_>>()
        };
        Ok(Books {
            payments: self.store.read(read).await?,
            calls: self.calls.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        })
    }

    /// Closes its books.
    pub(super) async fn close(&self) {
        self.store.clone().close().await;
    }
}

/// A free port of this machine, and its URL.
pub(in super::super) async fn listen() -> Result<(TcpListener, String)> {
    let failed = |source| Failure::Io { what: "a port of this machine".to_owned(), source };
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, format!("http://{address}")))
}

impl Desk {
    fn weather(&self) -> Weather {
        if self.is_calm.load(Ordering::Relaxed) {
            return Weather::Well;
        }
        self.began.get().map_or(Weather::Well, |began| self.schedule.at(began.elapsed()))
    }

    /// Counts a call, and does to it what the weather does. What is `Ok` is done; whether its answer gets lost.
    async fn receive(&self) -> Outcome<bool> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.weather() {
            Weather::Well => Ok(false),
            Weather::Slow => {
                tokio::time::sleep(self.schedule.slowness()).await;
                Ok(false)
            }
            Weather::Down => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                if number.is_multiple_of(LOSES_ONE_OF) {
                    Ok(true)
                } else {
                    Err(StatusCode::SERVICE_UNAVAILABLE)
                }
            }
        }
    }

    async fn write(&self, sql: &'static str, charge: (String, Option<i64>)) -> Outcome<()> {
        let write = async move |tx: Tx, (payment_id, amount): (String, Option<i64>)| match amount {
            Some(amount) => tx.execute(sql, params![payment_id, amount]).await,
            None => tx.execute(sql, params![payment_id]).await,
        };
        let written = self.store.transact_with(charge, write).await;
        written.map(drop).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// The answer, unless it gets lost.
fn answer(is_lost: bool, said: &Said) -> Outcome<Answer> {
    let text = serde_json::to_string(said).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    if is_lost { Err(StatusCode::BAD_GATEWAY) } else { Ok(([(CONTENT_TYPE, "application/json")], text)) }
}

/// What is asked.
fn asked<T: DeserializeOwned>(body: &str) -> Outcome<T> {
    serde_json::from_str(body).map(|Called { args }| args).map_err(|_| StatusCode::UNPROCESSABLE_ENTITY)
}

/// Charges a payment, once however often it is asked.
async fn charge(State(desk): State<Arc<Desk>>, body: String) -> Outcome<Answer> {
    let Charge { payment_id, amount_cents, .. } = asked(&body)?;
    let is_lost = desk.receive().await?;
    if amount_cents > LIMIT_CENTS {
        return answer(is_lost, &Said::Declined { reason: "more than the card has".to_owned() });
    }
    let receipt = format!("ch_{payment_id}");
    desk.write(CHARGE, (payment_id, Some(amount_cents))).await?;
    answer(is_lost, &Said::Done { receipt })
}

/// Gives a payment back, once however often it is asked.
async fn refund(State(desk): State<Arc<Desk>>, body: String) -> Outcome<Answer> {
    let Refund { payment_id, .. } = asked(&body)?;
    let is_lost = desk.receive().await?;
    let receipt = format!("re_{payment_id}");
    desk.write(REFUND, (payment_id, None)).await?;
    answer(is_lost, &Said::Done { receipt })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const CYCLE: Duration = Duration::from_secs(3_600);

    /// A provider for which so many percent of a cycle are over, and where it answers.
    async fn provider(percent: u32) -> (Arc<Desk>, String) {
        let began = Instant::now().checked_sub(CYCLE / 100 * percent).unwrap();
        let desk = Desk::open(Options::new("sqlite::memory:"), Schedule::new(CYCLE)).await.unwrap();
        desk.begin(began);
        let url = desk.answer().await.unwrap().0;
        (desk, url)
    }

    /// Asks it: the status, and what it says.
    async fn ask(url: &str, path: &str, body: &'static str) -> (u16, String) {
        let url = format!("{url}/{path}");
        let ask = move || {
            let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
            let mut answer = agent.post(&url).send(body).unwrap();
            (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
        };
        tokio::task::spawn_blocking(ask).await.unwrap()
    }

    const CHARGE: &str = r#"{"args":{"paymentId":"p-1","orderId":"o-1","amountCents":900}}"#;
    const TOO_MUCH: &str = r#"{"args":{"paymentId":"p-2","orderId":"o-2","amountCents":1000001}}"#;
    const REFUND: &str = r#"{"args":{"paymentId":"p-1","amountCents":900}}"#;

    #[tokio::test]
    async fn a_payment_is_charged_once_and_given_back_and_too_much_is_declined() {
        let (desk, url) = provider(0).await;
        for _ in 0..2 {
            let (status, said) = ask(&url, "charges", CHARGE).await;
            assert_eq!((status, said.as_str()), (200, r#"{"status":"done","receipt":"ch_p-1"}"#));
        }
        let (status, said) = ask(&url, "charges", TOO_MUCH).await;
        assert_eq!((status, said.contains("declined")), (200, true));
        let booked = |is_refunded| [("p-1".to_owned(), Booked { amount_cents: 900, is_refunded })].into();
        assert_eq!(desk.books().await.unwrap().payments, booked(false));
        assert_eq!(ask(&url, "refunds", REFUND).await.0, 200);
        assert_eq!(desk.books().await.unwrap().payments, booked(true));
        assert_eq!(ask(&url, "charges", "{}").await.0, 422);
    }

    #[tokio::test]
    async fn while_it_is_down_it_fails_and_loses_answers_and_knows_afterwards_what_it_did() {
        let (desk, url) = provider(50).await;
        let counted = async || {
            let books = desk.books().await.unwrap();
            (books.payments.len(), books.calls, books.failed)
        };
        assert_eq!(ask(&url, "charges", CHARGE).await.0, 502, "charged, and not told");
        assert_eq!(ask(&url, "charges", CHARGE).await.0, 503);
        assert_eq!(counted().await, (1, 2, 2));
        desk.calm();
        assert_eq!(ask(&url, "charges", CHARGE).await.0, 200);
        assert_eq!(counted().await, (1, 3, 2));
    }
}
