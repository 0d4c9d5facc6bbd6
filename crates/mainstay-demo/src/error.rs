//! Why the demo ends early.

use std::io;

/// The result of a part of the demo.
pub type Result<T> = std::result::Result<T, Error>;

/// Why it ends early.
pub type Error = mainstay::Error<Failure>;

/// A failure that is not one of a service, or a claim that does not hold.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server cannot start.
    #[error(transparent)]
    Server(#[from] mainstay_server::Error),
    /// A claim does not hold.
    #[error("the demo did not show what it claims: {0}")]
    Unproven(String),
    /// A file, stream or process of the demo failed.
    #[error("{what}: {source}")]
    Io {
        /// The file, stream or process.
        what: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// A part of the demo cannot go on.
    #[error("{0}")]
    Broken(String),
}

impl From<Failure> for mainstay::Error<Failure> {
    fn from(failure: Failure) -> Self {
        Self::Own(failure)
    }
}
