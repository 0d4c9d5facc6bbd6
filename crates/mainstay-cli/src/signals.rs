//! When the process is told to stop.

use crate::{Error, Result};
use std::future::Future;
use std::io;
use std::time::Duration;

/// Some programs that stop others send the signal twice in a row; a person takes longer to lose patience.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Ready when the process is told to stop, which it says. Told again, the process ends at once.
pub(crate) fn told_to_stop(say: impl FnOnce(&str)) -> Result<impl Future<Output = ()>> {
    let first = signal().map_err(|source| Error::Io { what: "signals".to_owned(), source })?;
    Ok(async {
        first.await;
        say("Stopping; once more to end at once.");
        tokio::spawn(async {
            tokio::time::sleep(SAME_SIGNAL).await;
            if let Ok(second) = signal() {
                second.await;
                std::process::exit(1);
            }
        });
    })
}

/// Ready at the next SIGTERM or SIGINT from now on.
#[cfg(unix)]
fn signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Ready at the next Ctrl-C from now on.
#[cfg(not(unix))]
fn signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}
