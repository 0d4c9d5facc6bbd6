//! The table of what was received.

use mainstay_store::migrations::{Component, Script, Step};
use mainstay_store::{Result, Tx, params};

/// What an inbox needs; give it to [`Options::component`](mainstay_store::Options::component).
pub static COMPONENT: Component = Component { name: "inbox", steps: &[CREATE_INBOX] };

const CREATE_INBOX: Step =
    Step { name: "create_inbox", script: Script::Both(&[RECEIVED, BY_TIME]), needs: 0 };

const RECEIVED: &str = "CREATE TABLE mainstay_received (
    inbox TEXT COLLATE \"binary\" NOT NULL,
    idempotency_key TEXT COLLATE \"binary\" NOT NULL,
    received_at BIGINT NOT NULL,
    PRIMARY KEY (inbox, idempotency_key))";
const BY_TIME: &str = "CREATE INDEX mainstay_received_by_time ON mainstay_received (inbox, received_at)";

const CLAIM: &str = "INSERT INTO mainstay_received (inbox, idempotency_key, received_at) \
     VALUES ($1, $2, mainstay_now()) ON CONFLICT (inbox, idempotency_key) DO NOTHING";
const FORGET: &str = "DELETE FROM mainstay_received WHERE inbox = $1 AND idempotency_key IN (\
     SELECT idempotency_key FROM mainstay_received WHERE inbox = $1 AND received_at < mainstay_now() - $2 \
     ORDER BY received_at LIMIT 1000)";

/// Notes a key; whether it was not there. Another transaction that notes the same one is waited for.
pub(super) async fn claim(tx: &Tx, inbox: &str, key: &str) -> Result<bool> {
    Ok(tx.execute(CLAIM, params![inbox, key]).await? == 1)
}

/// Forgets some of the keys that are older; how many.
pub(super) async fn forget(tx: &Tx, inbox: &str, age_ms: i64) -> Result<u64> {
    tx.execute(FORGET, params![inbox, age_ms]).await
}
