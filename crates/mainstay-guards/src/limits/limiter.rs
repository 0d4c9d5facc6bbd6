//! The one trait of all limiters.

use super::{Policy, check_key};
use crate::{Error, Result};
use mainstay_core::limits::{Decision, Limit, Verb};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Lets keys have so much and no more. The adapter owns the clock; nobody can supply a time.
///
/// Wrappers such as [`Watched`](super::Watched) and [`Shadow`](super::Shadow) are limiters again.
pub trait RateLimiter: Send + Sync {
    /// Does something to a key's budget. What is done to one key is done in one piece.
    fn act<'a>(&'a self, key: &'a str, verb: Verb) -> Answer<'a, Decision>;

    /// What the limiter goes by.
    fn policy(&self) -> Policy;

    /// Goes by another limit from now on. What was used stays used.
    fn set_limit(&self, limit: Limit) -> Answer<'_, ()>;

    /// Lets go of what is kept in memory.
    fn dispose(&self) {}

    /// Takes `cost` tokens if they are there, and otherwise nothing.
    fn consume<'a>(&'a self, key: &'a str, cost: u64) -> Answer<'a, Decision> {
        self.act(key, Verb::Consume(cost))
    }

    /// Tells what taking `cost` tokens would come to, and how many there are.
    fn peek<'a>(&'a self, key: &'a str, cost: u64) -> Answer<'a, Decision> {
        self.act(key, Verb::Peek(cost))
    }

    /// Gives tokens back, never beyond the capacity.
    fn refund<'a>(&'a self, key: &'a str, amount: u64) -> Answer<'a, Decision> {
        self.act(key, Verb::Refund(amount))
    }

    /// Takes tokens whether they are there or not. What is owed is at most a whole capacity.
    fn penalize<'a>(&'a self, key: &'a str, amount: u64) -> Answer<'a, Decision> {
        self.act(key, Verb::Penalize(amount))
    }

    /// Lets a key have nothing for so long; 0 lifts a block.
    fn block<'a>(&'a self, key: &'a str, for_ms: u64) -> Answer<'a, Decision> {
        self.act(key, Verb::Block(for_ms))
    }

    /// Makes a key as if nobody had used it.
    fn reset<'a>(&'a self, key: &'a str) -> Answer<'a, Decision> {
        self.act(key, Verb::Reset)
    }
}

/// The future of an answer, which may be there already: a limiter in memory answers without allocating.
pub struct Answer<'a, T>(Inner<'a, T>);

enum Inner<'a, T> {
    Now(Option<Result<T>>),
    Later(Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>),
}

impl<'a, T> Answer<'a, T> {
    /// An answer that is there.
    pub fn now(result: Result<T>) -> Self {
        Self(Inner::Now(Some(result)))
    }

    /// The answer with something done to what it holds.
    pub(crate) fn map(self, change: impl FnOnce(T) -> T + Send + 'a) -> Self
    where
        T: Send + 'a,
    {
        match self.0 {
            Inner::Now(result) => Self(Inner::Now(result.map(|result| result.map(change)))),
            Inner::Later(future) => Self::later(async move { future.await.map(change) }),
        }
    }

    /// The answer, looked at when it is there.
    pub(crate) fn inspect(self, look: impl FnOnce(&Result<T>) + Send + 'a) -> Self
    where
        T: Send + 'a,
    {
        match self.0 {
            Inner::Now(result) => Self(Inner::Now(result.inspect(look))),
            Inner::Later(future) => Self::later(async move {
                let result = future.await;
                look(&result);
                result
            }),
        }
    }

    /// The answer if it is there, and otherwise what it comes by.
    pub(crate) fn ready(self) -> std::result::Result<Result<T>, Self> {
        match self.0 {
            Inner::Now(Some(result)) => Ok(result),
            other => Err(Self(other)),
        }
    }

    /// An answer that comes.
    pub fn later(future: impl Future<Output = Result<T>> + Send + 'a) -> Self {
        Self(Inner::Later(Box::pin(future)))
    }
}

impl<T: Unpin> Future for Answer<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.0 {
            Inner::Now(result) => {
                Poll::Ready(result.take().expect("an answer is polled until it is ready, and once"))
            }
            Inner::Later(future) => future.as_mut().poll(context),
        }
    }
}

/// Refuses what no limiter can take: a bad key, or a cost of nothing.
#[inline]
pub(crate) fn check(key: &str, verb: Verb) -> Result<()> {
    check_key(key)?;
    match verb {
        Verb::Consume(0) | Verb::Peek(0) => Err(Error::BadCost),
        _ => Ok(()),
    }
}

/// A shared limiter is a limiter.
impl<L: RateLimiter + ?Sized> RateLimiter for Arc<L> {
    fn act<'a>(&'a self, key: &'a str, verb: Verb) -> Answer<'a, Decision> {
        (**self).act(key, verb)
    }

    fn policy(&self) -> Policy {
        (**self).policy()
    }

    fn set_limit(&self, limit: Limit) -> Answer<'_, ()> {
        (**self).set_limit(limit)
    }

    fn dispose(&self) {
        (**self).dispose();
    }
}
