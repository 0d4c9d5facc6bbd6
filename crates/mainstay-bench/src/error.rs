//! Why a measurement ends early.

/// The result of a measurement.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a measurement ends early.
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
    /// The server that is measured does not answer.
    #[error("{url}: {reason}")]
    Unreachable {
        /// The server.
        url: String,
        /// What happened.
        reason: String,
    },
    /// The measurement cannot go on.
    #[error("{0}")]
    Broken(String),
}
