//! A store that is kept busy.

use super::fill::noted;
use super::{AT_ONCE, lost};
use crate::Result;
use mainstay::events::{Append, Log};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Callers that append one event after another.
pub(super) struct Writing {
    is_over: Arc<AtomicBool>,
    callers: tokio::task::JoinSet<mainstay::events::Result<u64>>,
    began: Instant,
}

impl Writing {
    pub(super) fn start(log: &Log) -> Self {
        let (is_over, mut callers) = (Arc::new(AtomicBool::new(false)), tokio::task::JoinSet::new());
        for _ in 0..AT_ONCE {
            let (log, is_over) = (log.clone(), is_over.clone());
            callers.spawn(async move {
                let mut appended = 0;
                while !is_over.load(Ordering::Relaxed) {
                    log.append(Append::new(noted(0..1)?)).await?;
                    appended += 1;
                }
                Ok(appended)
            });
        }
        Self { is_over, callers, began: Instant::now() }
    }

    pub(super) async fn stop(mut self) -> Result<f64> {
        self.is_over.store(true, Ordering::Relaxed);
        let (took, mut appended) = (self.began.elapsed(), 0);
        while let Some(caller) = self.callers.join_next().await {
            appended += caller.map_err(lost)??;
        }
        Ok(appended as f64 / took.as_secs_f64())
    }
}
