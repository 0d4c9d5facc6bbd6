//! Peers in Rust. Each is a workspace of its own, because sqlx and our rusqlite want different versions of the one library
//! that may be linked only once.

use super::{Program, source, target};
use anyhow::{Context, Result, ensure};
use std::process::Command;

/// Builds a peer if need be.
pub fn program(name: &str) -> Result<Program> {
    let folder = target(name);
    let path = folder.join("release").join(name);
    if !path.exists() {
        eprintln!("building {name} into bench/target/peers/{name}, which takes a few minutes ...");
    }
    let status = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--release", "--locked", "--quiet", "--manifest-path"])
        .arg(source(name).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        .status()
        .context("starting cargo")?;
    ensure!(status.success(), "`cargo build` failed ({status})");
    Ok(Program { path, arguments: Vec::new() })
}
