//! A connection of the pool, on loan to one transaction.

use super::connect::Server;
use deadpool_postgres::Object;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Given back when the last hold on it ends, or closed then if it was spoiled.
pub(super) struct Pooled {
    object: Option<Object>,
    server: Arc<Server>,
    is_spoiled: AtomicBool,
}

impl Pooled {
    pub(super) fn new(object: Object, server: Arc<Server>) -> Self {
        Self { object: Some(object), server, is_spoiled: AtomicBool::new(false) }
    }

    /// Asks a statement that runs on it to stop.
    pub(super) async fn cancel(&self) {
        self.server.cancel(self.cancel_token()).await;
    }

    /// Keeps the connection from being given back: the server rolls back by itself when it is closed.
    pub(super) fn spoil(&self) {
        self.is_spoiled.store(true, Ordering::Relaxed);
    }
}

impl Deref for Pooled {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.object.as_ref().expect("it is taken only when this is dropped")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if *self.is_spoiled.get_mut()
            && let Some(object) = self.object.take()
        {
            drop(Object::take(object));
        }
    }
}
