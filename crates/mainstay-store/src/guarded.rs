//! Runs an author's closure so that it can neither stall nor break the store.

use crate::{Error, Result};
use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Runs the future that `start` makes. A panic becomes an error; so does waiting for anything while
/// `is_store_busy` says that no operation of the store is outstanding, since nobody else is allowed to wait here.
pub(crate) async fn guarded<T, Fut>(
    start: impl FnOnce() -> Fut,
    is_store_busy: impl Fn() -> bool,
) -> Result<T>
where
    Fut: Future<Output = Result<T>>,
{
    // AssertUnwindSafe: after a panic the future is dropped and its transaction rolled back, so that nobody
    // sees what the panic left half done.
    let future = catch_unwind(AssertUnwindSafe(start)).map_err(|panic| panicked(&*panic))?;
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(Poll::Ready(result)) => Poll::Ready(result),
        Ok(Poll::Pending) if is_store_busy() => Poll::Pending,
        Ok(Poll::Pending) => Poll::Ready(Err(Error::ForeignAwait)),
        Err(panic) => Poll::Ready(Err(panicked(&*panic))),
    })
    .await
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
    Error::Panicked(message.unwrap_or_else(|| "no message".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn waiting() -> Result<()> {
        tokio::task::yield_now().await;
        Ok(())
    }

    #[tokio::test]
    async fn lets_pass_what_is_ready_and_refuses_what_waits_for_others() {
        assert_eq!(guarded(|| async { Ok(1) }, || false).await.unwrap(), 1);
        let waits = guarded(waiting, || false).await;
        assert_eq!(waits.unwrap_err().code(), "STORE_FOREIGN_AWAIT");
        let busy = guarded(waiting, || true).await;
        assert!(busy.is_ok());
    }

    #[tokio::test]
    async fn a_panic_is_an_error_wherever_it_happens() {
        let late = guarded(|| async { panic!("late {}", 1) }, || false).await as Result<()>;
        assert_eq!(late.unwrap_err().to_string(), "the transaction panicked: late 1");
        fn early() -> std::future::Ready<Result<()>> {
            panic!("early")
        }
        assert_eq!(guarded(early, || false).await.unwrap_err().code(), "STORE_CLOSURE_PANICKED");
    }
}
