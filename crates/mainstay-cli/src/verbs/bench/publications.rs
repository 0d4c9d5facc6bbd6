//! `mainstay bench publications`.

use super::report::Report;
use crate::{Error, Result};
use clap::Args;
use mainstay::store::Store;
use mainstay_bench::publications;
use serde::Serialize;
use std::time::Duration;

/// Measure how fast events are published, and delivered as signed webhooks to a target on this machine
///
/// Publishes events of 100 bytes, 100 to a commit, and then delivers them to a target that answers at once, and to one that
/// takes 10 ms for each; counts what the target was given, and fails unless each event came once. Works on a temporary SQLite
/// file in the current folder, so that it is this disk that is measured; or on the store given with --store, where the
/// publications to the target bench stay.
#[derive(Debug, Args)]
pub(super) struct PublicationsBench {
    /// How many events are published and delivered, to each target
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    events: u32,
    /// How many deliveries are under way at once, as maxParallelism of a target has it
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    at_once: u32,
    /// How long the target takes for each event, in milliseconds, one measurement each
    #[arg(long, value_delimiter = ',', default_value = "0,10", value_parser = clap::value_parser!(u16).range(0..=60_000))]
    target_ms: Vec<u16>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Delivered {
    target_ms: u16,
    at_once: u32,
    events: u64,
    requests: u64,
    published_per_second: f64,
    delivered_per_second: f64,
}

impl PublicationsBench {
    pub(super) async fn run(&self, opened: &Store, mut report: Report) -> Result<Report> {
        let Self { events, at_once, target_ms } = self;
        for &target_ms in target_ms {
            let takes = Duration::from_millis(target_ms.into());
            let measured = publications::measure(opened, *events as usize, *at_once, takes).await?;
            if !measured.is_each_once() {
                let publications::Measured { given, requests, .. } = &measured;
                let told = format!("the target was given {given} of {events} events in {requests} requests");
                return Err(Error::Argument(format!("{told}; each should have come once")));
            }
            report.publications.push(Delivered {
                target_ms,
                at_once: *at_once,
                events: measured.events,
                requests: measured.requests,
                published_per_second: measured.published_per_second(),
                delivered_per_second: measured.delivered_per_second(),
            });
        }
        Ok(report)
    }
}

pub(super) fn told(delivered: &Delivered) -> String {
    let Delivered { target_ms, at_once, events, published_per_second, delivered_per_second, .. } = delivered;
    let (batch, target) = match target_ms {
        0 => (publications::BATCH, "answers at once".to_owned()),
        _ => (publications::BATCH, format!("takes {target_ms} ms")),
    };
    format!(
        "Publishing {events} events, {batch} to a commit: {published_per_second:.0} events per second\n\
         Delivering them, at most {at_once} at once, to a target that {target}: {delivered_per_second:.0} events per second, \
         each once\n"
    )
}
