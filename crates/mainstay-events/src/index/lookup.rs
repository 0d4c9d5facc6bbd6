//! Finding positions by terms.
//!
//! An item of a query is a list of groups of terms: an event must have a term of every group. A tag is a group of its
//! own, the types of an item are one group. Groups are intersected by leaping: ask each for its next position, go on
//! from the farthest answer, until all agree. That costs as many steps as the rarest group has positions, whatever the
//! length of the log, needs no statistics, and is one statement (a recursive query) on both databases.

use super::recent::View;
use super::sql::{LATEST, rows_at, rows_of_term};
use crate::event::Event;
use crate::record::{event_of, missing};
use mainstay_store::{Result, Tx, Value};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;

/// A question for the newest position of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Probe {
    pub(crate) term: i64,
    /// Only positions after this one count.
    pub(crate) after: u64,
}

/// Groups of terms, of each of which an event must have one. None at all means every event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Groups(Vec<Vec<i64>>);

impl Groups {
    /// Adds a group; an empty one asks for nothing.
    pub(crate) fn and(mut self, any_of: Vec<i64>) -> Self {
        if !any_of.is_empty() {
            self.0.push(any_of);
        }
        self
    }

    /// Adds all groups of another.
    pub(crate) fn and_all(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// The terms, when any of them will do.
    pub(crate) fn single(&self) -> Option<&[i64]> {
        match &self.0[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Terms of which every event that is meant has one; none when every event is meant.
    pub(crate) fn first(&self) -> Option<&[i64]> {
        self.0.first().map(Vec::as_slice)
    }

    /// The groups.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[i64]> {
        self.0.iter().map(Vec::as_slice)
    }

    fn terms(&self) -> impl Iterator<Item = Value> {
        self.0.iter().flatten().map(|term| Value::Int(*term))
    }
}

/// The newest position of each probe's term.
pub(crate) async fn latest(tx: &Tx, view: &View, probes: &[Probe]) -> Result<Vec<Option<u64>>> {
    let mut found: Vec<Option<u64>> =
        probes.iter().map(|probe| view.newest(probe.term, probe.after, view.head)).collect();
    // What is not among the newest may be in the table, if that reaches as far as the question.
    let mut values = Vec::new();
    for (number, probe) in probes.iter().enumerate() {
        if found[number].is_none() && probe.after < view.merged {
            let numbers = [number as i64, probe.term, probe.after as i64, view.merged as i64];
            values.extend(numbers.map(Value::Int));
        }
    }
    if let [number, one @ ..] = &values[..]
        && one.len() == 3
    {
        let row = tx.query_one(LATEST_OF_ONE, one).await?;
        if let Value::Int(number) = number {
            found[*number as usize] = row.get(0)?;
        }
        return Ok(found);
    }
    for row in LATEST.query(tx, &values).await? {
        let number: u64 = row.get(0)?;
        found[number as usize] = row.get(1)?;
    }
    Ok(found)
}

const LATEST_OF_ONE: &str =
    "SELECT max(position) FROM mainstay_event_terms WHERE term = $1 AND position > $2 AND position <= $3";

/// As [`latest_in`], if the newest entries tell; nothing when the table has to be asked.
pub(crate) fn latest_in_memory(view: &View, groups: &Groups, after: u64, most: u64) -> Option<Option<u64>> {
    match view.newest_in(groups, after, most) {
        None if after < most.min(view.merged) => None,
        found => Some(found),
    }
}

/// The newest position after `after`, and not beyond `most`, that has a term of every group.
pub(crate) async fn latest_in(
    tx: &Tx,
    view: &View,
    groups: &Groups,
    after: u64,
    most: u64,
) -> Result<Option<u64>> {
    if let Some(answer) = latest_in_memory(view, groups, after, most) {
        return Ok(answer);
    }
    let most = most.min(view.merged);
    let mut params = vec![Value::Int(after as i64), Value::Int(most as i64)];
    params.extend(groups.terms());
    let sql = descending_sql(groups);
    tx.query_optional(&sql, &params).await?.map(|row| row.get(0)).transpose()
}

/// The first positions after `after`, and not beyond `most`, that have a term of every group, in order.
pub(crate) async fn ascending(
    tx: &Tx,
    view: &View,
    groups: &Groups,
    after: u64,
    most: u64,
    limit: usize,
) -> Result<Vec<u64>> {
    let mut positions = ascending_in_table(tx, groups, after, most.min(view.merged), limit).await?;
    positions.extend(view.first_in(groups, after, most, limit - positions.len()));
    Ok(positions)
}

/// The last positions after `after`, and not beyond `most`, that have a term of every group, the last first.
pub(crate) async fn descending(
    tx: &Tx,
    view: &View,
    groups: &Groups,
    after: u64,
    most: u64,
    limit: usize,
) -> Result<Vec<u64>> {
    let mut positions = view.last_in(groups, after, most, limit);
    let (most, left) = (most.min(view.merged), limit - positions.len());
    if after >= most || left == 0 {
        return Ok(positions);
    }
    let mut rest: Vec<u64> = Vec::new();
    if let Some(any_of) = groups.single() {
        for term in any_of {
            let params = [*term, after as i64, most as i64, left as i64].map(Value::Int);
            for row in tx.query(LAST_OF_TERM, &params).await? {
                rest.push(row.get(0)?);
            }
        }
    } else {
        let mut params = vec![Value::Int(after as i64), Value::Int(most as i64), Value::Int(left as i64)];
        params.extend(groups.terms());
        for row in tx.query(&all_descending_sql(groups), &params).await? {
            rest.push(row.get(0)?);
        }
    }
    rest.sort_unstable_by_key(|position| Reverse(*position));
    rest.dedup();
    rest.truncate(left);
    positions.extend(rest);
    Ok(positions)
}

const LAST_OF_TERM: &str = "SELECT position FROM mainstay_event_terms \
     WHERE term = $1 AND position > $2 AND position <= $3 ORDER BY position DESC LIMIT $4";

/// The first events in `(after, most]` that have a term, in order.
pub(crate) async fn events_of(
    tx: &Tx,
    view: &View,
    term: i64,
    after: u64,
    most: u64,
    limit: usize,
) -> Result<Vec<(u64, crate::Result<Event>)>> {
    let merged = most.min(view.merged);
    let group = Groups::default().and(vec![term]);
    // Where some of it may be in memory, places come first; otherwise places and events in one statement.
    let is_kept = after < merged && view.kept().is_some_and(|kept| kept.reaches_down_to(merged));
    if is_kept || after >= merged {
        let positions = ascending(tx, view, &group, after, most, limit).await?;
        return events_at(tx, view, positions).await;
    }
    let mut events = Vec::new();
    for row in rows_of_term(tx, view, term, after, merged, limit).await? {
        let (position, is_there) = (row.get(0)?, row.get::<Option<&[u8]>>(1)?.is_some());
        events.push((position, if is_there { event_of(row) } else { Err(missing(position)) }));
    }
    let recent = view.first_in(&group, after, most, limit.saturating_sub(events.len()));
    events.extend(events_at(tx, view, recent).await?);
    Ok(events)
}

/// The events at `positions`, in their order.
pub(crate) async fn events_at(
    tx: &Tx,
    view: &View,
    positions: Vec<u64>,
) -> Result<Vec<(u64, crate::Result<Event>)>> {
    if let Some(kept) = view.kept() {
        // Who decides asks for what was appended not long ago. If anything is not there, it is the first.
        let found = positions.iter().map(|position| Some((*position, Ok(kept.get(*position)?))));
        if let Some(found) = found.collect() {
            return Ok(found);
        }
    }
    let mut events: Vec<(u64, Option<Event>)> = match view.kept() {
        Some(kept) => positions.into_iter().map(|position| (position, kept.get(position))).collect(),
        None => positions.into_iter().map(|position| (position, None)).collect(),
    };
    let absent: Vec<u64> = events.iter().filter(|(_, event)| event.is_none()).map(|(at, _)| *at).collect();
    let mut read = HashMap::with_capacity(absent.len());
    if !absent.is_empty() {
        for row in rows_at(tx, &absent).await? {
            read.insert(row.get::<u64>(0)?, event_of(row));
        }
    }
    let found = events.drain(..).map(|(position, event)| {
        let read = || read.remove(&position).unwrap_or_else(|| Err(missing(position)));
        (position, event.map_or_else(read, Ok))
    });
    Ok(found.collect())
}

async fn ascending_in_table(
    tx: &Tx,
    groups: &Groups,
    after: u64,
    most: u64,
    limit: usize,
) -> Result<Vec<u64>> {
    let mut positions = Vec::new();
    if after >= most {
        return Ok(positions);
    }
    if let Some(any_of) = groups.single() {
        for term in any_of {
            let params = [*term, after as i64, most as i64, limit as i64].map(Value::Int);
            for row in tx.query(POSITIONS_OF_TERM, &params).await? {
                positions.push(row.get(0)?);
            }
        }
    } else {
        let mut params = vec![Value::Int(after as i64), Value::Int(most as i64), Value::Int(limit as i64)];
        params.extend(groups.terms());
        for row in tx.query(&ascending_sql(groups), &params).await? {
            positions.push(row.get(0)?);
        }
    }
    positions.sort_unstable();
    positions.dedup();
    positions.truncate(limit);
    Ok(positions)
}

const POSITIONS_OF_TERM: &str = "SELECT position FROM mainstay_event_terms \
     WHERE term = $1 AND position > $2 AND position <= $3 ORDER BY position LIMIT $4";

/// `$1` after, `$2` most, `$3…` the terms.
fn descending_sql(groups: &Groups) -> String {
    let leap = |bound: &str| {
        let seek = |term: usize| {
            format!(
                "(SELECT max(position) FROM mainstay_event_terms WHERE term = ${term} AND position <= {bound} \
                 AND position > $1)"
            )
        };
        agreement(groups, "max", "min", 3, seek)
    };
    format!(
        "WITH RECURSIVE leap(bound, found) AS (SELECT CAST($2 AS BIGINT), {} UNION ALL SELECT leap.found, {} \
         FROM leap WHERE leap.found < leap.bound) SELECT bound FROM leap WHERE found = bound LIMIT 1",
        leap("CAST($2 AS BIGINT)"),
        leap("leap.found")
    )
}

/// `$1` after, `$2` most, `$3` limit, `$4…` the terms.
fn all_descending_sql(groups: &Groups) -> String {
    // After a match the place before it is asked; otherwise the place that was found.
    let next = "(leap.found - CASE WHEN leap.found = leap.bound THEN 1 ELSE 0 END)";
    let first = "CAST($2 AS BIGINT)";
    let leap = |bound: &str| {
        let seek = |term: usize| {
            format!(
                "(SELECT max(position) FROM mainstay_event_terms WHERE term = ${term} AND position <= {bound} \
                 AND position > $1)"
            )
        };
        agreement(groups, "max", "min", 4, seek)
    };
    format!(
        "WITH RECURSIVE leap(bound, found) AS (SELECT {first}, {} UNION ALL SELECT {next}, {} FROM leap \
         WHERE leap.found IS NOT NULL) SELECT bound FROM leap WHERE found = bound LIMIT $3",
        leap(first),
        leap(next)
    )
}

/// `$1` after, `$2` most, `$3` limit, `$4…` the terms.
fn ascending_sql(groups: &Groups) -> String {
    // After a match the next place is asked; otherwise the place that was found.
    let next = "(leap.found + CASE WHEN leap.found = leap.bound THEN 1 ELSE 0 END)";
    let first = "(CAST($1 AS BIGINT) + 1)";
    let leap = |bound: &str| {
        let seek = |term: usize| {
            format!(
                "(SELECT min(position) FROM mainstay_event_terms WHERE term = ${term} AND position >= {bound} \
                 AND position <= $2)"
            )
        };
        agreement(groups, "min", "max", 4, seek)
    };
    format!(
        "WITH RECURSIVE leap(bound, found) AS (SELECT {first}, {} UNION ALL SELECT {next}, {} FROM leap \
         WHERE leap.found IS NOT NULL) SELECT bound FROM leap WHERE found = bound LIMIT $3",
        leap(first),
        leap(next)
    )
}

/// The place that no group can be before: the `farthest` of the groups' answers, where a group's answer is the
/// `nearest` of its terms', and nothing when a group has none.
fn agreement(
    groups: &Groups,
    nearest: &str,
    farthest: &str,
    first_term: usize,
    seek: impl Fn(usize) -> String,
) -> String {
    let mut term = first_term;
    let mut answers = Vec::new();
    for group in &groups.0 {
        let mut places = String::new();
        for number in 0..group.len() {
            let lead = if number == 0 { "SELECT" } else { " UNION ALL SELECT" };
            // Writing to a String cannot fail.
            let _ = write!(places, "{lead} {} AS place", seek(term));
            term += 1;
        }
        answers.push(if group.len() == 1 {
            places
        } else {
            format!("SELECT (SELECT {nearest}(place) FROM ({places}) AS one_of) AS place")
        });
    }
    format!(
        "(SELECT CASE WHEN count(place) = {} THEN {farthest}(place) END FROM ({}) AS answers)",
        groups.0.len(),
        answers.join(" UNION ALL ")
    )
}
