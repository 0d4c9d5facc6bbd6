//! References from registered functions to the service that they belong to.

use std::sync::{Arc, Weak};

/// A weak reference to a service. Functions hold it, because the service itself holds the work that they are registered with.
pub struct ServiceRef<T> {
    service: Weak<T>,
    name: &'static str,
}

impl<T> Clone for ServiceRef<T> {
    fn clone(&self) -> Self {
        Self { service: self.service.clone(), name: self.name }
    }
}

impl<T> ServiceRef<T> {
    /// A reference to the service of this name.
    pub fn new(name: &'static str, service: &Arc<T>) -> Self {
        Self { service: Arc::downgrade(service), name }
    }

    /// The service. A closed one is unavailable, which is retryable: another node has it.
    pub fn get(&self) -> mainstay_store::Result<Arc<T>> {
        let closed =
            || mainstay_store::Error::Unavailable(format!("service {} is closed on this node", self.name));
        self.service.upgrade().ok_or_else(closed)
    }
}
