//! One limit, and whose budget a request takes from.

use super::fields::{self, Told};
use crate::http::{Head, Key, WithoutKey};
use crate::limits::store::Limits;
use crate::limits::{MAX_NAME_BYTES, RateLimiter};
use crate::{Error, Result};
use http::HeaderValue;
use mainstay_core::limits::Decision;
use std::sync::Arc;

/// What a request asks of one limit. Its name is what clients are told; its key says whose budget is taken from.
#[derive(Clone)]
pub struct Rule {
    pub(super) name: Arc<str>,
    pub(super) limiter: Arc<dyn RateLimiter>,
    /// Where it is kept, if several can be asked in one transaction.
    pub(super) limits: Option<Limits>,
    key: Key,
    cost: Option<Cost>,
    skip: Option<Skip>,
    without_key: WithoutKey,
    told: Arc<Told>,
}

type Cost = Arc<dyn Fn(Head<'_>) -> u64 + Send + Sync>;
type Skip = Arc<dyn Fn(Head<'_>) -> bool + Send + Sync>;

/// What a rule makes of a request.
pub(super) enum Asks {
    /// It takes so much, and its key was written down.
    For(u64),
    /// Nothing.
    Nothing,
    /// It is not known whose it is.
    Nobody,
}

impl Rule {
    /// One token of `limiter` for each request, from the budget of its key.
    pub fn new(name: &str, limiter: impl RateLimiter + 'static, key: Key) -> Result<Self> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !fields::can_be_told(name) {
            let reason =
                format!("has 1 to {MAX_NAME_BYTES} characters of ASCII, without quotes and backslashes");
            return Err(Error::invalid("name", reason));
        }
        let limiter: Arc<dyn RateLimiter> = Arc::new(limiter);
        let (cost, skip, without_key) = (None, None, WithoutKey::default());
        Ok(Self {
            name: name.into(),
            limiter,
            limits: None,
            key,
            cost,
            skip,
            without_key,
            told: Arc::default(),
        })
    }

    /// The same for a limit with a name that is kept in a store. A layer asks all of one store in one transaction.
    pub async fn named(limits: &Limits, name: &str, key: Key) -> Result<Self> {
        let rule = Self::new(name, limits.limiter(name).await?, key)?;
        Ok(Self { limits: Some(limits.clone()), ..rule })
    }

    /// How many tokens a request takes, instead of one. A request for none is refused; those that are not to be counted
    /// are [skipped](Self::skip).
    pub fn cost(self, cost: impl Fn(Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        Self { cost: Some(Arc::new(cost)), ..self }
    }

    /// Requests that this rule is not for.
    pub fn skip(self, skip: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self { skip: Some(Arc::new(skip)), ..self }
    }

    /// What happens to requests that have no key.
    pub fn without_key(self, without_key: WithoutKey) -> Self {
        Self { without_key, ..self }
    }

    /// What a request takes, with its key written behind what is there.
    pub(super) fn asks(&self, head: Head<'_>, keys: &mut String) -> Asks {
        if self.skip.as_ref().is_some_and(|skip| skip(head)) {
            return Asks::Nothing;
        }
        if !self.key.write(head, keys) {
            match self.without_key {
                WithoutKey::Share => {}
                WithoutKey::LetThrough => return Asks::Nothing,
                WithoutKey::Refuse => return Asks::Nobody,
            }
        }
        Asks::For(self.cost.as_ref().map_or(1, |cost| cost(head)))
    }

    /// What clients are told: what the limit is, and how this budget stands.
    pub(super) fn tell(&self, decision: &Decision, standing: &mut String) -> HeaderValue {
        let policy = self.limiter.policy();
        fields::standing(&self.name, policy.limit(), decision, standing);
        self.told.policy(&self.name, policy.limit())
    }

    /// Whether both are kept in one store.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        match (&self.limits, &other.limits) {
            (Some(one), Some(other)) => std::ptr::eq(one.store().figures(), other.store().figures()),
            _ => false,
        }
    }
}
