//! The SQL that authors may rely on: each statement of docs/concepts/sql.md does what the page says, alike on both
//! databases, and what the page says of their differences is true too.

mod page;

use mainstay_store::{Constraint, Error, Result, Row, Store, Tx, Value, params};
use mainstay_testkit::stores::{Kind, for_each_store};
use page::{Expected, Statement};

macro_rules! sections {
    ($($test:ident $title:literal;)*) => {
        $(#[test]
        fn $test() {
            run($title);
        })*

        #[test]
        fn every_section_of_the_page_has_a_test() {
            let tested = [$($title),*];
            let written: Vec<&str> = page::sections().iter().map(|section| section.title).collect();
            assert_eq!(written, tested);
        }
    };
}

fn run(title: &str) {
    for_each_store(async |place| {
        let store = place.open().await;
        for statement in &page::section(title).statements {
            check(&store, place.kind(), statement).await.unwrap_or_else(|difference| panic!("{difference}"));
        }
    });
}

/// Runs a statement in a transaction of its own, and tells how what came of it differs from what was expected.
async fn check(store: &Store, kind: Kind, statement: &Statement) -> std::result::Result<(), String> {
    let expected = statement.expected_on(kind);
    let (came, said) = match outcome(store, statement, &expected).await {
        Ok(came) => (came, String::new()),
        Err(error) => (vec![Expected::Refused(error.code().to_owned())], error.to_string()),
    };
    let is_as_expected = match expected[..] {
        [] => said.is_empty(),
        _ => came.iter().eq(expected.iter().copied()),
    };
    if is_as_expected {
        return Ok(());
    }
    Err(format!("{kind}: {}\nexpected {expected:?}\n    came {came:?} {said}", statement.sql))
}

async fn outcome(store: &Store, statement: &Statement, expected: &[&Expected]) -> Result<Vec<Expected>> {
    let call = (statement.sql.clone(), statement.params.clone());
    if !expected.iter().any(|expected| matches!(expected, Expected::Row(_) | Expected::NoRows)) {
        return Ok(vec![Expected::Changed(execute(store, call).await?)]);
    }
    let rows = query(store, call).await?;
    if rows.is_empty() {
        return Ok(vec![Expected::NoRows]);
    }
    // A row too many is read like the last one that was expected.
    let like = expected.iter().chain(std::iter::repeat(&expected[expected.len() - 1]));
    rows.iter().zip(like).map(|(row, like)| page::read_like(row, like).map(Expected::Row)).collect()
}

async fn execute(store: &Store, call: (String, Vec<Value>)) -> Result<u64> {
    store.transact_with(call, async |tx, (sql, params)| tx.execute(&sql, &params).await).await
}

async fn query(store: &Store, call: (String, Vec<Value>)) -> Result<Vec<Row>> {
    store.transact_with(call, async |tx, (sql, params)| tx.query(&sql, &params).await).await
}

sections! {
    types "Types";
    parameters "Parameters";
    inserting "Inserting";
    updating_and_deleting "Updating and deleting";
    queries "Queries";
    aggregates "Aggregates";
    expressions "Expressions";
    text "Text";
    schema "Schema";
    refused_alike "Refused alike";
}

#[test]
fn a_claim_that_is_not_true_is_noticed() {
    let block = "SELECT 1;\n-- row: 2\nSELECT 1;\n-- no rows\nSELECT 1;\n-- row: 1\n-- row: 1\nSELECT 1;\n\
                 -- refused: STORE_SQL_INVALID\nSELEC 1;\nSELEC 1;\n-- refused: STORE_BUSY\nSELECT 1;\n\
                 -- changed: 1\nSELECT 1;\n-- row: 'a'\nSELECT 1 UNION SELECT 2;\n-- row: 1";
    for_each_store(async |place| {
        let store = place.open().await;
        for statement in page::read_block(&block.lines().collect::<Vec<_>>()) {
            assert!(check(&store, place.kind(), &statement).await.is_err(), "{}", statement.sql);
        }
    });
}

/// Runs `sql` and tells which rule it broke.
async fn broken(store: &Store, sql: &'static str) -> Constraint {
    match execute(store, (sql.to_owned(), Vec::new())).await {
        Err(Error::Constraint { kind, .. }) => kind,
        other => panic!("{sql}: {other:?}"),
    }
}

async fn create(store: &Store, tables: &'static [&'static str]) {
    let creating = store.transact_with(tables, async |tx, tables| {
        for sql in tables {
            tx.execute(sql, &[]).await?;
        }
        Ok(())
    });
    creating.await.unwrap();
}

const FAMILY: &[&str] = &[
    "CREATE TABLE parents (id BIGINT NOT NULL PRIMARY KEY, name TEXT UNIQUE CHECK (name <> ''))",
    "CREATE TABLE children (id BIGINT NOT NULL PRIMARY KEY, \
     parent BIGINT REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED, now BIGINT REFERENCES parents (id))",
];

#[test]
fn a_broken_rule_is_named_alike() {
    for_each_store(async |place| {
        let store = place.open().await;
        create(&store, FAMILY).await;
        create(&store, &["INSERT INTO parents (id, name) VALUES (1, 'ada')"]).await;
        for (sql, expected) in [
            ("INSERT INTO parents (id) VALUES (1)", Constraint::Unique),
            ("INSERT INTO parents (id, name) VALUES (2, 'ada')", Constraint::Unique),
            ("INSERT INTO parents (id, name) VALUES (2, '')", Constraint::Check),
            ("INSERT INTO parents (name) VALUES ('ben')", Constraint::NotNull),
            ("INSERT INTO children (id, now) VALUES (1, 9)", Constraint::ForeignKey),
            ("INSERT INTO children (id, parent) VALUES (1, 9)", Constraint::ForeignKey),
        ] {
            assert_eq!(broken(&store, sql).await, expected, "{}: {sql}", place.kind());
        }
    });
}

#[test]
fn a_deferred_foreign_key_is_checked_at_the_commit() {
    for_each_store(async |place| {
        let store = place.open().await;
        create(&store, FAMILY).await;
        let child_first = async |tx: Tx, with_parent: bool| {
            tx.execute("INSERT INTO children (id, parent) VALUES (1, 7)", &[]).await?;
            if with_parent {
                tx.execute("INSERT INTO parents (id) VALUES (7)", &[]).await?;
            }
            Ok(())
        };
        let orphan = store.transact_with(false, child_first).await.unwrap_err();
        assert!(matches!(orphan, Error::Constraint { kind: Constraint::ForeignKey, .. }), "{orphan:?}");
        store.transact_with(true, child_first).await.unwrap();
    });
}

const ITEMS: &[&str] =
    &["CREATE TABLE items (id BIGINT NOT NULL PRIMARY KEY, name TEXT, weight DOUBLE PRECISION, data BYTEA)"];

async fn insert_names(store: &Store, names: Vec<Vec<Value>>) -> Result<u64> {
    let sql = "INSERT INTO items (id, name) VALUES ($1, $2)";
    store.transact_with(names, async move |tx, names| tx.execute_many(sql, &names).await).await
}

#[test]
fn many_rows_go_at_once_and_none_is_fine() {
    for_each_store(async |place| {
        let store = place.open().await;
        create(&store, ITEMS).await;
        assert_eq!(insert_names(&store, Vec::new()).await.unwrap(), 0);
        let rows = (0..10_000).map(|id| params![id, format!("item {id}")].to_vec()).collect();
        assert_eq!(insert_names(&store, rows).await.unwrap(), 10_000);

        let update = "UPDATE items SET name = 'x' WHERE id >= $1 AND id < $2";
        let ranges = vec![params![0, 10].to_vec(), params![20, 25].to_vec(), params![-5, 0].to_vec()];
        let updating =
            store.transact_with(ranges, async move |tx, ranges| tx.execute_many(update, &ranges).await);
        assert_eq!(updating.await.unwrap(), 15);

        let twice = vec![params![-1, "new"].to_vec(), params![5, "there already"].to_vec()];
        assert_eq!(insert_names(&store, twice).await.unwrap_err().code(), "STORE_CONSTRAINT");
        let short = vec![params![-1, "new"].to_vec(), params![-2].to_vec()];
        assert_eq!(insert_names(&store, short).await.unwrap_err().code(), "STORE_PARAMETERS_INVALID");
        let counting = store.read(async |tx| tx.query_one("SELECT count(*), min(id) FROM items", &[]).await);
        let counted = counting.await.unwrap();
        assert_eq!((counted.get::<i64>(0).unwrap(), counted.get::<i64>(1).unwrap()), (10_000, 0));
    });
}

#[test]
fn extremes_come_back_as_they_went() {
    let long_text = "Sphinx of black quartz, ☂. ".repeat(40_000);
    let long_bytes: Vec<u8> = (0..1 << 20).map(|n: u32| n.to_le_bytes()[0]).collect();
    assert!(long_text.len() > 1 << 20);
    let values = [
        ("name", Value::Text(long_text)),
        ("name", Value::Text("\u{1F9ED} \u{301}\r\n\t\u{FFFF}".to_owned())),
        ("name", Value::Text(String::new())),
        ("name", Value::Null),
        ("data", Value::Blob(long_bytes)),
        ("data", Value::Blob(Vec::new())),
        ("data", Value::Blob(b"42".to_vec())),
        ("weight", Value::Real(f64::MAX)),
        ("weight", Value::Real(-f64::MIN_POSITIVE)),
        ("weight", Value::Real(5e-324)),
        ("weight", Value::Real(1.0 / 3.0)),
        ("weight", Value::Real(f64::INFINITY)),
    ];
    for_each_store(async |place| {
        let store = place.open().await;
        create(&store, ITEMS).await;
        for (id, (column, value)) in (1_i64..).zip(values.clone()) {
            let insert = format!("INSERT INTO items (id, {column}) VALUES ($1, $2)");
            execute(&store, (insert, vec![Value::Int(id), value.clone()])).await.unwrap();
            let select = format!("SELECT {column} FROM items WHERE id = $1");
            let found = query(&store, (select, vec![Value::Int(id)])).await.unwrap();
            assert!(found[0].clone().into_values() == [value], "{column} of {id} on {}", place.kind());
        }
    });
}

#[test]
fn values_that_one_database_cannot_keep_are_refused_on_both() {
    for_each_store(async |place| {
        let store = place.open().await;
        create(&store, ITEMS).await;
        for (column, value, code) in [
            ("weight", Value::Real(f64::NAN), "STORE_PARAMETERS_INVALID"),
            ("name", Value::Text("a\0b".to_owned()), "STORE_TEXT_INVALID"),
        ] {
            let insert = format!("INSERT INTO items (id, {column}) VALUES (1, $1)");
            let refused = execute(&store, (insert, vec![value])).await.unwrap_err();
            assert_eq!(refused.code(), code, "{refused}");
        }
    });
}

#[test]
fn a_statement_takes_as_many_parameters_as_sqlite_allows() {
    for_each_store(async |place| {
        let store = place.open().await;
        create(&store, ITEMS).await;
        insert_names(&store, vec![params![5, "five"].to_vec()]).await.unwrap();
        let list = |count: usize| (1..=count).map(|n| format!("${n}")).collect::<Vec<_>>().join(",");
        let find = |count: usize| format!("SELECT id FROM items WHERE id IN ({})", list(count));
        let numbers = |count: usize| (1..=count as i64).map(Value::Int).collect::<Vec<_>>();
        assert_eq!(query(&store, (find(32_766), numbers(32_766))).await.unwrap().len(), 1);
        let refused = query(&store, (find(32_767), numbers(32_767))).await.unwrap_err();
        assert_eq!(refused.code(), "STORE_PARAMETERS_INVALID");
    });
}
