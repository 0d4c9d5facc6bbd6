//! The rows of the scopes against their newest events, in both directions.

use super::report::{Damage, Progress, Stage};
use super::verify::Walk;
use crate::error::Result;
use crate::index::{self, Groups, Terms, View};
use crate::record::event_of;
use mainstay_store::{Tx, Value, params};
use std::collections::HashMap;

/// Scopes of one look, each of which asks the index.
const SCOPES_PAGE: usize = 128;

const SCOPE: &str = "SELECT version, position FROM mainstay_scopes WHERE scope_key = $1";
const SCOPES: &str = "SELECT scope_key, version, position, updated_at FROM mainstay_scopes WHERE scope_key > $1 \
     ORDER BY scope_key LIMIT $2";

impl Walk {
    /// Scopes that events have moved have rows, and those are as far at least.
    pub(super) async fn have_rows(&mut self, scopes: HashMap<String, (u64, u64)>) -> Result<()> {
        for (key, (version, position)) in scopes {
            let read = async |tx: Tx, key: String| {
                let row = tx.query_optional(SCOPE, params![key]).await?;
                row.map(|row| Ok((row.get::<u64>(0)?, row.get::<u64>(1)?))).transpose()
            };
            let read = self.store.read_with(key.clone(), read).await;
            let Some(row) = self.or_unreadable(read, "a scope")? else { continue };
            if row.is_none_or(|row| row < (version, position)) {
                let sentence = match row {
                    Some((row, _)) => {
                        format!("scope {key} is at version {row}, and an event moved it to {version}")
                    }
                    None => format!("scope {key} is unknown, and an event moved it to {version}"),
                };
                self.report.note(position, Damage::Scope, sentence);
            }
        }
        Ok(())
    }

    pub(super) async fn scopes(&mut self, progress: &mut (impl FnMut(Progress) + Send)) -> Result<()> {
        let mut after = String::new();
        loop {
            // Taken before the snapshot; what moved since is not looked at.
            let view = self.ground.view();
            let known = view.head;
            let asked = (after.clone(), self.terms, view);
            let read = self.store.read_with(asked, read_scopes).await;
            let Some(rows) = self.or_unreadable(read, "the scopes")? else { return Ok(()) };
            self.report.scopes += rows.len() as u64;
            let Some(last) = rows.last().map(|row| row.key.clone()).filter(|last| *last > after) else {
                return Ok(());
            };
            after = last;
            for row in rows.iter().filter(|row| u64::try_from(row.position).is_ok_and(|at| at <= known)) {
                self.scope(row);
            }
            progress(Progress { stage: Stage::Scopes, done: self.report.scopes, of: None });
        }
    }

    fn scope(&mut self, row: &ScopeRow) {
        let key = &row.key;
        // Without its newest entry, the index names an older one.
        if self.is_unsure(self.terms.scope(key)) {
            return;
        }
        let found = (row.version, row.position, row.updated_at);
        match &row.newest {
            Newest::Event { version, position, at } if (*version, *position, *at) != found => {
                let sentence = format!(
                    "scope {key} is at version {} by the event at {}, and its newest event moved it to {version} at \
                     {position}",
                    row.version, row.position
                );
                self.report.note(*position as u64, Damage::Scope, sentence);
            }
            Newest::None => {
                let sentence =
                    format!("scope {key} is at version {}, and no event has moved it", row.version);
                self.report.note(row.position.unsigned_abs(), Damage::Scope, sentence);
            }
            _ => {}
        }
    }
}

struct ScopeRow {
    key: String,
    version: i64,
    position: i64,
    updated_at: i64,
    newest: Newest,
}

/// The newest event of a scope.
enum Newest {
    Event { version: i64, position: i64, at: i64 },
    Damaged,
    None,
}

/// Rows of scopes with their newest events, on one snapshot.
async fn read_scopes(
    tx: Tx,
    (after, terms, view): (String, Terms, View),
) -> mainstay_store::Result<Vec<ScopeRow>> {
    let mut rows = Vec::new();
    for row in tx.query(SCOPES, &[Value::Text(after), Value::Int(SCOPES_PAGE as i64)]).await? {
        let key: String = row.get(0)?;
        let newest = newest_of(&tx, &view, terms, &key).await?;
        rows.push(ScopeRow {
            version: row.get(1)?,
            position: row.get(2)?,
            updated_at: row.get(3)?,
            newest,
            key,
        });
    }
    Ok(rows)
}

async fn newest_of(tx: &Tx, view: &View, terms: Terms, key: &str) -> mainstay_store::Result<Newest> {
    let groups = Groups::default().and(vec![terms.scope(key)]);
    let mut most = i64::MAX as u64;
    while let Some(position) = index::latest_in(tx, view, &groups, 0, most).await? {
        let Some(row) = index::rows_at(tx, &[position]).await?.pop() else { return Ok(Newest::Damaged) };
        let Ok(event) = event_of(row) else { return Ok(Newest::Damaged) };
        if let Some((_, version)) = event.scope().filter(|(own, _)| *own == key) {
            let (version, position) = (version as i64, position as i64);
            return Ok(Newest::Event { version, position, at: event.timestamp_ms() });
        }
        most = position - 1;
    }
    Ok(Newest::None)
}
