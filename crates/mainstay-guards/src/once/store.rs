//! Answers in a store: all nodes share them, and restarts keep them.

use super::keeper::{Begun, Fingerprint, Id, Keeper, Kept, Pending};
use mainstay_store::migrations::{Component, Script, Step};
use mainstay_store::{Hold, Result, Row, Store, Tx, params};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What answers need; give it to [`Options::component`](mainstay_store::Options::component).
pub static COMPONENT: Component = Component { name: "answers", steps: &[CREATE_ANSWERS] };

/// One row for each key. While its request runs, `until` is when the lease ends, and then how long the answer is kept;
/// after that the row is as good as none. `run` is the number of who holds it.
const CREATE_ANSWERS: Step = Step {
    name: "create_answers",
    script: Script::Each {
        sqlite: &[
            "CREATE TABLE mainstay_answers (
                scope TEXT COLLATE \"binary\" NOT NULL, key TEXT COLLATE \"binary\" NOT NULL,
                fingerprint BLOB NOT NULL, run BIGINT NOT NULL, until BIGINT NOT NULL,
                status BIGINT, headers TEXT, body BLOB, PRIMARY KEY (scope, key))",
            BY_AGE,
        ],
        postgres: &[
            "CREATE TABLE mainstay_answers (
                scope TEXT COLLATE \"binary\" NOT NULL, key TEXT COLLATE \"binary\" NOT NULL,
                fingerprint BYTEA NOT NULL, run BIGINT NOT NULL, until BIGINT NOT NULL,
                status BIGINT, headers TEXT, body BYTEA, PRIMARY KEY (scope, key))",
            BY_AGE,
        ],
    },
    needs: 0,
};

const BY_AGE: &str = "CREATE INDEX mainstay_answers_by_age ON mainstay_answers (until)";

const BEGIN: &str = "INSERT INTO mainstay_answers (scope, key, fingerprint, run, until) \
     VALUES ($1, $2, $3, $4, mainstay_now() + $5) ON CONFLICT (scope, key) DO NOTHING";
const FIND: &str = "SELECT fingerprint, status, headers, body, until <= mainstay_now() AS is_over \
     FROM mainstay_answers WHERE scope = $1 AND key = $2";
const BEGIN_AGAIN: &str = "UPDATE mainstay_answers SET fingerprint = $3, run = $4, until = mainstay_now() + $5, \
     status = NULL, headers = NULL, body = NULL WHERE scope = $1 AND key = $2";
const EXTEND: &str = "UPDATE mainstay_answers SET until = mainstay_now() + $4 \
     WHERE scope = $1 AND key = $2 AND run = $3 AND status IS NULL";
const FINISH: &str = "UPDATE mainstay_answers SET status = $4, headers = $5, body = $6, until = mainstay_now() + $7 \
     WHERE scope = $1 AND key = $2 AND run = $3 AND status IS NULL";
const FORGET: &str =
    "DELETE FROM mainstay_answers WHERE scope = $1 AND key = $2 AND run = $3 AND status IS NULL";
/// Unless somebody has taken it up meanwhile.
const SWEEP: &str = "DELETE FROM mainstay_answers WHERE until <= mainstay_now() AND (scope, key) IN \
     (SELECT scope, key FROM mainstay_answers WHERE until <= mainstay_now() ORDER BY until LIMIT $1)";

/// After how many new keys those are removed that are over.
const SWEEP_EVERY: u64 = 64;
/// How many are removed at once: more than come meanwhile, and few enough that nobody waits for it.
const SWEEP_ROWS: i64 = 256;

/// Answers in a store. Clones are the same.
#[derive(Clone)]
pub struct Answers {
    store: Store,
    begun: Arc<AtomicU64>,
}

impl Answers {
    /// Answers in this store, which was opened with [`COMPONENT`].
    pub fn new(store: Store) -> Self {
        Self { store, begun: Arc::default() }
    }

    /// Removes answers that need not be kept any longer, at most 256, and tells how many. That also happens by itself, as
    /// new keys come.
    pub async fn sweep(&self) -> crate::Result<u64> {
        Ok(self.store.transact(async |tx| tx.execute(SWEEP, params![SWEEP_ROWS]).await).await?)
    }

    fn note_new(&self) {
        if self.begun.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1 {
            let answers = self.clone();
            tokio::spawn(async move {
                if let Err(error) = answers.sweep().await {
                    tracing::warn!(%error, "answers that are over were not removed; that is tried again");
                }
            });
        }
    }

    async fn execute(&self, sql: &'static str, values: Vec<mainstay_store::Value>) -> crate::Result<u64> {
        let run = async |tx: Tx, (sql, values): (&'static str, Vec<mainstay_store::Value>)| {
            tx.execute(sql, &values).await
        };
        Ok(self.store.transact_with((sql, values), run).await?)
    }
}

impl Keeper for Answers {
    fn begin<'a>(&'a self, id: &'a Id, fingerprint: &'a Fingerprint, lease: Duration) -> Pending<'a, Begun> {
        Box::pin(async move {
            let run = self.store.random().next_u64() as i64;
            let context = (id.clone(), fingerprint.to_vec(), run, ms(lease));
            let begun = self.store.transact_with(context, begin).await?;
            if matches!(begun, Begun::Mine(_)) {
                self.note_new();
            }
            Ok(begun)
        })
    }

    fn extend<'a>(&'a self, id: &'a Id, run: i64, lease: Duration) -> Pending<'a, bool> {
        let values = params![&*id.scope, &*id.key, run, ms(lease)].to_vec();
        Box::pin(async move { Ok(self.execute(EXTEND, values).await? == 1) })
    }

    fn finish<'a>(&'a self, id: &'a Id, run: i64, answer: Kept, keep: Duration) -> Pending<'a, bool> {
        Box::pin(async move {
            let headers = serde_json::to_string(&answer.headers).unwrap_or_default();
            let body = answer.body.map(|body| body.to_vec());
            let status = i64::from(answer.status);
            let values = params![&*id.scope, &*id.key, run, status, headers, body, ms(keep)].to_vec();
            Ok(self.execute(FINISH, values).await? == 1)
        })
    }

    fn forget<'a>(&'a self, id: &'a Id, run: i64) -> Pending<'a, ()> {
        let values = params![&*id.scope, &*id.key, run].to_vec();
        Box::pin(async move { self.execute(FORGET, values).await.map(drop) })
    }
}

async fn begin(tx: Tx, (id, fingerprint, run, lease_ms): (Id, Vec<u8>, i64, i64)) -> Result<Begun> {
    let (scope, key) = (&*id.scope, &*id.key);
    let values = params![scope, key, fingerprint.clone(), run, lease_ms].to_vec();
    if tx.execute(BEGIN, &values).await? == 1 {
        return Ok(Begun::Mine(run));
    }
    let found = tx.query_holding(FIND, params![scope, key], Hold::Alone).await?;
    // One that was given back in between: whoever comes again finds out.
    let Some(row) = found.first() else { return Ok(Begun::Running) };
    if row.get::<bool>("is_over")? {
        tx.execute(BEGIN_AGAIN, &values).await?;
        return Ok(Begun::Mine(run));
    }
    if row.get::<&[u8]>("fingerprint")? != fingerprint {
        return Ok(Begun::Reused);
    }
    read(row)
}

fn read(row: &Row) -> Result<Begun> {
    let Some(status) = row.get::<Option<i64>>("status")? else { return Ok(Begun::Running) };
    let headers: &str = row.get("headers")?;
    Ok(Begun::Done(Kept {
        status: u16::try_from(status).unwrap_or(500),
        headers: serde_json::from_str(headers).unwrap_or_default(),
        body: row.get::<Option<Vec<u8>>>("body")?.map(Into::into),
    }))
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
