//! Brings the schema up to date, once, whoever else is trying at the same time.

use super::ground::{CREATE_HISTORY, GROUND};
use super::{AppliedStep, Component, Report, Step};
use crate::{Error, Options, Result, Row, Store, Tx, params};
use std::time::Duration;

/// Taken by every node that migrates, so that two that start at once migrate once.
const LOCK: &str = "mainstay:migrate";

/// As long as anybody would wait for an upgrade.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

const SELECT_HISTORY: &str = "SELECT component, number, name, fingerprint, needs, applied_at \
    FROM mainstay_migrations ORDER BY component, number";
const INSERT_STEP: &str = "INSERT INTO mainstay_migrations \
    (component, number, name, fingerprint, needs, applied_at, program) VALUES ($1, $2, $3, $4, $5, $6, $7)";

/// Applies what is missing, all in one transaction, or refuses to work with the schema as it is.
pub(crate) async fn run(store: &Store, options: &Options) -> Result<Report> {
    let plan =
        Plan { components: components(options), is_postgres: store.is_postgres(), migrate: options.migrate };
    // Building an index on a large table takes its time, and so does waiting for the node that does it.
    let store = &store.with_time_limit(LONGEST);
    // Looking first keeps an up-to-date node from taking the lock and writing anything.
    if let Some(report) = store.read_with(plan.clone(), async |tx, plan| plan.if_complete(&tx).await).await? {
        return Ok(report);
    }
    store.transact_with(plan, async |tx, plan| plan.apply(&tx).await).await
}

fn components(options: &Options) -> Vec<Component> {
    std::iter::once(GROUND).chain(options.components.iter().copied()).collect()
}

#[derive(Clone)]
struct Plan {
    components: Vec<Component>,
    is_postgres: bool,
    migrate: bool,
}

impl Plan {
    async fn if_complete(&self, tx: &Tx) -> Result<Option<Report>> {
        if !self.history_exists(tx).await? {
            return Ok(None);
        }
        let history = History::load(tx).await?;
        for component in &self.components {
            history.check(component, self.is_postgres)?;
        }
        let is_complete = self.components.iter().all(|component| history.missing(component).is_empty());
        Ok(is_complete.then(|| Report { applied: Vec::new(), present: history.steps(&self.components) }))
    }

    async fn apply(&self, tx: &Tx) -> Result<Report> {
        if self.migrate {
            tx.lock(LOCK).await?;
            if !self.history_exists(tx).await? {
                tx.execute(CREATE_HISTORY, &[]).await?;
            }
        } else if !self.history_exists(tx).await? {
            return Err(behind(&GROUND, 0));
        }
        let history = History::load(tx).await?;
        let mut applied = Vec::new();
        for component in &self.components {
            history.check(component, self.is_postgres)?;
            for (number, step) in history.missing(component) {
                if !self.migrate {
                    return Err(behind(component, number - 1));
                }
                let failed = |source| match source {
                    // The remedy is another one: rights, not a mended migration.
                    Error::Denied(reason) => {
                        Error::Denied(format!("migration {} of {}: {reason}", step.name, component.name))
                    }
                    source => Error::MigrationFailed {
                        component: component.name.to_owned(),
                        step: step.name.to_owned(),
                        source: Box::new(source),
                    },
                };
                applied.push(self.apply_step(tx, component, number, step).await.map_err(failed)?);
            }
        }
        let present = History::load(tx).await?.steps(&self.components);
        Ok(Report { applied, present })
    }

    async fn apply_step(
        &self,
        tx: &Tx,
        component: &Component,
        number: u32,
        step: &Step,
    ) -> Result<AppliedStep> {
        for statement in step.script.statements(self.is_postgres) {
            tx.execute(statement, &[]).await?;
        }
        let applied_at = tx.now_ms().await?;
        let (name, program) = (step.name, env!("CARGO_PKG_VERSION"));
        let mark = fingerprint(step, self.is_postgres);
        tx.execute(INSERT_STEP, params![component.name, number, name, mark, step.needs, applied_at, program])
            .await?;
        Ok(AppliedStep { component: component.name.to_owned(), number, name: name.to_owned(), applied_at })
    }

    async fn history_exists(&self, tx: &Tx) -> Result<bool> {
        let sql = if self.is_postgres {
            "SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('mainstay_migrations')"
        } else {
            "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'mainstay_migrations'"
        };
        Ok(tx.query_one(sql, &[]).await?.get::<i64>(0)? > 0)
    }
}

fn behind(component: &Component, at: u32) -> Error {
    Error::SchemaBehind { component: component.name.to_owned(), at, needed: component.steps.len() as u32 }
}

/// The steps in the database.
struct History(Vec<Entry>);

struct Entry {
    step: AppliedStep,
    fingerprint: String,
    needs: u32,
}

impl History {
    async fn load(tx: &Tx) -> Result<Self> {
        let entry = |row: &Row| -> Result<Entry> {
            Ok(Entry {
                step: AppliedStep {
                    component: row.get("component")?,
                    number: row.get("number")?,
                    name: row.get("name")?,
                    applied_at: row.get("applied_at")?,
                },
                fingerprint: row.get("fingerprint")?,
                needs: row.get("needs")?,
            })
        };
        tx.query(SELECT_HISTORY, &[]).await?.iter().map(entry).collect::<Result<_>>().map(Self)
    }

    fn of<'a>(&'a self, component: &'a Component) -> impl Iterator<Item = &'a Entry> {
        self.0.iter().filter(|entry| entry.step.component == component.name)
    }

    /// Refuses a schema that this program would misunderstand.
    fn check(&self, component: &Component, is_postgres: bool) -> Result<()> {
        let known = component.steps.len() as u32;
        for entry in self.of(component) {
            if entry.needs > known {
                return Err(Error::SchemaNewer {
                    component: component.name.to_owned(),
                    needed: entry.needs,
                    known,
                });
            }
            let step = entry.step.number.checked_sub(1).and_then(|index| component.steps.get(index as usize));
            let Some(step) = step else { continue };
            if entry.fingerprint != fingerprint(step, is_postgres) {
                return Err(Error::MigrationChanged {
                    component: component.name.to_owned(),
                    step: entry.step.name.clone(),
                });
            }
        }
        Ok(())
    }

    fn missing(&self, component: &Component) -> Vec<(u32, &'static Step)> {
        let present = self.of(component).map(|entry| entry.step.number).max().unwrap_or(0);
        (1..).zip(component.steps).filter(|(number, _)| *number > present).collect()
    }

    fn steps(&self, components: &[Component]) -> Vec<AppliedStep> {
        // In the order in which they are applied.
        components.iter().flat_map(|component| self.of(component)).map(|entry| entry.step.clone()).collect()
    }
}

/// FNV-1a over the statements: tells an edited step from the one that was applied. Not a defence against malice.
fn fingerprint(step: &Step, is_postgres: bool) -> String {
    let bytes = step.script.statements(is_postgres).iter().flat_map(|statement| statement.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
