//! Seeing to a letter outside of Mainstay: it is taken, and whoever took it says how that ended.

use super::letters::{Letter, RUN_AGAIN, current, hold_pending};
use super::{listing, retry};
use crate::error::{Error, Result};
use crate::projections::opened::{Projections, Shared};
use mainstay_store::{Tx, params};
use std::sync::Arc;

/// Longest reason that is kept.
const MAX_REASON_BYTES: usize = 4_096;

const IS_LETTER: &str = "SELECT 1 FROM mainstay_projection_failures \
     WHERE retry_run_id = $1 AND is_poison = 0 AND status = 'retrying'";

impl Projections {
    /// Takes a pending letter for somebody who sees to its event by themselves, and says so with
    /// [`complete_letter`](Self::complete_letter). Until then the letter is `retrying`. Returns it with its payload and the
    /// `retry_run_id` to tell the end of.
    pub async fn prepare_letter(&self, projection: &str, event_id: &str) -> Result<Letter> {
        let prepare = async |tx: Tx, (projection, event_id, run_id): (String, String, String)| {
            hold_pending(&tx, &projection, &event_id).await?;
            tx.execute(&current(RUN_AGAIN), params![&projection, &event_id, run_id]).await?;
            listing::list(&tx, &projection, &event_id).await
        };
        let name = self.shared.find(projection)?.name.clone();
        let run_id = format!("retry_{}", self.shared.ids.uuid());
        self.shared.store.transact_with((name, event_id.to_owned(), run_id), prepare).await?;
        self.letter(projection, event_id).await
    }

    /// Says how seeing to a letter has ended: it is resolved, or pending again with the reason. False, and nothing is
    /// changed, when no letter waits for this run.
    pub async fn complete_letter(
        &self,
        run_id: &str,
        ended: std::result::Result<(), String>,
    ) -> Result<bool> {
        if ended.as_ref().is_err_and(|reason| reason.is_empty() || reason.len() > MAX_REASON_BYTES) {
            return Err(Error::invalid("error", format!("must be 1 to {MAX_REASON_BYTES} bytes")));
        }
        type Ending = (Arc<Shared>, String, std::result::Result<(), String>);
        let complete = async |tx: Tx, (shared, run_id, ended): Ending| {
            if tx.query_optional(IS_LETTER, params![&run_id]).await?.is_none() {
                return Ok(false);
            }
            retry::conclude(&tx, &shared, &run_id, ended).await
        };
        let context = (self.shared.clone(), run_id.to_owned(), ended);
        Ok(self.shared.store.transact_with(context, complete).await?)
    }
}
