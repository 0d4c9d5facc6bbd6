//! How many of those who call at once get through a circuit that is half open, before the first of them has an answer.

use super::circuits::open;
use crate::rounds::version;
use crate::table::Table;
use anyhow::Result;
use failsafe::failure_policy::consecutive_failures;
use failsafe::{CircuitBreaker, Config, backoff};
use mainstay_core::circuit::Gate;
use mainstay_core::failure::Failure;
use mainstay_guards::circuits::{Ended, Settings};
use recloser::Recloser;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

const CALLERS: usize = 50;
/// How long circuits stay open.
const OPEN: Duration = Duration::from_millis(100);

/// Prints the table.
pub async fn run() -> Result<()> {
    println!(
        "\nCircuits, half open: {CALLERS} callers at once\n\n- failsafe {}, recloser {}\n",
        version("failsafe"),
        version("recloser")
    );
    let mut table = Table::new(["what", "callers", "let through"]);
    for (who, through) in
        [("failsafe", failsafe()), ("recloser", recloser()), ("mainstay", mainstay().await?)]
    {
        table.add([who.to_owned(), CALLERS.to_string(), through.to_string()]);
    }
    print!("{}", table.render());
    Ok(())
}

fn failsafe() -> usize {
    let policy = consecutive_failures(1, backoff::constant(OPEN));
    let circuit = Config::new().failure_policy(policy).build();
    while circuit.call(|| Err::<(), ()>(())).is_err_and(|error| matches!(error, failsafe::Error::Inner(()))) {
    }
    half_open(&|call| {
        let _ = circuit.call(|| {
            call();
            Ok::<_, ()>(())
        });
    })
}

fn recloser() -> usize {
    let circuit = Recloser::custom().closed_len(1).half_open_len(1).open_wait(OPEN).build();
    while circuit.call(|| Err::<(), ()>(())).is_err_and(|error| matches!(error, recloser::Error::Inner(()))) {
    }
    half_open(&|call| {
        let _ = circuit.call(|| {
            call();
            Ok::<_, ()>(())
        });
    })
}

/// How many threads get through a circuit that has just opened, when it has been open for long enough.
fn half_open(attempt: &(dyn Fn(&dyn Fn()) + Sync)) -> usize {
    std::thread::sleep(OPEN + OPEN / 2);
    // Nobody's call ends before all have been answered.
    let (through, all_know) = (AtomicUsize::new(0), Barrier::new(CALLERS));
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let is_through = std::cell::Cell::new(false);
                attempt(&|| {
                    is_through.set(true);
                    through.fetch_add(1, Ordering::Relaxed);
                    all_know.wait();
                });
                if !is_through.get() {
                    all_know.wait();
                }
            });
        }
    });
    through.into_inner()
}

async fn mainstay() -> Result<usize> {
    let folder = tempfile::tempdir_in(".")?;
    let (store, circuits) = open(folder.path()).await?;
    let circuit =
        circuits.circuit_with("half open", Settings::consecutive(1, OPEN.as_millis() as u64, 1)?)?;
    let permit = circuit.admit().await?;
    circuit.record(permit, Ended::Failed(&Failure::retryable("busy")));
    circuits.flush().await?;
    while circuit.gate() != Gate::OneProbe {
        tokio::time::sleep(OPEN / 10).await;
    }
    let all_know = Arc::new(tokio::sync::Barrier::new(CALLERS));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (circuit, all_know) = (circuit.clone(), all_know.clone());
            tokio::spawn(async move {
                let admitted = circuit.admit().await;
                all_know.wait().await;
                admitted.map(|permit| circuit.record(permit, Ended::Success)).is_ok()
            })
        })
        .collect();
    let mut through = 0;
    for caller in callers {
        through += usize::from(caller.await?);
    }
    drop((circuit, circuits));
    store.close().await;
    Ok(through)
}
