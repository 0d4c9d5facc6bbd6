//! Rows of all tables.

use crate::everybody::House;
use mainstay_testkit::stores::Kind;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Tables that a request may change although it is refused: refusals are audited, and a token notes when it was last used.
const MAY_CHANGE: [&str; 2] = ["mainstay_audit", "mainstay_tokens"];

/// Every table, with how many rows it has and a hash of them.
pub(super) async fn all(house: &House, kind: Kind) -> BTreeMap<String, (usize, u64)> {
    let listing = match kind {
        Kind::Postgres => "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
        _ => "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    };
    let read = async |tx: mainstay_store::Tx| {
        let mut found = BTreeMap::new();
        for table in tx.query(listing, &[]).await? {
            let table: String = table.get(0)?;
            let rows = tx.query(&format!("SELECT * FROM \"{table}\""), &[]).await?;
            let mut texts: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
            texts.sort();
            let mut hasher = DefaultHasher::new();
            texts.hash(&mut hasher);
            found.insert(table, (texts.len(), hasher.finish()));
        }
        Ok(found)
    };
    house.server.store.read(read).await.unwrap()
}

/// The platform's own tables. Those of read models come and go with rebuilds.
pub(super) async fn platform_tables(house: &House, kind: Kind) -> Vec<String> {
    all(house, kind).await.into_keys().filter(|table| table.starts_with("mainstay_")).collect()
}

/// Tables with other rows than before.
pub(super) fn changed(
    before: &BTreeMap<String, (usize, u64)>,
    after: &BTreeMap<String, (usize, u64)>,
) -> Vec<String> {
    assert_eq!(Vec::from_iter(before.keys()), Vec::from_iter(after.keys()), "tables came or went");
    let is_changed = |table: &&String| {
        before[*table] != after[*table] && !MAY_CHANGE.iter().any(|name| table.starts_with(name))
    };
    before.keys().filter(is_changed).cloned().collect()
}
