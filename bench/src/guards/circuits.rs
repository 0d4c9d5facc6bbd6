//! What a closed circuit costs: the question before a call, and the word that it went well.

use super::threads::side_by_side;
use crate::rounds::{median, ratios, version};
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use failsafe::failure_policy::consecutive_failures;
use failsafe::{Config, backoff};
use futures_util::FutureExt;
use mainstay_guards::circuits::{COMPONENT, Circuit, Circuits, Ended, Settings};
use mainstay_store::{Options, Store};
use recloser::Recloser;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Calls of a thread in a turn.
const CALLS: u64 = 10_000_000;
const ROUNDS: usize = 5;
const THREADS: [usize; 2] = [1, 2];
/// Failures one after another that open a circuit, where it can be told.
const FAILURES: u32 = 5;
const OPEN: Duration = Duration::from_secs(30);

/// Makes all calls of a thread; how many were let through.
type Calls = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Prints the table.
pub async fn run() -> Result<()> {
    let folder = tempfile::tempdir_in(".")?;
    let (store, circuits) = open(folder.path()).await?;
    println!(
        "\nCircuits, closed: {CALLS} calls a thread that do nothing and go well; the median of {ROUNDS} rounds in turns\n\n\
         - failsafe {}: {FAILURES} failures in a row open it\n- recloser {}: with its defaults\n\
         - mainstay: {FAILURES} failures in a row open it; {}\n",
        version("failsafe"),
        version("recloser"),
        store.durability().await?
    );
    let settings = Settings::consecutive(FAILURES, OPEN.as_millis() as u64, 1)?;
    let entries = [
        ("failsafe", failsafe()),
        ("recloser", recloser()),
        ("mainstay", mainstay(circuits.circuit_with("closed", settings)?)),
        ("mainstay, awaited", awaited(circuits.circuit_with("closed", settings)?)),
    ];
    let names: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
    let mut table = Table::new(["what", "threads", "ns a call", "ratio"]);
    for threads in THREADS {
        let mut rates = entries.each_ref().map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for ((name, calls), rates) in entries.iter().zip(&mut rates) {
                rates.push(turn(calls, threads).context(*name)?);
            }
        }
        for ((name, rates), ratio) in names.iter().zip(&rates).zip(ratios(&names, &rates)) {
            let ns = 1e9 / median(rates.clone(), |rate| *rate);
            table.add([(*name).to_owned(), threads.to_string(), format!("{ns:.2}"), ratio]);
        }
    }
    print!("{}", table.render());
    drop(entries);
    store.close().await;
    Ok(())
}

/// Our circuits, in a new store.
pub(super) async fn open(folder: &Path) -> Result<(Store, Circuits)> {
    let url = format!("sqlite:{}", folder.join("circuits.db").display());
    let store = Options::new(url).component(COMPONENT).open().await?;
    let circuits = Circuits::open(&store).await?;
    Ok((store, circuits))
}

fn failsafe() -> Calls {
    let policy = consecutive_failures(FAILURES, backoff::constant(OPEN));
    let circuit = Config::new().failure_policy(policy).build();
    calls(move || {
        let is_permitted = circuit.is_call_permitted();
        circuit.on_success();
        is_permitted
    })
}

fn recloser() -> Calls {
    let circuit = Recloser::custom().build();
    calls(move || circuit.call(|| black_box(Ok::<(), ()>(()))).is_ok())
}

fn mainstay(circuit: Circuit) -> Calls {
    calls(move || {
        let permit = circuit.admit_at_once();
        permit.map(|permit| circuit.record(permit, Ended::Success)).is_some()
    })
}

/// The question as a future, which any state of the circuit answers: one future for all calls, as they are made from a task.
fn awaited(circuit: Circuit) -> Calls {
    Arc::new(move || {
        let calls = async {
            let mut through = 0;
            for _ in 0..CALLS {
                let circuit = black_box(&circuit);
                if let Ok(permit) = circuit.admit().await {
                    circuit.record(permit, Ended::Success);
                    through += 1;
                }
            }
            through
        };
        calls.now_or_never().unwrap_or_default()
    })
}

/// The loop is compiled for each contender, so that nobody is called through a pointer.
fn calls(call: impl Fn() -> bool + Send + Sync + 'static) -> Calls {
    Arc::new(move || (0..CALLS).map(|_| u64::from(black_box(&call)())).sum())
}

/// Calls per second of one thread.
fn turn(calls: &Calls, threads: usize) -> Result<f64> {
    let through = AtomicU64::new(0);
    let took = side_by_side(threads, &|_| {
        through.fetch_add(calls(), Ordering::Relaxed);
    });
    let through = through.into_inner();
    ensure!(through == threads as u64 * CALLS, "{through} calls got through a closed circuit");
    Ok(CALLS as f64 / took.as_secs_f64())
}
