//! A process per server that outlives the tests and removes the server once nobody uses it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

const SCRIPT: &str = include_str!("watchdog.sh");

/// Long enough to bridge the link steps between two test binaries of one `cargo test`.
const LINGER_SECONDS: u32 = 20;

/// How long the shared server stays without users.
pub(super) fn linger() -> u32 {
    let set = std::env::var("MAINSTAY_TEST_LINGER").ok();
    set.and_then(|seconds| seconds.parse().ok()).unwrap_or(LINGER_SECONDS)
}

/// Watches over a server folder whose `users` lock this process already holds.
pub(super) fn spawn(folder: &Path, linger_seconds: u32) -> Result<()> {
    // Started by a shell that ends at once, so that the watchdog is nobody's child and never a zombie.
    let mut command = Command::new("sh");
    command.args(["-c", "sh -c \"$0\" mainstay-watchdog \"$@\" &", SCRIPT]);
    command.arg(folder).arg(linger_seconds.to_string());
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let status = command.status().context("starting the watchdog of the test PostgreSQL")?;
    anyhow::ensure!(status.success(), "the watchdog of the test PostgreSQL did not start: {status}");
    Ok(())
}
