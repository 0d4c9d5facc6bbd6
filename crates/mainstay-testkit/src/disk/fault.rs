//! Which writes or syncs fail, and how.

use std::fmt;

/// A failure of the disk at the k-th write or sync to watched files, counted from 1.
///
/// A write that fails has written nothing. The acknowledgements never fail and are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: &'static str,
    first: u64,
    times: Times,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Some(u64),
    ForEver,
}

impl Fault {
    /// The `first`-th write fails with EIO.
    pub fn eio(first: u64) -> Fault {
        Fault::new("eio", first)
    }

    /// The `first`-th write finds the disk full.
    pub fn enospc(first: u64) -> Fault {
        Fault::new("enospc", first)
    }

    /// The `first`-th write stores half of its bytes and says so; the one after it finds the disk full.
    pub fn short(first: u64) -> Fault {
        Fault::new("short", first)
    }

    /// The `first`-th fsync or fdatasync, of a file or of a folder, fails with EIO and syncs nothing.
    pub fn eio_sync(first: u64) -> Fault {
        Fault::new("eio-sync", first)
    }

    /// The next `times` fail, instead of one alone.
    pub fn times(mut self, times: u64) -> Fault {
        self.times = Times::Some(times);
        self
    }

    /// All that follow fail too.
    pub fn for_ever(mut self) -> Fault {
        self.times = Times::ForEver;
        self
    }

    fn new(kind: &'static str, first: u64) -> Fault {
        assert!(first > 0, "writes and syncs are counted from 1");
        Fault { kind, first, times: Times::Some(1) }
    }
}

/// As the shim reads it: `enospc@7`, `enospc@7+3`, `enospc@7+`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.kind, self.first)?;
        match self.times {
            Times::Some(1) => Ok(()),
            Times::Some(times) => write!(f, "+{times}"),
            Times::ForEver => f.write_str("+"),
        }
    }
}
