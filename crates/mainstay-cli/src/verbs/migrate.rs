//! `mainstay migrate`: brings the schema of the store up to date.

use crate::arguments::Global;
use crate::{Result, config, output};
use clap::Args;
use mainstay::store::migrations::{AppliedStep, Report};
use serde::Serialize;

/// Bring the schema of the store up to date
///
/// Creates the store if it does not exist, applies the steps that are missing in one transaction, and lists all
/// steps. Two nodes that migrate at once migrate once. Running it again does nothing. It migrates also when
/// `store.migrate` is false: that setting is for the programs that only open the store.
#[derive(Debug, Args)]
pub(crate) struct Migrate {}

impl Migrate {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let options = config::store::options_with_log(&global.load()?).migrate(true);
        let (store, report) = options.open_reporting().await?;
        let (place, durability) = (store.location().to_string(), store.durability().await);
        store.close().await;
        let durability = durability?;
        if global.json {
            let (applied, present) = (steps(&report.applied), steps(&report.present));
            return output::print_json(&Answer { store: place, durability, applied, present });
        }
        eprintln!("{place}: {durability}");
        output::print(&table(&report))?;
        eprintln!("{}", summary(report.applied.len()));
        Ok(())
    }
}

/// What `--json` answers.
#[derive(Serialize)]
struct Answer {
    store: String,
    durability: String,
    applied: Vec<Step>,
    present: Vec<Step>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    component: String,
    number: u32,
    name: String,
    applied_at: String,
}

fn steps(steps: &[AppliedStep]) -> Vec<Step> {
    let step = |step: &AppliedStep| Step {
        component: step.component.clone(),
        number: step.number,
        name: step.name.clone(),
        applied_at: time(step),
    };
    steps.iter().map(step).collect()
}

fn table(report: &Report) -> String {
    let row = |step: &AppliedStep| {
        let state = if report.applied.contains(step) { "applied now" } else { "was there" };
        [step.component.clone(), step.number.to_string(), step.name.clone(), time(step), state.to_owned()]
    };
    let rows: Vec<_> = report.present.iter().map(row).collect();
    output::table(["COMPONENT", "STEP", "NAME", "APPLIED AT", "STATE"], &rows)
}

fn time(step: &AppliedStep) -> String {
    let time = jiff::Timestamp::from_millisecond(step.applied_at);
    time.map_or_else(|_| format!("{} ms", step.applied_at), |time| format!("{time:.3}"))
}

fn summary(applied: usize) -> String {
    match applied {
        0 => "Nothing to do: the schema is up to date.".to_owned(),
        1 => "1 step applied.".to_owned(),
        several => format!("{several} steps applied."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_new_from_old() {
        let step = |number, name: &str| AppliedStep {
            component: "store".to_owned(),
            number,
            name: name.to_owned(),
            applied_at: 1_800_000_000_000,
        };
        let report = Report {
            applied: vec![step(2, "add_labels")],
            present: vec![step(1, "tell_the_time"), step(2, "add_labels")],
        };
        insta::assert_snapshot!(table(&report), @"
            COMPONENT  STEP  NAME           APPLIED AT                STATE
            store      1     tell_the_time  2027-01-15T08:00:00.000Z  was there
            store      2     add_labels     2027-01-15T08:00:00.000Z  applied now
            ");
    }
}
