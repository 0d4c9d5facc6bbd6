//! Names that others depend on: tables and columns of both databases, and metrics. A change shows as a difference of a snapshot.

use crate::client::get;
use crate::everybody;
use crate::exposition::Exposition;
use mainstay_server::equipped;
use mainstay_store::Store;
use mainstay_testkit::stores::{Kind, Place, for_each_kind};

const SQLITE: &str = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY tbl_name, type DESC, name";
const POSTGRES: &str = "SELECT format('%s.%s %s%s%s', c.table_name, c.column_name, c.data_type, \
         CASE WHEN c.is_nullable = 'NO' THEN ' NOT NULL' ELSE '' END, \
         CASE WHEN c.column_default IS NULL THEN '' ELSE ' DEFAULT ' || c.column_default END) AS line \
     FROM information_schema.columns c WHERE c.table_schema = current_schema() \
     UNION ALL SELECT i.indexdef FROM pg_indexes i WHERE i.schemaname = current_schema() \
     UNION ALL SELECT format('%s: %s', k.conrelid::regclass, pg_get_constraintdef(k.oid)) FROM pg_constraint k \
         JOIN pg_namespace n ON n.oid = k.connamespace WHERE n.nspname = current_schema() \
     ORDER BY 1";

async fn lines(store: &Store, sql: &'static str) -> Vec<String> {
    let rows = store.read(move |tx| async move { tx.query(sql, &[]).await }).await.unwrap();
    rows.iter().map(|row| row.get(0).unwrap()).collect()
}

#[test]
fn the_schema_is_what_was_agreed() {
    for_each_kind(&[Kind::SqliteMemory, Kind::Postgres], async |place: Place| {
        let store = equipped(place.options()).open().await.unwrap();
        let (name, sql) = match place.kind() {
            Kind::Postgres => ("schema_postgres", POSTGRES),
            _ => ("schema_sqlite", SQLITE),
        };
        insta::assert_snapshot!(name, lines(&store, sql).await.join("\n"));
    });
}

#[test]
fn the_metrics_are_what_was_agreed() {
    for_each_kind(&[Kind::SqliteMemory], async |place: Place| {
        let house = everybody::House::open(&place).await;
        let exposition = Exposition::read(&get("/metrics").send(house.server.address).await.body);
        insta::assert_snapshot!("metrics", exposition.names().into_iter().collect::<Vec<_>>().join("\n"));
    });
}
