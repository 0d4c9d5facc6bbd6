//! `mainstay bench`: measures Mainstay on this machine and its disk.
//!
//! What is measured, and how, is in `mainstay_bench`; here is what is asked for and what is said of it.
//!
//! - `store`, `events`, `work`, `limits`, `replay`, `publications`, `operate`: a verb each, with its flags, its part of the
//!   report and how people are told of it
//! - `bed`: the store on which it is measured
//! - `callers`: the flags and the rows of those that measure by one caller and by many
//! - `report`: what all of them say together

mod bed;
mod callers;
mod events;
mod limits;
mod operate;
mod publications;
mod replay;
mod report;
mod store;
mod work;

use self::bed::Bed;
use self::operate::Operated;
use self::report::{Report, headline, told};
use crate::arguments::Global;
use crate::{Error, Result, output};
use clap::{Args, Subcommand};
use mainstay_bench::table::Table;

/// Measure Mainstay on this machine
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Store(store::StoreBench),
    Events(events::EventsBench),
    Work(work::WorkBench),
    Limits(limits::LimitsBench),
    Replay(replay::ReplayBench),
    Publications(publications::PublicationsBench),
    Operate(operate::OperateBench),
}

impl Bench {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let bed = Bed::make(global).await?;
        let measured = self.measure(&bed).await;
        bed.store.close().await;
        let (report, table) = measured?;
        match global.json {
            true => output::print_json(&report)?,
            false => {
                let table = table.map_or(String::new(), |table| table.render());
                output::print(&format!("{}\n\n{table}{}", headline(&report), told(&report)))?;
            }
        }
        match report.operate {
            Some(Operated { over, is_checked: true, .. }) if !over.is_empty() => Err(Error::OverLimit(over)),
            _ => Ok(()),
        }
    }

    async fn measure(&self, bed: &Bed) -> Result<(Report, Option<Table>)> {
        let report = bed.report().await?;
        let (report, table) = match &self.what {
            What::Store(bench) => bench.run(&bed.store, report).await?,
            What::Events(bench) => bench.run(&bed.store, report).await?,
            What::Limits(bench) => bench.run(&bed.store, report).await?,
            What::Work(bench) => return Ok((bench.run(&bed.store, report).await?, None)),
            What::Publications(bench) => return Ok((bench.run(&bed.store, report).await?, None)),
            What::Operate(bench) => return Ok((bench.run(&bed.store, report).await?, None)),
            What::Replay(bench) => return Ok((bench.run(&bed.store, report).await?, None)),
        };
        Ok((report, Some(table)))
    }
}
