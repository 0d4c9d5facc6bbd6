//! `mainstay verify`: is everything in the log as it was written?

use super::progress::teller;
use crate::arguments::Global;
use crate::{Error, Result, output};
use clap::Args;
use mainstay::events::{Log, Problem, Repaired, Report};
use serde::Serialize;

/// Look over the whole log
///
/// Checks every event against its checksums, that no position is missing, that time never goes back, the versions of
/// streams and scopes, the index against the log in both directions, and on SQLite the file itself. It reads in pages
/// and stops nobody who writes. The report is on stdout; the exit code is 1 when there are problems.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// First make the index agree with the log again
    #[arg(long)]
    repair_index: bool,
}

impl Verify {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let log = super::open_log(global).await?;
        let done = self.look(&log, global.json).await;
        let place = log.store().location().to_string();
        log.store().clone().close().await;
        let (repaired, report) = done?;
        if global.json {
            output::print_json(&Answer { store: place, repaired, report: &report })?;
        } else {
            output::print(&text(&place, repaired, &report))?;
        }
        sound(&report)
    }

    async fn look(&self, log: &Log, is_json: bool) -> Result<(Option<Repaired>, Report)> {
        let repaired = if self.repair_index { Some(log.repair_index(teller(is_json)).await?) } else { None };
        Ok((repaired, log.verify(teller(is_json)).await?))
    }
}

/// Problems are a failure of the verb.
pub(super) fn sound(report: &Report) -> Result<()> {
    if report.is_sound() { Ok(()) } else { Err(Error::Problems(report.problem_count)) }
}

/// What `--json` answers.
#[derive(Serialize)]
struct Answer<'a> {
    store: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    repaired: Option<Repaired>,
    #[serde(flatten)]
    report: &'a Report,
}

fn text(place: &str, repaired: Option<Repaired>, report: &Report) -> String {
    let mut text = format!("{place}\n");
    if let Some(Repaired { added, removed }) = repaired {
        text += &format!("repaired  {added} entries of the index added, {removed} removed\n");
    }
    text + &findings(report)
}

/// What was looked at, and what was found.
pub(super) fn findings(report: &Report) -> String {
    let Report { head, events, erased, entries, scopes, .. } = report;
    let database =
        if report.database_checked { "checked its own file" } else { "cannot be asked about its files" };
    let mut text = format!(
        "head      {head}\nevents    {events} checked, {erased} of them erased\nindex     {entries} entries checked\n\
         scopes    {scopes} checked\ndatabase  {database}\nproblems  {}\n",
        report.problem_count
    );
    if !report.is_sound() {
        let row = |problem: &Problem| {
            let position = if problem.position == 0 { "-".to_owned() } else { problem.position.to_string() };
            [position, problem.kind.as_str().to_owned(), problem.sentence.clone()]
        };
        let rows: Vec<_> = report.problems.iter().map(row).collect();
        text += &format!("\n{}", output::table(["POSITION", "KIND", "PROBLEM"], &rows));
    }
    let unlisted = report.problem_count - report.problems.len() as u64;
    if unlisted > 0 {
        text += &format!("and {unlisted} more\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay::events::Damage;

    #[test]
    fn a_report_lists_what_is_wrong_and_counts_the_rest() {
        let mut report =
            Report { head: 50, events: 49, erased: 2, entries: 213, scopes: 1, ..Report::default() };
        let problem =
            |position, kind, sentence: &str| Problem { position, kind, sentence: sentence.to_owned() };
        report.problems = vec![
            problem(
                0,
                Damage::Database,
                "the database says: Tree 4 page 9: btreeInitPage() returns error code 11",
            ),
            problem(7, Damage::Missing, "the event at 7 is missing"),
        ];
        report.problem_count = 5;
        report.database_checked = true;
        let repaired = Some(Repaired { added: 3, removed: 0 });
        insta::assert_snapshot!(text("sqlite:shop.db", repaired, &report), @"
            sqlite:shop.db
            repaired  3 entries of the index added, 0 removed
            head      50
            events    49 checked, 2 of them erased
            index     213 entries checked
            scopes    1 checked
            database  checked its own file
            problems  5

            POSITION  KIND      PROBLEM
            -         database  the database says: Tree 4 page 9: btreeInitPage() returns error code 11
            7         missing   the event at 7 is missing
            and 3 more
            ");
    }
}
