//! How much lies aside, without looking at all of it.

use super::poison::CURRENT;
use crate::error::Result;
use crate::projections::opened::Projections;
use mainstay_store::{Tx, params};
use std::sync::Arc;

/// Events that a projection could not take and that nobody has dealt with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aside {
    /// The projection.
    pub projection: String,
    /// Its dead letters.
    pub letters: u64,
    /// Those in quarantine.
    pub quarantined: u64,
}

/// One of both kinds: a status belongs to letters or to quarantine, never to both.
fn count() -> String {
    format!(
        "SELECT count(*) FROM (SELECT 1 AS one FROM mainstay_projection_failures WHERE status = $1 AND projection = $2 \
         AND is_poison = $3 AND {CURRENT} LIMIT $4) AS some_of_them"
    )
}

impl Projections {
    /// What lies aside of every projection of this program, each kind counted up to `most`.
    pub async fn aside(&self, most: u32) -> Result<Vec<Aside>> {
        let names: Arc<[String]> = self.definitions().map(|one| one.name().to_owned()).collect();
        let read = async |tx: Tx, (names, most): (Arc<[String]>, i64)| {
            let (count, mut all) = (count(), Vec::with_capacity(names.len()));
            for name in names.iter() {
                let letters = tx.query_one(&count, params!["pending", name, 0_i64, most]).await?.get(0)?;
                let quarantined =
                    tx.query_one(&count, params!["quarantined", name, 1_i64, most]).await?.get(0)?;
                all.push(Aside { projection: name.clone(), letters, quarantined });
            }
            Ok(all)
        };
        Ok(self.shared.store.read_with((names, i64::from(most)), read).await?)
    }
}
