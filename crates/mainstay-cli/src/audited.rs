//! Audit of verbs that no route does: they change the store directly.

use crate::Result;
use mainstay::store::Store;
use mainstay_server::audit::{Audit, Entry};
use serde_json::Value;
use std::future::Future;

/// Changes the store, and audits it under the name of `verb`. `work` is the action and nothing else: the first transaction that it
/// commits carries the entry.
pub(crate) async fn audited<T>(
    store: &Store,
    verb: &'static str,
    body: &Value,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let path = verb.split_once(' ').map_or(verb, |(_, path)| path);
    let entry = Entry::of_deed(verb, &user(), path, Some(body));
    Audit::new(store.clone()).witness(entry, work, crate::Error::outcome).await
}

/// User at the command line, as the operating system names them. The environment is not asked: everybody can say anything there.
pub(crate) fn user() -> String {
    whoami::username().map_or_else(|_| "local".to_owned(), |name| format!("local:{name}"))
}
