//! The service that tells customers, with a store of its own. Nothing of orders is known here but what is public.

use crate::integration::OrderPlaced;
use axum::Router;
use axum::routing::post;
use mainstay::core::failure::Failure;
use mainstay::flows::Result;
use mainstay::flows::delivery::inbox::{self, Inbox, Incoming, Received, Reception, Refused};
use mainstay::store::migrations::{Component, Script, Step};
use mainstay::store::{Error, Options, Store, Tx, params};
use mainstay::work::http::Secret;

static COMPONENT: Component = Component { name: "notifications", steps: &[CREATE_MAILS] };

const CREATE_MAILS: Step = Step { name: "create_mails", script: Script::Both(&[MAILS]), needs: 0 };

const MAILS: &str = "CREATE TABLE mails (
    order_id TEXT COLLATE \"binary\" NOT NULL,
    customer_id TEXT NOT NULL,
    text TEXT NOT NULL)";

/// The service, open on its store.
pub struct NotificationService {
    store: Store,
    inbox: Inbox,
}

impl NotificationService {
    /// Opens the store with these options. Whoever knows a secret may tell it of orders.
    pub async fn open(options: Options, secrets: impl IntoIterator<Item = Secret>) -> Result<Self> {
        let store = options.component(inbox::COMPONENT).component(COMPONENT).open().await?;
        let inbox = Inbox::new(&store, "notifications", secrets)?;
        Ok(Self { store, inbox })
    }

    /// What it answers: events are posted to `/events`.
    pub fn router(&self) -> Router {
        Router::new().route("/events", post(take)).with_state(self.inbox.clone())
    }

    /// What the customer of an order is told.
    pub async fn mails(&self, order_id: &str) -> Result<Vec<String>> {
        let read = async |tx: Tx, order_id: String| {
            let sql = "SELECT text FROM mails WHERE order_id = $1 ORDER BY text";
            let rows = tx.query(sql, params![order_id]).await?;
            rows.iter().map(|row| row.get(0)).collect()
        };
        Ok(self.store.read_with(order_id.to_owned(), read).await?)
    }

    /// Closes the store.
    pub async fn stop(self) {
        self.store.close().await;
    }
}

/// Takes an event whose signature is good. However often it comes, the mail is written once: it commits with the event's key.
async fn take(incoming: Incoming) -> std::result::Result<Reception, Refused> {
    incoming.once(write).await
}

async fn write(tx: Tx, received: Received) -> mainstay::store::Result<()> {
    // What is not for us is not an error: the sender may publish more one day.
    if received.event.event_type != OrderPlaced::TYPE {
        return Ok(());
    }
    let data = received.event.data.as_ref().map_or("null", |data| data.get());
    // What can never be read is refused for good; the sender keeps it as a dead letter.
    let placed: OrderPlaced = serde_json::from_str(data)
        .map_err(|error| Error::application(Failure::permanent(error.to_string())))?;
    let pieces: i64 = placed.items.iter().map(|item| item.quantity).sum();
    let text = format!("We have your order {} of {pieces} pieces.", placed.order_id);
    let sql = "INSERT INTO mails (order_id, customer_id, text) VALUES ($1, $2, $3)";
    tx.execute(sql, params![placed.order_id, placed.customer_id, text]).await.map(drop)
}
