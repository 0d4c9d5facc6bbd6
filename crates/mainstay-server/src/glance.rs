//! Looks at most once at a time, and answers in time whatever the load.
//!
//! A probe that waits for a busy database is as bad as one that fails. So whoever asks waits a moment for a fresh look, and
//! when that takes longer, the last one will do. A look that takes too long says that the store does not answer.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a look may take.
const BOUND: Duration = Duration::from_secs(1);
/// How long an old look is better than none: whoever looks at figures comes more often.
pub(crate) const STALE: Duration = Duration::from_secs(60);

/// What was seen, or the code of why nothing was.
pub(crate) type Look<T> = Result<Arc<T>, &'static str>;

/// Keeps the last look.
pub(crate) struct Glance<T>(Arc<Inner<T>>);

struct Inner<T> {
    /// What was seen so recently is not looked at again, however many ask.
    fresh: Duration,
    /// How long somebody who asks waits for a fresh look when there is an older one.
    patience: Duration,
    is_looking: Mutex<bool>,
    last: watch::Sender<Option<(Instant, Look<T>)>>,
}

impl<T: Send + Sync + 'static> Glance<T> {
    pub(crate) fn new(fresh: Duration, patience: Duration) -> Self {
        let (is_looking, last) = (Mutex::default(), watch::Sender::new(None));
        Self(Arc::new(Inner { fresh, patience, is_looking, last }))
    }

    /// How it is, as `look` sees it, or saw it a moment ago.
    pub(crate) async fn now<F>(&self, look: F) -> Look<T>
    where
        F: Future<Output = Result<T, &'static str>> + Send + 'static,
    {
        let mut last = self.0.last.subscribe();
        if let Some(look) = self.last_within(self.0.fresh) {
            return look;
        }
        self.begin(look);
        let patience = if self.last_within(STALE).is_some() { self.0.patience } else { BOUND };
        // Whether it came in time does not matter: what there is then is the answer.
        drop(tokio::time::timeout(patience, last.changed()).await);
        self.last_within(STALE).unwrap_or(Err("STORE_BUSY"))
    }

    fn last_within(&self, age: Duration) -> Option<Look<T>> {
        let last = self.0.last.borrow();
        last.as_ref().filter(|(at, _)| at.elapsed() < age).map(|(_, look)| look.clone())
    }

    /// Looks, unless somebody does.
    pub(crate) fn begin<F>(&self, look: F)
    where
        F: Future<Output = Result<T, &'static str>> + Send + 'static,
    {
        let mut is_looking = self.0.is_looking.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *is_looking, true) {
            return;
        }
        let inner = self.0.clone();
        tokio::spawn(async move {
            let leaving = Leaving(inner);
            let look = bounded(look).await.map(Arc::new);
            leaving.0.last.send_replace(Some((Instant::now(), look)));
        });
    }
}

/// What a look sees, if it does not take too long.
pub(crate) async fn bounded<T>(
    look: impl Future<Output = Result<T, &'static str>>,
) -> Result<T, &'static str> {
    tokio::time::timeout(BOUND, look).await.unwrap_or(Err("STORE_BUSY"))
}

/// Whatever ends a look, the next one may begin.
struct Leaving<T>(Arc<Inner<T>>);

impl<T> Drop for Leaving<T> {
    fn drop(&mut self) {
        *self.0.is_looking.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[tokio::test]
    async fn with_a_look_at_hand_nobody_waits_for_a_store_that_does_not_answer() {
        const SOON: Duration = Duration::from_millis(1);
        let glance = Glance::new(SOON, SOON);
        assert_eq!(glance.now(async { Ok(7) }).await.map(|seen| *seen), Ok(7));
        for _ in 0..3 {
            tokio::time::sleep(SOON * 2).await;
            // Who waited for the look would hear how it ends.
            assert_eq!(glance.now(pending()).await.map(|seen| *seen), Ok(7));
        }
        tokio::time::sleep(BOUND).await;
        let mut last = glance.0.last.subscribe();
        drop(last.wait_for(|last| last.as_ref().is_some_and(|(_, look)| look.is_err())).await);
        assert_eq!(glance.now(pending()).await, Err("STORE_BUSY"), "in the end that is what is told");
    }
}
