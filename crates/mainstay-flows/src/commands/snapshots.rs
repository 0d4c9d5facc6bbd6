//! States of long histories, kept so that a fold begins at the last of them. They are derived: all may be deleted.

use super::fold::Folded;
use crate::Result;
use mainstay_events::{Log, Query};
use mainstay_store::migrations::{Script, Step};
use mainstay_store::{Tx, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// The table of snapshots. It stands on the log's, which must be there before.
///
/// A state holds what events said. So when events are erased, all snapshots go in the same transaction; that TRUNCATE
/// waits for whoever has looked into the table ends the transactions that may still hold what was erased.
pub(super) const CREATE_SNAPSHOTS: Step = Step {
    name: "create_snapshots",
    script: Script::Each {
        sqlite: &[
            SNAPSHOTS,
            "CREATE TRIGGER mainstay_forget_snapshots AFTER UPDATE OF events ON mainstay_erasures
                BEGIN DELETE FROM mainstay_snapshots; END",
        ],
        postgres: &[
            SNAPSHOTS,
            "CREATE FUNCTION mainstay_forget_snapshots() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN TRUNCATE mainstay_snapshots; RETURN NULL; END $$",
            "CREATE TRIGGER mainstay_forget_snapshots AFTER UPDATE OF events ON mainstay_erasures
                FOR EACH STATEMENT EXECUTE FUNCTION mainstay_forget_snapshots()",
        ],
    },
    needs: 0,
};

const SNAPSHOTS: &str = "CREATE TABLE mainstay_snapshots (
    decider TEXT COLLATE \"binary\" NOT NULL,
    boundary TEXT COLLATE \"binary\" NOT NULL,
    state_version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (decider, boundary))";

/// For those that are forgotten: the ones that were kept the longest ago.
pub(super) const INDEX_SNAPSHOTS: Step = Step {
    name: "index_snapshots",
    script: Script::Both(&["CREATE INDEX mainstay_snapshots_by_position ON mainstay_snapshots (position)"]),
    needs: 0,
};

const LOAD: &str = "SELECT position, state FROM mainstay_snapshots \
     WHERE decider = $1 AND boundary = $2 AND state_version = $3";
const SAVE: &str = "INSERT INTO mainstay_snapshots (decider, boundary, state_version, position, state) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (decider, boundary) DO UPDATE \
     SET state_version = excluded.state_version, position = excluded.position, state = excluded.state \
     WHERE mainstay_snapshots.position <= excluded.position \
     OR mainstay_snapshots.state_version <> excluded.state_version";

const PRUNE: &str = "DELETE FROM mainstay_snapshots WHERE (decider, boundary) IN (SELECT decider, boundary \
     FROM mainstay_snapshots ORDER BY position DESC, decider, boundary LIMIT $1 OFFSET $2)";

/// Most snapshots that are kept, of all deciders. Boundaries that nobody decides about any more, and deciders that are gone,
/// leave theirs behind; one that is missed costs a longer fold, once.
pub const MAX_SNAPSHOTS: u64 = 10_000;
/// Events from one snapshot to the next, unless said: reading so many takes about as long as a commit does.
const USUAL_EVERY: u32 = 100;
/// Longest state that is kept. Reading a longer one costs more than most histories.
const MAX_STATE_BYTES: usize = 1 << 20;

/// How a decider's states are kept. Worth it where histories are long: hundreds of events for each decision.
#[derive(Debug)]
pub struct Snapshots<S> {
    name: &'static str,
    every: u32,
    state_version: u32,
    pub(super) write: fn(&S) -> serde_json::Result<String>,
    pub(super) read: fn(&str) -> serde_json::Result<S>,
}

impl<S: Serialize + DeserializeOwned> Snapshots<S> {
    /// Snapshots under a name that no other decider has.
    pub fn of(name: &'static str) -> Self {
        let (write, read) =
            (|state: &S| serde_json::to_string(state), |json: &str| serde_json::from_str(json));
        Self { name, every: USUAL_EVERY, state_version: 1, write, read }
    }

    /// One whenever a decision had to read this many events.
    pub fn every(self, events: u32) -> Self {
        Self { every: events.max(1), ..self }
    }

    /// To be raised whenever the state's shape changes, or what events mean for it: snapshots of other versions are
    /// ignored.
    pub fn state_version(self, state_version: u32) -> Self {
        Self { state_version, ..self }
    }
}

/// The snapshot of one boundary.
pub(super) struct Kept<S> {
    how: Snapshots<S>,
    boundary: String,
}

impl<S> Kept<S> {
    pub(super) fn new(how: Snapshots<S>, log: &Log, query: &Query) -> Self {
        let boundary = boundary(log.tenant(), query);
        Self { how, boundary }
    }

    /// The state that was kept, if there is one that can be read.
    pub(super) async fn load(&self, tx: &Tx) -> Result<Option<Folded<S>>> {
        let Snapshots { name, state_version, read, .. } = self.how;
        let row = tx.query_optional(LOAD, params![name, &self.boundary, state_version]).await?;
        let Some(row) = row else { return Ok(None) };
        let (head, state) = (row.get(0)?, row.get::<String>(1)?);
        match read(&state) {
            Ok(state) => Ok(Some(Folded { state, head, events_read: 0 })),
            Err(error) => {
                tracing::warn!(decider = name, %error, "a snapshot is of another shape; raise the state version");
                Ok(None)
            }
        }
    }

    /// Keeps a state that took long enough to fold. Nothing depends on it, so one that cannot be kept is no failure.
    pub(super) async fn save(&self, tx: &Tx, folded: &Folded<S>) -> Result<()> {
        let Snapshots { name, every, state_version, write, .. } = self.how;
        if folded.events_read < every.into() {
            return Ok(());
        }
        match write(&folded.state) {
            Ok(state) if state.len() <= MAX_STATE_BYTES => {
                let row = params![name, &self.boundary, state_version, folded.head as i64, state];
                tx.execute(SAVE, row).await?;
            }
            Ok(state) => {
                tracing::warn!(decider = name, bytes = state.len(), "a state is too large to be kept");
            }
            Err(error) => tracing::warn!(decider = name, %error, "a state cannot be written as JSON"),
        }
        Ok(())
    }
}

/// Forgets snapshots beyond the most, the oldest of them; how many.
pub(super) async fn prune(tx: &Tx, limit: u64) -> mainstay_store::Result<u64> {
    tx.execute(PRUNE, params![limit as i64, MAX_SNAPSHOTS as i64]).await
}

/// The same text for the same events, in whatever order their query names them.
fn boundary(tenant: Option<&str>, query: &Query) -> String {
    let mut items: Vec<_> = query.items().iter().map(|item| (&item.types, &item.tags)).collect();
    items.sort_unstable();
    items.dedup();
    let text = serde_json::json!([tenant, items]).to_string();
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_events::Item;

    fn query(items: &[(&str, &str)]) -> Query {
        let item = |&(name, tag): &(&str, &str)| Item { types: vec![name.into()], tags: vec![tag.into()] };
        Query::new(items.iter().map(item).collect()).unwrap()
    }

    #[test]
    fn a_boundary_is_the_same_in_any_order_and_differs_otherwise() {
        let one = boundary(None, &query(&[("A", "x"), ("B", "y")]));
        assert_eq!(one, boundary(None, &query(&[("B", "y"), ("A", "x"), ("A", "x")])));
        assert_ne!(one, boundary(None, &query(&[("A", "y"), ("B", "x")])));
        assert_ne!(one, boundary(Some("t"), &query(&[("A", "x"), ("B", "y")])));
        assert_ne!(boundary(None, &query(&[("A", "x")])), boundary(None, &query(&[("x", "A")])));
    }
}
