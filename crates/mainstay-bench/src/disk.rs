//! How long the disk itself takes to make a page durable: the floor under every commit.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

const SYNCS: usize = 200;
const PAGE: [u8; 4_096] = [7; 4_096];

/// The median time of appending a page and syncing it in `folder`.
pub fn sync_time(folder: &Path) -> std::io::Result<Duration> {
    let mut file = tempfile(folder)?;
    let mut times: Vec<Duration> = (0..SYNCS)
        .map(|_| {
            file.0.write_all(&PAGE)?;
            let began = Instant::now();
            file.0.sync_data()?;
            Ok(began.elapsed())
        })
        .collect::<std::io::Result<_>>()?;
    times.sort_unstable();
    Ok(times[SYNCS / 2])
}

/// A file that is gone when dropped.
struct Temporary(File, std::path::PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.1));
    }
}

fn tempfile(folder: &Path) -> std::io::Result<Temporary> {
    let path = folder.join(format!("mainstay-bench-{}.tmp", std::process::id()));
    Ok(Temporary(mainstay::store::files::create_new(&path)?, path))
}
