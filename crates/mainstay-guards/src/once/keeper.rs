//! Where answers are kept.

use crate::Result;
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The future of a keeper's answer.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// What a request is recognised by beside its key.
pub type Fingerprint = [u8; 32];

/// A key and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id {
    /// Whose it is.
    pub scope: String,
    /// The key.
    pub key: String,
}

/// An answer as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its status.
    pub status: u16,
    /// Those of its headers that are kept.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Its body; nothing when it was too large.
    pub body: Option<Bytes>,
}

/// What a keeper says to a request with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// It runs, under this number.
    Mine(i64),
    /// Another one with this key runs.
    Running,
    /// It has run.
    Done(Kept),
    /// The key was used for another request.
    Reused,
}

/// Keeps answers under keys. Whoever [begins](Self::begin) one gets a number, and only with it can go on.
pub trait Keeper: Send + Sync {
    /// Takes up a key, if nobody has or whoever has is gone. It is held for as long as `lease`.
    fn begin<'a>(&'a self, id: &'a Id, fingerprint: &'a Fingerprint, lease: Duration) -> Pending<'a, Begun>;

    /// Holds a key for as long as `lease` from now on; whether it was still held.
    fn extend<'a>(&'a self, id: &'a Id, run: i64, lease: Duration) -> Pending<'a, bool>;

    /// Keeps the answer for as long as `keep`; whether the key was still held.
    fn finish<'a>(&'a self, id: &'a Id, run: i64, answer: Kept, keep: Duration) -> Pending<'a, bool>;

    /// Gives a key back as if nothing had been.
    fn forget<'a>(&'a self, id: &'a Id, run: i64) -> Pending<'a, ()>;
}

/// A shared keeper is a keeper.
impl<K: Keeper + ?Sized> Keeper for Arc<K> {
    fn begin<'a>(&'a self, id: &'a Id, fingerprint: &'a Fingerprint, lease: Duration) -> Pending<'a, Begun> {
        (**self).begin(id, fingerprint, lease)
    }

    fn extend<'a>(&'a self, id: &'a Id, run: i64, lease: Duration) -> Pending<'a, bool> {
        (**self).extend(id, run, lease)
    }

    fn finish<'a>(&'a self, id: &'a Id, run: i64, answer: Kept, keep: Duration) -> Pending<'a, bool> {
        (**self).finish(id, run, answer, keep)
    }

    fn forget<'a>(&'a self, id: &'a Id, run: i64) -> Pending<'a, ()> {
        (**self).forget(id, run)
    }
}
