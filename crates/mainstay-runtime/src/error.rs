//! One error for all services.

use mainstay_core::codes::ErrorCode;
use std::convert::Infallible;

/// An error of any service, or one of the program's own.
///
/// `?` converts the errors of all services. A program that has errors of its own names their type and converts from it:
///
/// ```
/// #[derive(Debug, thiserror::Error)]
/// #[error("the warehouse is closed")]
/// struct Closed;
///
/// impl From<Closed> for mainstay_runtime::Error<Closed> {
///     fn from(error: Closed) -> Self {
///         Self::Own(error)
///     }
/// }
/// ```
#[derive(Debug, thiserror::Error)]
pub enum Error<Own: std::error::Error + 'static = Infallible> {
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] mainstay_store::Error),
    /// An error of the event log.
    #[error(transparent)]
    Events(#[from] mainstay_events::Error),
    /// An error of a limit or circuit.
    #[error(transparent)]
    Guards(#[from] mainstay_guards::Error),
    /// An error of work.
    #[error(transparent)]
    Work(#[from] mainstay_work::Error),
    /// An error of commands, projections or delivery.
    #[error(transparent)]
    Flows(#[from] mainstay_flows::Error),
    /// An error of the program.
    #[error(transparent)]
    Own(Own),
}

impl<Own: std::error::Error> Error<Own> {
    /// The entry in the register of codes, of errors of a service.
    pub fn entry(&self) -> Option<&'static ErrorCode> {
        match self {
            Self::Store(error) => Some(error.entry()),
            Self::Events(error) => Some(error.entry()),
            Self::Guards(error) => Some(error.entry()),
            Self::Work(error) => Some(error.entry()),
            Self::Flows(error) => Some(error.entry()),
            Self::Own(_) => None,
        }
    }
}
