//! `mainstay bench operate`.

use super::report::Report;
use crate::Result;
use clap::Args;
use mainstay::store::Store;
use mainstay_bench::operate::{self, Answered, Pages};
use serde::Serialize;

/// Measure how fast the console, the metrics and the health of a server over a full store are answered
///
/// Appends events of 100 bytes, lets items of work fail for good, publishes events and begins operations, a tenth as many, and
/// then asks a server over that for everything, first while nothing happens and then while it is appended to as fast as the
/// store takes it; then for the first and the thousandth page of lists, and for the overview as it is followed. Times are those
/// of a client on this machine. With --check it fails when something takes longer than it may. Works on a temporary SQLite file
/// in the current folder; or on the store given with --store, in whose log the events stay, as all events do, and where
/// everything else that is named bench and the entries of the audit stay.
#[derive(Debug, Args)]
pub(super) struct OperateBench {
    /// How many events are appended
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    events: u32,
    /// How many items fail for good
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    letters: u32,
    /// How often each question is asked
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    times: u16,
    /// Fail when something is over its limit
    #[arg(long)]
    check: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Operated {
    events: u64,
    letters: u64,
    appended_per_second: f64,
    answers: Vec<Asked>,
    pages: Vec<Paged>,
    #[serde(skip_serializing_if = "Option::is_none")]
    live_share: Option<f64>,
    transferred_bytes: usize,
    pub(super) over: Vec<String>,
    #[serde(skip)]
    pub(super) is_checked: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Paged {
    list: &'static str,
    page: usize,
    first_p50_ms: f64,
    later_p50_ms: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    path: &'static str,
    bytes: usize,
    most_ms: f64,
    quiet_p50_ms: f64,
    quiet_longest_ms: f64,
    busy_p50_ms: f64,
    busy_longest_ms: f64,
}

impl OperateBench {
    pub(super) async fn run(&self, opened: &Store, mut report: Report) -> Result<Report> {
        let Self { events, letters, times, check: is_checked } = *self;
        let measured = operate::measure(opened, events as usize, letters as usize, times.into()).await?;
        let asked = |answered: &Answered| Asked {
            path: answered.path,
            bytes: answered.bytes,
            most_ms: answered.most.as_secs_f64() * 1e3,
            quiet_p50_ms: Answered::middle_ms(&answered.quiet),
            quiet_longest_ms: Answered::longest_ms(&answered.quiet),
            busy_p50_ms: Answered::middle_ms(&answered.busy),
            busy_longest_ms: Answered::longest_ms(&answered.busy),
        };
        let paged = |pages: &Pages| Paged {
            list: pages.list,
            page: pages.page,
            first_p50_ms: Answered::middle_ms(&pages.first),
            later_p50_ms: Answered::middle_ms(&pages.later),
        };
        report.operate = Some(Operated {
            events: measured.events,
            letters: measured.letters,
            appended_per_second: measured.appended_per_second,
            answers: measured.answers.iter().map(asked).collect(),
            pages: measured.pages.iter().map(paged).collect(),
            live_share: measured.live_share,
            transferred_bytes: measured.transferred,
            over: measured.over(),
            is_checked,
        });
        Ok(report)
    }
}

pub(super) fn told(operated: &Operated) -> String {
    let Operated { events, letters, appended_per_second, answers, .. } = operated;
    let mut out = format!(
        "Over {events} events and {letters} dead letters, in milliseconds; busy: beside {appended_per_second:.0} appends \
         per second\n\n| {:<41} | {:>7} | {:>6} | {:>9} | {:>13} | {:>8} | {:>12} |\n|{:-<43}|{:->9}|{:->8}|{:->11}|{:->15}|{:->10}|{:->14}|\n",
        "what",
        "bytes",
        "asked",
        "quiet p50",
        "quiet longest",
        "busy p50",
        "busy longest",
        "",
        "",
        "",
        "",
        "",
        "",
        ""
    );
    for asked in answers {
        let Asked { path, bytes, most_ms, quiet_p50_ms, quiet_longest_ms, busy_p50_ms, busy_longest_ms } =
            asked;
        let times = format!(
            "{quiet_p50_ms:>9.1} | {quiet_longest_ms:>13.1} | {busy_p50_ms:>8.1} | {busy_longest_ms:>12.1}"
        );
        out += &format!("| {path:<41} | {bytes:>7} | {most_ms:>6.0} | {times} |\n");
    }
    out + &told_of_pages(operated)
}

fn told_of_pages(operated: &Operated) -> String {
    let mut out = "\nLists, in milliseconds; what a page costs must not grow\n".to_owned();
    for Paged { list, page, first_p50_ms, later_p50_ms } in &operated.pages {
        out += &format!("  {list:<28} first page {first_p50_ms:.1}, page {page} {later_p50_ms:.1}\n");
    }
    let share = operated
        .live_share
        .map_or("cannot be told here".to_owned(), |share| format!("{:.2} %", share * 100.0));
    out += &format!("\nOne who follows the overview, of a core: {share}\n");
    out += &format!("The console, as a browser loads it: {} bytes\n", operated.transferred_bytes);
    match operated.over.as_slice() {
        [] => out + "Nothing is over its limit.\n",
        over => over.iter().fold(out + "Over the limit:\n", |out, one| out + "  " + one + "\n"),
    }
}
