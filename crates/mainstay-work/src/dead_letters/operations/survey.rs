//! What an operation would touch: the letters of a preview, counted. Letters are looked through in many short reads, each of which
//! takes a turn among the searches of the store.

use crate::dead_letters::opened::Shared;
use crate::error::Result;
use crate::inbox::{self, Chunk, Counted, Filter, Tally};
use mainstay_store::Tx;

/// Most letters that are looked through for a preview.
const MOST_LOOKED_AT: i64 = 100_000;

/// Letters that an operation would touch.
#[derive(Clone)]
pub(super) struct Survey {
    /// The highest number of a letter that may be touched.
    pub(super) highest: i64,
    pub(super) counts: Vec<Counted>,
    /// Whether letters were left that were not looked at.
    pub(super) is_partial: bool,
}

/// Counts the letters of a filter: the oldest, if no more than `most` are wanted.
pub(super) async fn survey(shared: &Shared, filter: &Filter, most: Option<usize>) -> Result<Survey> {
    if most.is_some() || filter.error.is_some() {
        return walk(shared, filter, most).await;
    }
    let count = async |tx: Tx, filter: Filter| {
        let highest = inbox::highest(&tx).await?;
        let (counts, is_partial) = inbox::counts(&tx, &filter, highest).await?;
        Ok(Survey { highest, counts, is_partial })
    };
    let store = &shared.store;
    Ok(match filter.is_narrow() {
        true => store.search_with(filter.clone(), count).await?,
        false => store.read_with(filter.clone(), count).await?,
    })
}

async fn walk(shared: &Shared, filter: &Filter, most: Option<usize>) -> Result<Survey> {
    let store = &shared.store;
    let highest = store.read(async |tx: Tx| inbox::highest(&tx).await).await?;
    let (mut tally, mut after, mut looked_at) = (Tally::default(), 0, 0);
    let mut left = most.unwrap_or(usize::MAX);
    loop {
        let read = async |tx: Tx, (filter, after, until, limit): (Filter, i64, i64, usize)| {
            inbox::waiting(&tx, &filter, (after, until), limit).await
        };
        let Chunk { letters, reached, looked_at: more } =
            store.search_with((filter.clone(), after, highest, left), read).await?;
        tally.add(&letters);
        left -= letters.len();
        looked_at += more;
        match (letters.last(), reached) {
            (Some(last), _) if left == 0 => {
                return Ok(Survey { highest: last.number, counts: tally.counts(), is_partial: false });
            }
            (_, None) => return Ok(Survey { highest, counts: tally.counts(), is_partial: false }),
            // Of the oldest letters no more are touched than were counted.
            (_, Some(reached)) if looked_at >= MOST_LOOKED_AT => {
                let highest = if most.is_some() { reached } else { highest };
                return Ok(Survey { highest, counts: tally.counts(), is_partial: true });
            }
            (_, Some(reached)) => after = reached,
        }
    }
}
