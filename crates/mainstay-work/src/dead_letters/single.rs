//! What is done about one letter, and the record of it.

use super::acts::{Action, act};
use super::look::not_found;
use super::opened::{DeadLetters, Shared};
use super::operations::{Operation, row};
use crate::error::{Error, Result};
use crate::inbox::{self, Listed};
use mainstay_core::failpoints::Point;
use mainstay_store::Tx;
use std::sync::Arc;

impl DeadLetters {
    /// Tries a letter again that is pending or was ignored. `asked_by` is who wants it, for whoever asks later.
    pub async fn retry(&self, number: i64, asked_by: &str) -> Result<Operation> {
        self.act_on(Action::Retry, number, asked_by).await
    }

    /// Leaves a pending letter for good.
    pub async fn ignore(&self, number: i64, asked_by: &str) -> Result<Operation> {
        self.act_on(Action::Ignore, number, asked_by).await
    }

    async fn act_on(&self, action: Action, number: i64, asked_by: &str) -> Result<Operation> {
        row::check_asker(asked_by)?;
        let context = (self.shared.clone(), action, number, asked_by.to_owned());
        Ok(self.shared.store.transact_with(context, act_in).await?)
    }
}

type Acting = (Arc<Shared>, Action, i64, String);

async fn act_in(tx: Tx, (shared, action, number, asked_by): Acting) -> mainstay_store::Result<Operation> {
    let letter = inbox::find(&tx, number).await?.ok_or_else(|| not_found(number))?;
    let not_pending =
        || Error::DeadLetterNotPending { letter_id: Listed::id(number), status: letter.status.as_str() };
    if action.status(Some(letter.status)).is_err() {
        return Err(not_pending().into());
    }
    let mut came = act(&shared, &tx, action, std::slice::from_ref(&letter), false).await?;
    match came.remove(&number).flatten() {
        Some(Ok(())) => {}
        Some(Err(refused)) => return Err(Error::Refused(Arc::new(refused)).into()),
        None => return Err(not_pending().into()),
    }
    shared.pass(Point::LettersActed)?;
    let now_ms = tx.now_ms().await?;
    let operation = Operation::about_one(&shared, action, &letter, asked_by, now_ms);
    row::insert(&tx, &operation).await?;
    Ok(operation)
}
