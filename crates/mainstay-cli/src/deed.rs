//! What a verb changes: a call of the server that holds the store, or the same done in the store itself.
//!
//! Whoever can open a store needs no server and no token, and is written down all the same: as the server would have done it,
//! in the transaction of the action, under the name that the operating system knows them by.

use crate::Result;
use crate::remote::{Remote, segment};
use mainstay::store::Store;
use mainstay_server::audit::{Audit, Entry};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::future::Future;

/// Something that a verb changes.
pub(crate) struct Deed {
    /// The method and the path of the route, as the audit calls it.
    action: &'static str,
    path: String,
    body: Option<Value>,
}

impl Deed {
    /// What the route of `action` does, as in `POST /admin/tokens`; `parameters` stand in its path in this order.
    pub(crate) fn new(action: &'static str, parameters: &[&str]) -> Self {
        let (_, route) = action.split_once(' ').unwrap_or_default();
        let mut parameters = parameters.iter();
        let parts = route.split('/').map(|part| match part.starts_with('{') {
            true => parameters.next().map(|text| segment(text)).unwrap_or_default(),
            false => part.to_owned(),
        });
        Self { action, path: parts.collect::<Vec<_>>().join("/"), body: None }
    }

    /// With what it is given.
    pub(crate) fn with(self, body: Value) -> Self {
        Self { body: Some(body), ..self }
    }

    /// Asks a server to do it, which writes it down.
    pub(crate) fn ask<T: DeserializeOwned>(&self, server: &Remote) -> Result<T> {
        let nothing = json!({});
        let body = self.body.as_ref().unwrap_or(&nothing);
        match self.action.split(' ').next() {
            Some("DELETE") => server.delete(&self.path),
            Some("PUT") => server.put(&self.path, body),
            _ => server.post(&self.path, body),
        }
    }

    /// Does it in the store, and writes it down there. `work` is the action and nothing else: the first transaction that it
    /// commits carries the entry.
    pub(crate) async fn carry_out<T>(
        &self,
        store: &Store,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let entry = Entry::of_deed(self.action, &who(), &self.path, self.body.as_ref());
        Audit::new(store.clone()).witness(entry, work, crate::Error::outcome).await
    }
}

/// Who is at the command line. The environment is not asked: everybody can say anything there.
fn who() -> String {
    whoami::username().map_or_else(|_| "local".to_owned(), |name| format!("local:{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_its_parameters_in_their_order_and_cannot_be_left() {
        let deed = Deed::new("POST /admin/x/{a}/{b}/retry", &["../y", "c d"]);
        assert_eq!(deed.path, "/admin/x/..%2Fy/c%20d/retry");
        assert_eq!(Deed::new("POST /admin/tokens", &[]).path, "/admin/tokens");
    }
}
