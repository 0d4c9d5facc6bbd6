//! Why a measurement ends early.

/// The result of a measurement.
pub type Result<T> = std::result::Result<T, Error>;

/// Why it ends early.
pub type Error = mainstay::Error<Failure>;

/// A failure that is not one of a service.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
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

impl From<Failure> for mainstay::Error<Failure> {
    fn from(failure: Failure) -> Self {
        Self::Own(failure)
    }
}
