//! Publications in the order of their ids. What no index tells apart is looked for among so many of them and no more.

use mainstay_store::{Result, Tx, Value};

/// Numbers of publications that one read looks through, one step after another: a page whose publications lie close together is
/// full after the first. Together 20,000.
const STEPS: [i64; 3] = [1_000, 4_000, 15_000];

/// Conditions on columns, and the values of their parameters.
#[derive(Debug, Clone, Default)]
pub(super) struct Search {
    /// What an index has in the order of ids.
    indexed: Vec<(&'static str, Option<Value>)>,
    /// What is looked for.
    others: Vec<(&'static str, Option<Value>)>,
}

/// Publications of one read.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) ids: Vec<String>,
    /// The id up to which publications were looked at; nothing when there are no more.
    pub(super) reached: Option<String>,
}

impl Search {
    /// Adds a condition of the index, in which a `?` stands for the value.
    pub(super) fn indexed(&mut self, condition: &'static str, value: Option<Value>) {
        self.indexed.push((condition, value));
    }

    /// Adds another condition.
    pub(super) fn other(&mut self, condition: &'static str, value: Option<Value>) {
        self.others.push((condition, value));
    }

    /// Whether publications are looked through that are not wanted.
    pub(super) fn is_search(&self) -> bool {
        !self.others.is_empty()
    }

    /// At most `limit` publications behind an id.
    pub(super) async fn run(&self, tx: &Tx, after: &str, limit: usize) -> Result<Found> {
        let (mut ids, mut from) = (Vec::<String>::new(), after.to_owned());
        // Whatever an index has is wanted.
        let whole = [limit as i64];
        for step in if self.is_search() { &STEPS[..] } else { &whole } {
            let left = (limit - ids.len()) as i64;
            let mut values = vec![Value::from(&from), Value::Int(*step), Value::Int(left)];
            let (indexed, others) = (written(&self.indexed, &mut values), written(&self.others, &mut values));
            // A LIMIT inside keeps both databases from looking by another index. The events of what is looked through are not read.
            let sql = format!(
                "SELECT id FROM (SELECT id, target, status, letter, correlation_id FROM mainstay_publications \
                 WHERE id > $1{indexed} ORDER BY id LIMIT $2) AS looked_at WHERE 1 = 1{others} ORDER BY id LIMIT $3"
            );
            for row in tx.query(&sql, &values).await? {
                ids.push(row.get(0)?);
            }
            if ids.len() >= limit {
                return Ok(Found { reached: ids.last().cloned(), ids });
            }
            if !self.is_search() {
                return Ok(Found { ids, reached: None });
            }
            let mut values = vec![Value::from(&from), Value::Int(*step)];
            let indexed = written(&self.indexed, &mut values);
            let sql = format!(
                "SELECT count(*), max(id) FROM (SELECT id FROM mainstay_publications WHERE id > $1{indexed} \
                 ORDER BY id LIMIT $2) AS looked_at"
            );
            let edge = tx.query_one(&sql, &values).await?;
            match edge.get::<Option<String>>(1)? {
                Some(reached) if edge.get::<i64>(0)? == *step => from = reached,
                _ => return Ok(Found { ids, reached: None }),
            }
        }
        Ok(Found { ids, reached: Some(from) })
    }
}

/// Conditions as they stand in a statement whose values are these.
fn written(conditions: &[(&'static str, Option<Value>)], values: &mut Vec<Value>) -> String {
    let mut sql = String::new();
    for (condition, value) in conditions {
        sql.push_str(" AND ");
        match value {
            Some(value) => {
                values.push(value.clone());
                sql.push_str(&condition.replace('?', &format!("${}", values.len())));
            }
            None => sql.push_str(condition),
        }
    }
    sql
}
