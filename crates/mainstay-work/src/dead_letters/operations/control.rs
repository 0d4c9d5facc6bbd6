//! What an operator does about operations.

use super::chunk;
use super::row::{self, Operation, OperationStatus};
use super::survey::{Survey, survey};
use crate::dead_letters::MAX_PAGE;
use crate::dead_letters::acts::Action;
use crate::dead_letters::opened::{DeadLetters, Shared};
use crate::error::{Error, Result};
use crate::inbox::Filter;
use mainstay_core::failpoints::Point;
use mainstay_store::Tx;
use std::sync::Arc;
use std::time::Duration;

/// How long a preview may be run: what it says was so when somebody looked.
pub const PREVIEW_LASTS: Duration = Duration::from_secs(3_600);
/// How long operations are kept that have ended.
pub const RETENTION: Duration = Duration::from_secs(90 * 86_400);

const PREVIEW_LASTS_MS: i64 = PREVIEW_LASTS.as_millis() as i64;

impl DeadLetters {
    /// Tells what an action would touch, and keeps that to be [run](Self::run). `asked_by` is who wants it, for whoever asks
    /// later.
    pub async fn preview(&self, action: Action, filter: Filter, asked_by: &str) -> Result<Operation> {
        self.preview_some(action, filter, None, asked_by).await
    }

    /// As [`preview`](Self::preview), of the oldest letters only: `most` of them. A preview that had to look through too many
    /// letters [is partial](Operation::is_partial).
    pub async fn preview_some(
        &self,
        action: Action,
        filter: Filter,
        most: Option<usize>,
        asked_by: &str,
    ) -> Result<Operation> {
        filter.check()?;
        row::check_asker(asked_by)?;
        let filter = Filter { status: Some(action.status(filter.status)?), ..filter };
        let survey = survey(&self.shared, &filter, most).await?;
        let context = (self.shared.clone(), action, filter, asked_by.to_owned(), survey);
        Ok(self.shared.store.transact_with(context, preview_in).await?)
    }

    /// Lets an operation that was previewed run, for whoever asked for it.
    pub async fn run(&self, operation_id: &str) -> Result<Operation> {
        self.run_for(operation_id, None).await
    }

    /// Lets an operation that was previewed run. `run_by` is who does, for whoever asks later.
    pub async fn run_by(&self, operation_id: &str, run_by: &str) -> Result<Operation> {
        row::check_asker(run_by)?;
        self.run_for(operation_id, Some(run_by.to_owned())).await
    }

    async fn run_for(&self, operation_id: &str, run_by: Option<String>) -> Result<Operation> {
        type Running = (Arc<Shared>, String, Option<String>);
        let run = async |tx: Tx, (shared, id, run_by): Running| {
            let mut operation = row::hold(&tx, &id).await?;
            let now_ms = tx.now_ms().await?;
            allow(&operation, &[OperationStatus::Previewed])?;
            if now_ms - operation.created_at > PREVIEW_LASTS_MS {
                return Err(Error::LetterPreviewExpired(id).into());
            }
            operation.status = OperationStatus::Running;
            operation.run_by = run_by.or_else(|| Some(operation.asked_by.clone()));
            operation.started_at = Some(now_ms);
            operation.updated_at = now_ms;
            chunk::enqueue(&tx, &shared, &mut operation, now_ms)?;
            row::update(&tx, &operation).await?;
            shared.pass(Point::LettersBegun)?;
            Ok(operation)
        };
        let context = (self.shared.clone(), operation_id.to_owned(), run_by);
        Ok(self.shared.store.transact_with(context, run).await?)
    }

    /// Stops an operation, for whoever asked for it; what it has done stays.
    pub async fn cancel(&self, operation_id: &str) -> Result<Operation> {
        self.cancel_for(operation_id, None).await
    }

    /// Stops an operation; what it has done stays. `cancelled_by` is who does, for whoever asks later.
    pub async fn cancel_by(&self, operation_id: &str, cancelled_by: &str) -> Result<Operation> {
        row::check_asker(cancelled_by)?;
        self.cancel_for(operation_id, Some(cancelled_by.to_owned())).await
    }

    async fn cancel_for(&self, operation_id: &str, cancelled_by: Option<String>) -> Result<Operation> {
        let cancel = async |tx: Tx, (id, cancelled_by): (String, Option<String>)| {
            let operation = row::hold(&tx, &id).await?;
            allow(&operation, &[OperationStatus::Previewed, OperationStatus::Running])?;
            let mut operation = operation.ended(OperationStatus::Cancelled, tx.now_ms().await?);
            operation.cancelled_by = cancelled_by.or_else(|| Some(operation.asked_by.clone()));
            row::update(&tx, &operation).await?;
            Ok(operation)
        };
        Ok(self.shared.store.transact_with((operation_id.to_owned(), cancelled_by), cancel).await?)
    }

    /// How far an operation is.
    pub async fn operation(&self, operation_id: &str) -> Result<Operation> {
        let look = async |tx: Tx, id: String| row::look(&tx, &id).await;
        Ok(self.shared.store.read_with(operation_id.to_owned(), look).await?)
    }

    /// A page of operations, the newest first; `before` is the id of the last one of the page before.
    pub async fn operations(
        &self,
        status: Option<OperationStatus>,
        before: Option<String>,
        limit: usize,
    ) -> Result<Vec<Operation>> {
        type Page = (Option<OperationStatus>, Option<String>, i64);
        let read = async |tx: Tx, (status, before, limit): Page| {
            row::page(&tx, status, before.as_deref(), limit).await
        };
        let context = (status, before, limit.clamp(1, MAX_PAGE) as i64);
        Ok(self.shared.store.read_with(context, read).await?)
    }
}

type Previewing = (Arc<Shared>, Action, Filter, String, Survey);

async fn preview_in(
    tx: Tx,
    (shared, action, filter, asked_by, survey): Previewing,
) -> mainstay_store::Result<Operation> {
    let Survey { highest, counts: preview, is_partial } = survey;
    let total = preview.iter().map(|counted| counted.count).sum();
    let new = Operation::new(&shared, action, filter, asked_by, tx.now_ms().await?);
    let operation = Operation { preview, total, is_partial, highest, ..new };
    row::insert(&tx, &operation).await?;
    Ok(operation)
}

fn allow(operation: &Operation, states: &[OperationStatus]) -> Result<()> {
    match states.contains(&operation.status) {
        true => Ok(()),
        false => Err(Error::LetterOperationStatus {
            operation_id: operation.operation_id.clone(),
            current_status: operation.status.as_str(),
        }),
    }
}
