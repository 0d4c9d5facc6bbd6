//! How a server is told to stop, and how everyone inside hears of it.

use std::sync::Arc;
use tokio::sync::watch;

/// The wish that a server stops. Clones are the same wish; it cannot be taken back.
///
/// A response that streams for ever selects on [`requested`](Self::requested) and ends when it comes; every other
/// response is simply finished.
#[derive(Debug, Clone)]
pub struct Shutdown(Arc<watch::Sender<bool>>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Shutdown {
    /// Asks everyone to stop.
    pub fn request(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was asked for.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is asked for.
    pub async fn requested(&self) {
        // It cannot fail: the sender is ourselves.
        let _ = self.0.subscribe().wait_for(|is_requested| *is_requested).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_who_wait_and_those_who_come_late_hear_of_it() {
        let shutdown = Shutdown::default();
        let waiting = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.requested().await }
        });
        assert!(!shutdown.is_requested());
        shutdown.request();
        waiting.await.unwrap();
        shutdown.requested().await;
    }
}
