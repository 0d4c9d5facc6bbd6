//! Managed tables: read models that are built beside each other, one generation after another.
//!
//! A table `order_summary` of generation 2 is `order_summary__g2`; readers see the view `order_summary`. While a
//! generation is filled beside the one that is served, the view is over both and takes its rows from the one that the
//! projection's row names. So a reader sees the generation of its own snapshot: a view that is merely replaced would show
//! the new table to readers on PostgreSQL that began before it was whole, because names are not part of a snapshot.

use super::definition::Projection;
use crate::error::{Error, Result};
use mainstay_store::{Identifier, Literal, Tx};
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;

/// Longest name of a managed table. PostgreSQL cuts names at 63 bytes, and indexes are named after tables.
const MAX_TABLE_BYTES: usize = 32;

/// A managed table as its author gives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Table {
    #[serde(serialize_with = "name_text", deserialize_with = "checked_name")]
    pub(crate) name: Identifier,
    /// What makes it, with `{table}` where its name goes.
    pub(crate) statements: Vec<String>,
}

/// The name of a managed table, if it can be one.
pub(crate) fn table_name(name: &str) -> std::result::Result<Identifier, String> {
    if name.len() > MAX_TABLE_BYTES {
        return Err(format!("its name has more than {MAX_TABLE_BYTES} bytes"));
    }
    Identifier::new(name).map_err(|error| format!("its name {error}"))
}

fn name_text<S: serde::Serializer>(name: &Identifier, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(name.as_str())
}

fn checked_name<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Identifier, D::Error> {
    let name = String::deserialize(deserializer)?;
    table_name(&name).map_err(|reason| serde::de::Error::custom(format!("table {name:?}: {reason}")))
}

impl Table {
    pub(crate) fn check(&self) -> Result<()> {
        if self.statements.is_empty() || !self.statements.iter().all(|sql| sql.contains("{table}")) {
            let field = format!("table {:?}", self.name.as_str());
            return Err(Error::invalid(field, "each of its statements must say {table}"));
        }
        Ok(())
    }
}

/// Tells a handler where its managed tables are.
#[derive(Debug, Clone)]
pub struct Model {
    generation: i64,
    tables: Arc<[(String, String)]>,
}

impl Model {
    pub(crate) fn new(projection: &Projection, generation: i64) -> Self {
        let tables = projection.tables.iter();
        let tables = tables.map(|table| (table.name.to_string(), physical(&table.name, generation)));
        Self { generation, tables: tables.collect() }
    }

    /// What a managed table is called in the generation that is written now.
    pub fn table(&self, name: &str) -> mainstay_store::Result<&str> {
        let found = self.tables.iter().find(|(known, _)| known == name);
        found.map(|(_, physical)| physical.as_str()).ok_or_else(|| {
            mainstay_store::Error::Parameters(format!("the projection manages no table {name:?}"))
        })
    }

    /// Which generation of the read model is written, from 1.
    pub fn generation(&self) -> i64 {
        self.generation
    }
}

fn physical(name: &Identifier, generation: i64) -> String {
    format!("{name}__g{generation}")
}

/// What tables are made of, as it is kept.
pub(crate) fn shape(tables: &[Table]) -> String {
    serde_json::to_string(tables).unwrap_or_default()
}

/// The tables that a shape is of. A shape with a name that no author could have given is refused.
pub(crate) fn read_shape(shape: &str) -> mainstay_store::Result<Vec<Table>> {
    if shape.is_empty() {
        return Ok(Vec::new());
    }
    let unreadable = |error: serde_json::Error| mainstay_store::Error::Decode {
        column: "shape".to_owned(),
        reason: error.to_string(),
    };
    serde_json::from_str(shape).map_err(unreadable)
}

/// Makes the tables of a generation.
pub(crate) async fn create(tx: &Tx, tables: &[Table], generation: i64) -> mainstay_store::Result<()> {
    for table in tables {
        for sql in &table.statements {
            tx.execute(&sql.replace("{table}", &physical(&table.name, generation)), &[]).await?;
        }
    }
    Ok(())
}

/// Lets readers see these generations of tables, each while it is the projection's.
pub(crate) async fn show(
    tx: &Tx,
    projection: &str,
    tables: &[Table],
    generations: &[i64],
) -> mainstay_store::Result<()> {
    for table in tables {
        let part = |generation: &i64| {
            let all = format!("SELECT * FROM {}", physical(&table.name, *generation));
            if generations.len() == 1 {
                return all;
            }
            let name = Literal(projection);
            let current = format!("SELECT generation FROM mainstay_projections WHERE name = {name}");
            format!("{all} WHERE ({current}) = {generation}")
        };
        let parts = generations.iter().map(part).collect::<Vec<_>>().join(" UNION ALL ");
        tx.execute(&format!("DROP VIEW IF EXISTS {}", table.name), &[]).await?;
        tx.execute(&format!("CREATE VIEW {} AS {parts}", table.name), &[]).await?;
    }
    Ok(())
}

/// Takes tables away from readers.
pub(crate) async fn hide(tx: &Tx, tables: &[Table]) -> mainstay_store::Result<()> {
    for table in tables {
        tx.execute(&format!("DROP VIEW IF EXISTS {}", table.name), &[]).await?;
    }
    Ok(())
}

/// Removes the tables of a generation, which no view shows.
pub(crate) async fn remove(tx: &Tx, tables: &[Table], generation: i64) -> mainstay_store::Result<()> {
    for table in tables {
        tx.execute(&format!("DROP TABLE IF EXISTS {}", physical(&table.name, generation)), &[]).await?;
    }
    Ok(())
}
