//! Why the demo ends early.

use std::io;

/// The result of a part of the demo.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the demo ends early, or does not show what it claims.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] mainstay::store::Error),
    /// The log failed.
    #[error(transparent)]
    Events(#[from] mainstay::events::Error),
    /// Work failed.
    #[error(transparent)]
    Work(#[from] mainstay::work::Error),
    /// A limit or circuit failed.
    #[error(transparent)]
    Guards(#[from] mainstay::guards::Error),
    /// A command, projection or delivery failed.
    #[error(transparent)]
    Flows(#[from] mainstay::flows::Error),
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
