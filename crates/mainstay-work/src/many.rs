//! Operations on everything that a filter names: a little at a time, so that they hold nobody up, and each item whole.

use crate::directory::Directory;
use crate::enqueue::{text, uuid};
use crate::error::{Error, Result};
use crate::letters::LetterFilter;
use crate::status::Canceled;
use crate::work::Work;
use mainstay_store::{Tx, Value};

/// How many are looked up at once.
const PAGE: i64 = 200;

/// Which items that wait.
#[derive(Debug, Clone, Default)]
pub struct WorkFilter {
    /// Of this pool.
    pub pool: String,
    /// Of this function.
    pub function: Option<String>,
    /// Of this key.
    pub key: Option<String>,
}

impl Work {
    /// Cancels the items that wait and that a filter names; how many. What is enqueued meanwhile may be among them.
    pub async fn cancel_all(&self, filter: WorkFilter) -> Result<u64> {
        let (mut canceled, mut after) = (0, 0);
        loop {
            let context = (filter.clone(), after);
            let page = async |tx: Tx, (filter, after): (WorkFilter, i64)| waiting(&tx, &filter, after).await;
            let page = self.store().read_with(context, page).await?;
            let Some((last, _)) = page.last() else { return Ok(canceled) };
            after = *last;
            for (_, id) in page {
                match self.cancel(&id).await {
                    Ok(Canceled::AtOnce) => canceled += 1,
                    // It has started, or ended, since it was looked up.
                    Ok(_) | Err(Error::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Tries all letters again that a filter names; how many.
    pub async fn retry_letters(&self, filter: LetterFilter) -> Result<u64> {
        let retry = async |tx: Tx, (work, ids): (Self, Vec<String>)| {
            let retried = work.retry_letters_in(&tx, &ids, true).await?;
            Ok(retried.iter().filter(|(_, retried)| retried.is_ok()).count())
        };
        self.each_page(filter, async |page| Ok(self.store().transact_with(page, retry).await?)).await
    }

    /// Leaves all letters that a filter names for good; how many.
    pub async fn ignore_letters(&self, filter: LetterFilter) -> Result<u64> {
        let ignore = async |tx: Tx, (work, ids): (Self, Vec<String>)| {
            work.ignore_letters_in(&tx, &ids).await.map(|ignored| ignored.len())
        };
        self.each_page(filter, async |page| Ok(self.store().transact_with(page, ignore).await?)).await
    }

    async fn each_page(
        &self,
        mut filter: LetterFilter,
        act: impl AsyncFn((Self, Vec<String>)) -> Result<usize>,
    ) -> Result<u64> {
        let mut count = 0;
        // Those of one key go in the order they failed in, and what fails again meanwhile is left alone.
        let newest = LetterFilter { after: None, ..filter.clone() };
        let Some(newest) = self.letters(newest, 1).await?.pop() else { return Ok(0) };
        filter.before = Some(newest.number + 1);
        filter.after = Some(filter.after.unwrap_or(0));
        loop {
            let page = self.letters(filter.clone(), PAGE as usize).await?;
            let Some(last) = page.last() else { return Ok(count) };
            filter.after = Some(last.number);
            let ids = page.into_iter().map(|letter| letter.work_id).collect();
            count += act((self.clone(), ids)).await? as u64;
        }
    }
}

async fn waiting(tx: &Tx, filter: &WorkFilter, after: i64) -> mainstay_store::Result<Vec<(i64, String)>> {
    let pool = Directory::pool(tx, &filter.pool).await??;
    let mut sql = "SELECT place, id FROM mainstay_work WHERE pool = $1 AND place > $2".to_owned();
    let mut values = vec![Value::Int(pool), Value::Int(after), Value::Int(PAGE)];
    if let Some(key) = &filter.key {
        values.push(Value::from(key));
        sql.push_str(&format!(" AND work_key = ${}", values.len()));
    }
    if let Some(function) = &filter.function {
        let lanes = Directory::lanes_of(tx, pool, |name| name == function).await?;
        let lanes: Vec<i64> = lanes.into_iter().flatten().collect();
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        let places: Vec<String> =
            (1..=lanes.len()).map(|number| format!("${}", values.len() + number)).collect();
        sql.push_str(&format!(" AND lane IN ({})", places.join(", ")));
        values.extend(lanes.into_iter().map(Value::Int));
    }
    sql.push_str(" ORDER BY place LIMIT $3");
    let rows = tx.query(&sql, &values).await?;
    rows.iter().map(|row| Ok((row.get(0)?, text(uuid(row.get(1)?))))).collect()
}
