//! Seeing to a letter outside of Mainstay: it is taken, and whoever took it says how that ended.

use super::letters::{Letter, RUN_AGAIN, current, hold_pending};
use super::many::take_over;
use super::{listing, retry};
use crate::attempts::Attempt;
use crate::error::{Error, Result};
use crate::projections::opened::{Projections, Shared};
use mainstay_core::failure::Failure;
use mainstay_store::{Tx, params};
use mainstay_work::Work;
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
        type Taking = (Work, String, String, String);
        let prepare = async |tx: Tx, (work, projection, key, run_id): Taking| {
            let letter = hold_pending(&tx, &projection, &key).await?;
            take_over(&tx, &work, std::iter::once(&letter)).await?;
            tx.execute(&current(RUN_AGAIN), params![&projection, &key, run_id]).await?;
            listing::list(&tx, &projection, &key).await
        };
        let name = self.shared.find(projection)?.name.clone();
        let key = self.key_of(&name, event_id).await?;
        let run_id = format!("retry_{}", self.shared.ids.uuid());
        self.shared
            .store
            .transact_with((self.shared.work.clone(), name, key.clone(), run_id), prepare)
            .await?;
        self.letter_of(projection, &key).await
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
            let failed = match &ended {
                Ok(()) => None,
                Err(reason) => Some(Attempt {
                    work_id: Some(run_id.clone()),
                    attempt: 1,
                    at_ms: tx.now_ms().await?,
                    failure: Failure::permanent(reason),
                }),
            };
            retry::conclude(&tx, &shared, &run_id, ended, failed.into_iter().collect()).await
        };
        let context = (self.shared.clone(), run_id.to_owned(), ended);
        Ok(self.shared.store.transact_with(context, complete).await?)
    }
}
