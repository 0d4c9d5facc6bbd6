//! Compiles the C part, once per version of its source.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use anyhow::{Context, anyhow, bail};

const SOURCE: &str = include_str!("shim.c");

/// Fortified headers would declare the replaced functions as inline ones.
const FLAGS: [&str; 8] = ["-shared", "-fPIC", "-O2", "-U_FORTIFY_SOURCE", "-pthread", "-x", "c", "-"];

/// The library to preload.
pub(super) fn library() -> anyhow::Result<&'static Path> {
    static LIBRARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| compile().map_err(|error| format!("{error:#}")));
    library.as_deref().map_err(|error| anyhow!("{error}"))
}

fn compile() -> anyhow::Result<PathBuf> {
    let library = place()?;
    if library.exists() {
        return Ok(library);
    }
    // Test binaries may do this at the same time; each renames a whole library into place.
    let draft = library.with_extension(format!("{}.draft", std::process::id()));
    run_compiler(&draft)?;
    std::fs::rename(&draft, &library).with_context(|| format!("cannot create {}", library.display()))?;
    Ok(library)
}

/// Beside the test binary: there it is found by the next run, goes with the target folder, and is nobody else's to
/// write.
fn place() -> anyhow::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (SOURCE, FLAGS).hash(&mut hasher);
    let binary = std::env::current_exe().context("cannot tell where the test binary lies")?;
    Ok(binary.with_file_name(format!("mainstay-disk-{:016x}.so", hasher.finish())))
}

fn run_compiler(output: &Path) -> anyhow::Result<()> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(&compiler);
    command.arg("-o").arg(output).args(FLAGS).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| {
        format!("the disk shim needs a C compiler and `{compiler}` does not start; install gcc or clang, or set CC")
    })?;
    if let Some(mut source) = child.stdin.take() {
        // A compiler that stops reading says why on its error output.
        let _ = std::io::Write::write_all(&mut source, SOURCE.as_bytes());
    }
    let outcome = child.wait_with_output().with_context(|| format!("`{compiler}` does not run"))?;
    if !outcome.status.success() {
        bail!("`{compiler}` cannot compile the disk shim:\n{}", String::from_utf8_lossy(&outcome.stderr));
    }
    Ok(())
}
