//! What a token is made from.

use crate::access::{InvalidScope, Role, Scope};
use std::time::Duration;

/// Longest name of a token.
pub const MAX_NAME_BYTES: usize = 64;
/// Longest name of a tenant.
pub const MAX_TENANT_BYTES: usize = 64;
/// A token that should live longer than ten years is one without expiry.
const MAX_LIFE: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);
/// Length of life of a token unless its creator chooses another: 365 days.
pub const USUAL_LIFE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Length of life of tokens that are made through the API or the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lives {
    /// Unless the caller says how long; without it, for ever.
    pub usual: Option<Duration>,
    /// At most; without it, for ever where the caller says so.
    pub most: Option<Duration>,
}

impl Default for Lives {
    fn default() -> Self {
        Self { usual: Some(USUAL_LIFE), most: None }
    }
}

impl Lives {
    /// Length of life of a token for which this was asked: the outer `None` is a caller that does not say, the inner one a caller
    /// that asks for a token without end.
    pub fn of(&self, asked: Option<Option<Duration>>) -> Result<Option<Duration>, Invalid> {
        let too_long =
            Invalid { field: "expiresInMs", reason: "is longer than `access.maxTokenLifeMs` allows" };
        match (asked, self.most) {
            (None, most) => Ok(self.usual.into_iter().chain(most).min()),
            (Some(asked), None) => Ok(asked),
            (Some(Some(asked)), Some(most)) if asked <= most => Ok(Some(asked)),
            (Some(_), Some(_)) => Err(too_long),
        }
    }
}

/// A token to be made. Only valid ones exist.
#[derive(Debug, Clone)]
pub struct New {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) tenant: Option<String>,
    pub(super) expires_in_ms: Option<i64>,
    pub(super) scope: Scope,
}

/// Why a token cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Invalid {
    /// What is wrong, in the words of the API.
    pub field: &'static str,
    /// What it must be.
    pub reason: &'static str,
}

impl From<InvalidScope> for Invalid {
    fn from(InvalidScope { field, reason }: InvalidScope) -> Self {
        Self { field, reason }
    }
}

impl New {
    /// A token that lives for [`USUAL_LIFE`] and sees every tenant. The name is for people: it says what the token is for.
    pub fn named(name: &str, role: Role) -> Result<Self, Invalid> {
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) || name.contains(char::is_control) {
            return Err(Invalid {
                field: "name",
                reason: "must have 1 to 64 bytes and no control characters",
            });
        }
        let expires_in_ms = i64::try_from(USUAL_LIFE.as_millis()).ok();
        Ok(Self { name: name.to_owned(), role, tenant: None, expires_in_ms, scope: Scope::default() })
    }

    /// Names what the token of a worker or a publisher may be used for. Without this it is of no use.
    pub fn scope(self, scope: Scope) -> Result<Self, Invalid> {
        scope.check(self.role)?;
        Self { scope, ..self }.coherent()
    }

    /// Confines the token to one tenant.
    pub fn tenant(self, tenant: &str) -> Result<Self, Invalid> {
        let is_plain = !tenant.contains(|letter: char| letter == ':' || letter.is_control());
        if !(1..=MAX_TENANT_BYTES).contains(&tenant.len()) || !is_plain {
            let reason = "must have 1 to 64 bytes, no ':' and no control characters";
            return Err(Invalid { field: "tenant", reason });
        }
        Self { tenant: Some(tenant.to_owned()), ..self }.coherent()
    }

    /// Refuses a token that no route would take.
    fn coherent(self) -> Result<Self, Invalid> {
        if self.tenant.is_some() && !self.scope.pools.is_empty() {
            let reason = "cannot be given together with a tenant: work belongs to no tenant";
            return Err(Invalid { field: "scope.pools", reason });
        }
        Ok(self)
    }

    /// Lets the token live until it is revoked.
    pub fn never_expires(self) -> Self {
        Self { expires_in_ms: None, ..self }
    }

    /// Lets the token expire, counted from its making.
    pub fn expires_in(self, life: Duration) -> Result<Self, Invalid> {
        let life_ms = i64::try_from(life.as_millis()).ok().filter(|ms| *ms > 0 && life <= MAX_LIFE);
        match life_ms {
            Some(_) => Ok(Self { expires_in_ms: life_ms, ..self }),
            None => Err(Invalid {
                field: "expiresInMs",
                reason: "must be more than nothing and at most 10 years",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_names_tenants_and_lives_that_cannot_be() {
        let good = || New::named("ci", Role::Reader).unwrap();
        for bad in ["", "a\nb", "a\0", &"x".repeat(65)] {
            assert_eq!(New::named(bad, Role::Admin).unwrap_err().field, "name");
            assert_eq!(good().tenant(bad).unwrap_err().field, "tenant");
        }
        assert!(good().tenant("a:b").is_err());
        assert_eq!(good().tenant("größe").unwrap().tenant.as_deref(), Some("größe"));
        for bad in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            assert_eq!(good().expires_in(bad).unwrap_err().field, "expiresInMs");
        }
        assert_eq!(good().expires_in(Duration::from_secs(1)).unwrap().expires_in_ms, Some(1_000));
        assert_eq!(good().expires_in_ms, Some(365 * 24 * 3_600_000));
        assert_eq!(good().never_expires().expires_in_ms, None);
    }

    #[test]
    fn a_token_lives_as_long_as_it_may() {
        let day = |days: u64| Some(Duration::from_secs(days * 24 * 3_600));
        let free = Lives::default();
        assert_eq!(free.of(None), Ok(day(365)));
        assert_eq!((free.of(Some(None)), free.of(Some(day(999)))), (Ok(None), Ok(day(999))));
        let endless = Lives { usual: None, most: None };
        assert_eq!(endless.of(None), Ok(None));
        let bounded = Lives { usual: day(365), most: day(30) };
        assert_eq!((bounded.of(None), bounded.of(Some(day(30)))), (Ok(day(30)), Ok(day(30))));
        for longer in [None, day(31)] {
            assert_eq!(bounded.of(Some(longer)).unwrap_err().field, "expiresInMs");
        }
        assert_eq!(Lives { usual: None, ..bounded }.of(None), Ok(day(30)), "a token without end is too long");
    }

    #[test]
    fn work_and_a_tenant_do_not_go_together() {
        let names = || vec!["a".to_owned()];
        let work = Scope { pools: names(), functions: names(), ..Scope::default() };
        let worker = New::named("w", Role::Worker).unwrap();
        let early = worker.clone().tenant("acme").unwrap().scope(work.clone()).unwrap_err();
        let late = worker.scope(work).unwrap().tenant("acme").unwrap_err();
        assert_eq!((early.field, late.field), ("scope.pools", "scope.pools"));
    }
}
