//! Small C libraries that are preloaded into children: compiled when first needed, once per version of their source.

use std::{
    ffi::OsString,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

/// Fortified headers would declare the replaced functions as inline ones.
const FLAGS: [&str; 8] = ["-shared", "-fPIC", "-O2", "-U_FORTIFY_SOURCE", "-pthread", "-x", "c", "-"];

/// The library to preload.
pub(crate) fn library(name: &str, source: &str) -> anyhow::Result<PathBuf> {
    let library = place(name, source)?;
    if library.exists() {
        return Ok(library);
    }
    // Tests may do this at the same time; each renames a whole library into place.
    let thread = std::thread::current().id();
    let draft = library.with_extension(format!("{}.{thread:?}.draft", std::process::id()));
    run_compiler(name, source, &draft)?;
    std::fs::rename(&draft, &library).with_context(|| format!("cannot create {}", library.display()))?;
    Ok(library)
}

/// Beside the test binary: there it is found by the next run, goes with the target folder, and is nobody else's to
/// write.
fn place(name: &str, source: &str) -> anyhow::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (source, FLAGS).hash(&mut hasher);
    let binary = std::env::current_exe().context("cannot tell where the test binary lies")?;
    Ok(binary.with_file_name(format!("mainstay-{name}-{:016x}.so", hasher.finish())))
}

fn run_compiler(name: &str, source: &str, output: &Path) -> anyhow::Result<()> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(&compiler);
    command.arg("-o").arg(output).args(FLAGS).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| {
        format!("the {name} shim needs a C compiler and `{compiler}` does not start; install gcc or clang, or set CC")
    })?;
    if let Some(mut input) = child.stdin.take() {
        // A compiler that stops reading says why on its error output.
        let _ = std::io::Write::write_all(&mut input, source.as_bytes());
    }
    let outcome = child.wait_with_output().with_context(|| format!("`{compiler}` does not run"))?;
    if !outcome.status.success() {
        bail!("`{compiler}` cannot compile the {name} shim:\n{}", String::from_utf8_lossy(&outcome.stderr));
    }
    Ok(())
}

/// What `LD_PRELOAD` is to be: ours first, then what is preloaded already.
pub(crate) fn preload(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD") {
        list.push(":");
        list.push(others);
    }
    list
}
