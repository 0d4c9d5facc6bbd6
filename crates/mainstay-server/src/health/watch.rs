//! Looks at most once at a time, and answers in time whatever the load.
//!
//! A probe that waits for a busy database is as bad as one that fails. So whoever asks waits a moment for a fresh look, and
//! when that takes longer, the last one will do. A look that takes too long says that the store does not answer.

use super::look::{Seen, look};
use crate::app::App;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What was seen so recently is not looked at again, however many ask.
const FRESH: Duration = Duration::from_millis(200);
/// How long somebody who asks waits for a fresh look when there is an older one.
const PATIENCE: Duration = Duration::from_millis(40);
/// How long a look may take.
const BOUND: Duration = Duration::from_secs(1);
/// How long an old look is better than none: probes come more often.
const STALE: Duration = Duration::from_secs(60);

/// What was seen, or the code of why nothing was.
pub(crate) type Look = Result<Arc<Seen>, &'static str>;

/// Keeps the last look.
#[derive(Clone)]
pub(crate) struct Watch(Arc<Inner>);

struct Inner {
    is_looking: Mutex<bool>,
    last: watch::Sender<Option<(Instant, Look)>>,
}

impl Default for Watch {
    fn default() -> Self {
        Self(Arc::new(Inner { is_looking: Mutex::default(), last: watch::Sender::new(None) }))
    }
}

impl Watch {
    /// How it is.
    pub(crate) async fn now(&self, app: &App) -> Look {
        let mut last = self.0.last.subscribe();
        if let Some(look) = self.last_within(FRESH) {
            return look;
        }
        self.begin(app);
        let patience = if self.last_within(STALE).is_some() { PATIENCE } else { BOUND };
        // Whether it came in time does not matter: what there is then is the answer.
        drop(tokio::time::timeout(patience, last.changed()).await);
        self.last_within(STALE).unwrap_or(Err("STORE_BUSY"))
    }

    fn last_within(&self, age: Duration) -> Option<Look> {
        let last = self.0.last.borrow();
        last.as_ref().filter(|(at, _)| at.elapsed() < age).map(|(_, look)| look.clone())
    }

    /// Looks, unless somebody does.
    pub(crate) fn begin(&self, app: &App) {
        let mut is_looking = self.0.is_looking.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *is_looking, true) {
            return;
        }
        let (watch, app) = (self.clone(), app.clone());
        tokio::spawn(async move {
            let _leaving = Leaving(watch.0.clone());
            let look = tokio::time::timeout(BOUND, look(&app)).await;
            let look = look.unwrap_or(Err("STORE_BUSY")).map(Arc::new);
            watch.0.last.send_replace(Some((Instant::now(), look)));
        });
    }
}

/// Whatever ends a look, the next one may begin.
struct Leaving(Arc<Inner>);

impl Drop for Leaving {
    fn drop(&mut self) {
        *self.0.is_looking.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}
