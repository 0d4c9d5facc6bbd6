//! Conversions between the store's error and the errors of crates above it.

/// Lets an error pass through a transaction: [`Error::Application`](crate::Error::Application) carries it out and back again.
///
/// The error has a variant `Store(Arc<mainstay_store::Error>)` and a method `entry`. Errors of crates between it and the store are
/// listed after it; each has a `From` into it. `code` and `is_retryable` come with the conversions.
///
/// ```
/// # use std::sync::Arc;
/// # mainstay_core::codes! { pub static CODES: SEATS_TAKEN "SEATS_TAKEN" 409 false "" ""; }
/// #[derive(Debug, thiserror::Error)]
/// enum Error {
///     #[error(transparent)]
///     Store(Arc<mainstay_store::Error>),
///     #[error("the seat is taken")]
///     Taken,
/// }
///
/// impl Error {
///     fn entry(&self) -> &'static mainstay_core::codes::ErrorCode {
///         match self {
///             Self::Store(error) => error.entry(),
///             Self::Taken => &SEATS_TAKEN,
///         }
///     }
/// }
///
/// mainstay_store::error_bridge!(Error);
///
/// let carried = mainstay_store::Error::from(Error::Taken);
/// assert_eq!(Error::from(carried).code(), "SEATS_TAKEN");
/// ```
#[macro_export]
macro_rules! error_bridge {
    ($error:ident $(, $lower:ty)*) => {
        impl $error {
            /// The stable code.
            pub fn code(&self) -> &'static str {
                self.entry().code
            }

            /// Whether the same call may succeed later without a change.
            pub fn is_retryable(&self) -> bool {
                match self {
                    Self::Store(error) => error.is_retryable(),
                    other => other.entry().retryable,
                }
            }
        }

        impl From<$crate::Error> for $error {
            fn from(error: $crate::Error) -> Self {
                let $crate::Error::Application(reason) = error else {
                    return Self::Store(::std::sync::Arc::new(error));
                };
                let reason = match reason.downcast::<Self>() {
                    Ok(own) => return *own,
                    Err(reason) => reason,
                };
                $(let reason = match reason.downcast::<$lower>() {
                    Ok(lower) => return Self::from(*lower),
                    Err(reason) => reason,
                };)*
                Self::Store(::std::sync::Arc::new($crate::Error::Application(reason)))
            }
        }

        impl From<$error> for $crate::Error {
            fn from(error: $error) -> Self {
                match error {
                    $error::Store(inner) => ::std::sync::Arc::try_unwrap(inner)
                        .unwrap_or_else(|shared| Self::application($error::Store(shared))),
                    other => Self::application(other),
                }
            }
        }
    };
}
