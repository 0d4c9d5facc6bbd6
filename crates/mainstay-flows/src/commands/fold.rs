//! The state that a decision rests on, read from the log inside of the transaction that decides.

use super::codec::{decode, encode};
use super::decider::{Decided, Decider, Moment};
use super::seated::Seated;
use super::snapshots::Kept;
use crate::{Error, Result};
use mainstay_events::{Condition, Log, MAX_PAGE, NewEvent, Query, Selection};
use mainstay_store::Tx;

/// A state, and up to where it is true.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folded<S> {
    /// The state.
    pub state: S,
    /// The position up to which every event of the query is in it.
    pub head: u64,
    /// How many events were read for it, since the snapshot if there was one.
    pub events_read: u64,
}

/// What was decided in a transaction, and on what condition it may be appended.
#[derive(Debug)]
pub struct Considered<T> {
    /// The decision, with its events as the log takes them.
    pub decided: Decided<NewEvent, T>,
    /// Nothing came in between that the decision rests on.
    pub condition: Condition,
    /// How many events were read for it.
    pub events_read: u64,
}

/// Folds the events of `query`, page after page, inside of a transaction. What is appended in the same transaction on the
/// condition that none of them came after [`Folded::head`] rests on exactly this state.
pub async fn fold_in<D: Decider>(tx: &Tx, log: &Log, decider: &D, query: &Query) -> Result<Folded<D::State>> {
    if Seated::concern(tx, query) {
        return Err(Error::Late);
    }
    let kept = decider.snapshots().map(|how| Kept::new(how, log, query));
    let begin = match &kept {
        Some(kept) => kept.load(tx).await?,
        None => None,
    };
    let mut folded = begin.unwrap_or_default();
    let mut selection = Selection::all().matching(query.clone()).after(folded.head);
    loop {
        let page = log.read_in(tx, &selection, MAX_PAGE).await?;
        folded.events_read += page.events.len() as u64;
        for event in &page.events {
            decider.evolve(&mut folded.state, decode(event)?);
        }
        // Others go on appending on PostgreSQL; nobody runs after them.
        folded.head = *selection.until.get_or_insert(page.head);
        let Some(next) = page.next else { break };
        selection.after = next;
    }
    if let Some(kept) = kept {
        kept.save(tx, &folded).await?;
    }
    Ok(folded)
}

/// Folds what a command's decision rests on, and decides, inside of a transaction. The caller appends the events on the
/// condition.
pub async fn decide_in<D: Decider>(
    tx: &Tx,
    log: &Log,
    decider: &D,
    command: &D::Command,
    moment: &Moment,
) -> Result<Considered<D::Data>> {
    let query = decider.boundary(command).query::<D::Event>()?;
    let Folded { state, head, events_read } = fold_in(tx, log, decider, &query).await?;
    let decided = match decider.decide(&state, command, moment) {
        Ok(decision) => Ok(decision.try_map(encode)?),
        Err(rejection) => Err(rejection),
    };
    Ok(Considered { decided, condition: Condition::none_match(query).after(head), events_read })
}
