//! `mainstay bench`: measures Mainstay on this machine and its disk.

use crate::arguments::Global;
use crate::bench::events::Reading;
use crate::bench::load::{Load, Outcome};
use crate::bench::operate::{Answered, Pages};
use crate::bench::replay::Measured;
use crate::bench::table::Table;
use crate::bench::{disk, events, limits, operate, publications, replay, store, work};
use crate::config::{self, Place};
use crate::{Error, Result, output};
use clap::{Args, Subcommand};
use mainstay::events::Log;
use mainstay::guards::limits::store::Limits;
use mainstay::store::Store;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// Measure Mainstay on this machine
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Store(StoreBench),
    Events(EventsBench),
    Work(WorkBench),
    Limits(LimitsBench),
    Replay(ReplayBench),
    Publications(PublicationsBench),
    Operate(OperateBench),
}

/// Measure transactions with two small inserts, by one caller and by many
///
/// Works on a temporary SQLite file in the current folder, so that it is this disk that is measured; or on the store
/// given with --store, where it makes two tables mainstay_bench_* and drops them again.
#[derive(Debug, Args)]
struct StoreBench {
    #[command(flatten)]
    size: Size,
}

/// Measure conditional appends to the log, by one caller and by many, and reading them
///
/// Each append is one event of 100 bytes with a tag, on the condition that no event has that tag yet. Works on a
/// temporary SQLite file in the current folder, so that it is this disk that is measured; or on the store given with
/// --store, in whose log the events stay, as all events do.
#[derive(Debug, Args)]
struct EventsBench {
    #[command(flatten)]
    size: Size,
}

/// Measure how fast items that do nothing are enqueued, worked and started
///
/// Enqueues items a thousand at a time, works them until none is left, then enqueues some one after another and measures
/// how long each takes to start. Works on a temporary SQLite file in the current folder, so that it is this disk that is
/// measured; or on the store given with --store, where the pool mainstay.bench stays, and for a week what came of the
/// items.
#[derive(Debug, Args)]
struct WorkBench {
    /// How many items are enqueued and worked, in thousands
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    thousands: u16,
    /// How many items are started one after another
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..))]
    starts: u16,
}

/// Measure decisions of a rate limit: about one key that all want, in the store, and about many keys in memory
///
/// Works on a temporary SQLite file in the current folder, so that it is this disk that is measured; or on the store given
/// with --store, where the limit mainstay.bench stays.
#[derive(Debug, Args)]
struct LimitsBench {
    #[command(flatten)]
    size: Size,
}

/// Measure how fast a read model with one row for each event is filled anew from the log
///
/// Appends events of 100 bytes and replays them, 2000 to a commit. Works on a temporary SQLite file in the current folder, so
/// that it is this disk that is measured; or on the store given with --store, in whose log the events stay, as all events do,
/// and where the projection mainstay.bench stays. No other replay may run there meanwhile.
#[derive(Debug, Args)]
struct ReplayBench {
    /// How many events are appended and replayed
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    events: u32,
}

/// Measure how fast events are published, and delivered as signed webhooks to a target on this machine
///
/// Publishes events of 100 bytes, 100 to a commit, and then delivers them to a target that answers at once, and to one that
/// takes 10 ms for each; counts what the target was given, and fails unless each event came once. Works on a temporary SQLite
/// file in the current folder, so that it is this disk that is measured; or on the store given with --store, where the
/// publications to the target mainstay.bench stay.
#[derive(Debug, Args)]
struct PublicationsBench {
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

/// Measure how fast the console, the metrics and the health of a server over a full store are answered
///
/// Appends events of 100 bytes, lets items of work fail for good, and then asks a server over that for everything, first while
/// nothing happens and then while it is appended to as fast as the store takes it; then for the first and the thousandth page
/// of lists, and for the overview as it is followed. Times are those of a client on this machine. With --check it fails when
/// something takes longer than it may. Works on a temporary SQLite file in the current folder; or on the store given with
/// --store, in whose log the events stay, as all events do, and where the pool mainstay.bench.operate, the dead letters and the
/// entries of the audit stay.
#[derive(Debug, Args)]
struct OperateBench {
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

#[derive(Debug, Args)]
struct Size {
    /// How many callers at once, one measurement each
    #[arg(long, value_delimiter = ',', default_value = "1,8,64", value_parser = clap::value_parser!(u16).range(1..=4096))]
    callers: Vec<u16>,
    /// How long each measurement takes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

impl Size {
    fn loads(&self) -> impl Iterator<Item = Load> {
        self.callers.iter().map(|callers| Load {
            callers: usize::from(*callers),
            warm_up: Duration::from_millis(300),
            measured: Duration::from_secs(self.seconds),
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    durability: String,
    disk_sync_ms: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    measurements: Vec<Measurement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reading: Option<Read>,
    #[serde(skip_serializing_if = "Option::is_none")]
    work: Option<Worked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_memory_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<Replayed>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    publications: Vec<Delivered>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operate: Option<Operated>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Measurement {
    callers: usize,
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    failed: u64,
    transactions_per_commit: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Worked {
    items: u64,
    enqueued_per_second: f64,
    worked_per_second: f64,
    start_p50_ms: f64,
    start_p99_ms: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Replayed {
    events: u64,
    rows: u64,
    appended_per_second: f64,
    replayed_per_second: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Delivered {
    target_ms: u16,
    at_once: u32,
    events: u64,
    requests: u64,
    published_per_second: f64,
    delivered_per_second: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Operated {
    events: u64,
    letters: u64,
    appended_per_second: f64,
    answers: Vec<Asked>,
    pages: Vec<Paged>,
    #[serde(skip_serializing_if = "Option::is_none")]
    live_share: Option<f64>,
    transferred_bytes: usize,
    over: Vec<String>,
    #[serde(skip)]
    is_checked: bool,
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Read {
    events: u64,
    per_second: f64,
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

impl WorkBench {
    async fn run(&self, opened: &Store, mut report: Report) -> Result<Report> {
        let items = usize::from(self.thousands) * work::BATCH;
        let measured = work::measure(opened, items, self.starts.into()).await?;
        report.work = Some(Worked {
            items: measured.items,
            enqueued_per_second: measured.enqueued_per_second(),
            worked_per_second: measured.worked_per_second(),
            start_p50_ms: measured.start_ms(0.5),
            start_p99_ms: measured.start_ms(0.99),
        });
        Ok(report)
    }
}

impl ReplayBench {
    async fn run(&self, opened: &Store, mut report: Report) -> Result<Report> {
        if let Some(other) = replay::others(opened).await?.first() {
            let (id, projection) = (&other.replay_id, &other.projection_name);
            let told = format!("{id} of {projection} is {} on this store", other.status.as_str());
            return Err(Error::Argument(format!("{told}; wait until it has ended, or use another store")));
        }
        let measured = replay::measure(opened, self.events as usize).await?;
        if measured.rows != measured.events {
            let Measured { events, rows, progress, .. } = &measured;
            let why = progress.error.as_deref().unwrap_or("it did not end in time");
            return Err(Error::Argument(format!("the replay wrote {rows} rows of {events} events: {why}")));
        }
        report.replay = Some(Replayed {
            events: measured.events,
            rows: measured.rows,
            appended_per_second: measured.appended_per_second(),
            replayed_per_second: measured.replayed_per_second(),
        });
        Ok(report)
    }
}

impl PublicationsBench {
    async fn run(&self, opened: &Store, mut report: Report) -> Result<Report> {
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

impl OperateBench {
    async fn run(&self, opened: &Store, mut report: Report) -> Result<Report> {
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

impl StoreBench {
    async fn run(&self, opened: &Store, mut report: Report) -> Result<(Report, Table)> {
        store::prepare(opened).await?;
        let mut rows = Rows::new("transact", opened);
        for (run, load) in (0..).zip(self.size.loads()) {
            rows.before();
            let outcome = store::measure(opened, load, run).await;
            report.measurements.push(rows.add(&outcome));
        }
        store::clean_up(opened).await?;
        Ok((report, rows.table))
    }
}

impl EventsBench {
    async fn run(&self, opened: &Store, mut report: Report) -> Result<(Report, Table)> {
        let log = Log::open(opened).await?;
        let first = log.head().await?;
        let mut rows = Rows::new("append", opened);
        for (run, load) in self.size.loads().enumerate() {
            rows.before();
            // The log may hold events of an earlier bench, or of one that runs beside this.
            let series = format!("{first}-{}-{run}", std::process::id());
            let outcome = events::measure(&log, load, &series).await?;
            report.measurements.push(rows.add(&outcome));
        }
        let reading: Reading = events::read(&log, first).await?;
        report.reading = Some(Read { events: reading.events, per_second: reading.per_second() });
        Ok((report, rows.table))
    }
}

impl LimitsBench {
    async fn run(&self, opened: &Store, mut report: Report) -> Result<(Report, Table)> {
        let limits = Limits::open(opened.clone()).await?;
        let mut rows = Rows::new("consume", opened);
        for load in self.size.loads() {
            rows.before();
            let outcome = limits::measure(&limits, load).await?;
            report.measurements.push(rows.add(&outcome));
        }
        report.in_memory_per_second = Some(limits::in_memory(Duration::from_secs(self.size.seconds)).await?);
        Ok((report, rows.table))
    }
}

/// Where it is measured.
struct Bed {
    store: Store,
    /// Removed when dropped; not made at all when a store was asked for.
    folder: Option<TempDir>,
}

impl Bed {
    async fn make(global: &Global) -> Result<Self> {
        let config = global.load()?;
        let is_asked = matches!(config.entry(&config::store::URL).place, Some(Place::Flag(_)));
        let folder = match is_asked {
            true => None,
            false => Some(tempfile::Builder::new().prefix(".mainstay-bench-").tempdir_in(".").map_err(io)?),
        };
        let url = match &folder {
            None => config.text(&config::store::URL).to_owned(),
            Some(folder) => format!("sqlite:{}", folder.path().join("bench.db").display()),
        };
        Ok(Self { store: config::store::options_at(&url, &config).open().await?, folder })
    }

    /// What can be told before anything was measured.
    async fn report(&self) -> Result<Report> {
        Ok(Report {
            durability: self.store.durability().await?,
            disk_sync_ms: self
                .folder
                .as_ref()
                .map(|folder| sync_ms(folder.path()))
                .transpose()
                .map_err(io)?,
            measurements: Vec::new(),
            reading: None,
            work: None,
            in_memory_per_second: None,
            replay: None,
            publications: Vec::new(),
            operate: None,
        })
    }
}

fn io(source: std::io::Error) -> Error {
    Error::Io { what: "the current folder".to_owned(), source }
}

/// The table, and what is needed to fill it.
struct Rows<'a> {
    what: &'static str,
    store: &'a Store,
    table: Table,
    first: Option<f64>,
    /// Transactions and commits before the measurement.
    before: (u64, u64),
}

impl<'a> Rows<'a> {
    fn new(what: &'static str, store: &'a Store) -> Self {
        Self { what, store, table: Table::new(), first: None, before: (0, 0) }
    }

    fn groups(&self) -> (u64, u64) {
        let groups = self.store.figures().group_size.snapshot();
        (groups.sum, groups.count)
    }

    fn before(&mut self) {
        self.before = self.groups();
    }

    fn add(&mut self, outcome: &Outcome) -> Measurement {
        let (transactions, commits) = self.groups();
        let shared = (transactions - self.before.0) as f64 / (commits - self.before.1).max(1) as f64;
        let first = *self.first.get_or_insert(outcome.per_second());
        self.table.add(self.what, outcome, &format!("{:.1}×", outcome.per_second() / first));
        measurement(outcome, shared)
    }
}

fn sync_ms(folder: &Path) -> std::io::Result<f64> {
    Ok(disk::sync_time(folder)?.as_secs_f64() * 1e3)
}

fn headline(report: &Report) -> String {
    match report.disk_sync_ms {
        Some(sync) => format!("{}; this disk syncs a page in {sync:.3} ms", report.durability),
        None => report.durability.clone(),
    }
}

fn told(report: &Report) -> String {
    if let Some(worked) = &report.work {
        return told_of_work(worked);
    }
    if let Some(replayed) = &report.replay {
        return told_of_replay(replayed);
    }
    if let Some(operated) = &report.operate {
        return told_of_operating(operated);
    }
    if !report.publications.is_empty() {
        return report.publications.iter().map(told_of_publications).collect();
    }
    if let Some(per_second) = report.in_memory_per_second {
        let keys = limits::KEYS;
        return format!("\nIn memory, {keys} keys, one thread: {per_second:.0} decisions per second\n");
    }
    report.reading.as_ref().map_or(String::new(), |reading| {
        format!("\nReading all {} of them: {:.0} events per second\n", reading.events, reading.per_second)
    })
}

fn told_of_work(worked: &Worked) -> String {
    let Worked { items, enqueued_per_second, worked_per_second, start_p50_ms, start_p99_ms } = worked;
    let (batch, at_once) = (work::BATCH, work::AT_ONCE);
    format!(
        "Enqueueing {items} items, {batch} at a time: {enqueued_per_second:.0} items per second\n\
         Working them, at most {at_once} at once: {worked_per_second:.0} items per second\n\
         Starting one, from the call that enqueues it: p50 {start_p50_ms:.3} ms, p99 {start_p99_ms:.3} ms\n"
    )
}

fn told_of_replay(replayed: &Replayed) -> String {
    let Replayed { events, rows, appended_per_second, replayed_per_second } = replayed;
    let chunk = replay::CHUNK;
    format!(
        "Appending {events} events: {appended_per_second:.0} events per second\n\
         Replaying them into {rows} rows, {chunk} to a commit: {replayed_per_second:.0} events per second\n"
    )
}

fn told_of_publications(delivered: &Delivered) -> String {
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

fn told_of_operating(operated: &Operated) -> String {
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

fn measurement(outcome: &Outcome, transactions_per_commit: f64) -> Measurement {
    Measurement {
        callers: outcome.callers,
        per_second: outcome.per_second(),
        p50_ms: outcome.latency_ms(0.5),
        p99_ms: outcome.latency_ms(0.99),
        p999_ms: outcome.latency_ms(0.999),
        failed: outcome.failed,
        transactions_per_commit,
    }
}
