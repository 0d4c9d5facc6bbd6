//! What a token is made from.

use crate::access::Role;
use std::time::Duration;

/// Longest name of a token.
pub const MAX_NAME_BYTES: usize = 64;
/// Longest name of a tenant.
pub const MAX_TENANT_BYTES: usize = 64;
/// A token that should live longer than ten years is one without expiry.
const MAX_LIFE: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// A token to be made. Only valid ones exist.
#[derive(Debug, Clone)]
pub struct New {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) tenant: Option<String>,
    pub(super) expires_in_ms: Option<i64>,
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

impl New {
    /// A token that never expires and sees every tenant. The name is for people, who will wonder what it was for.
    pub fn named(name: &str, role: Role) -> Result<Self, Invalid> {
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) || name.contains(char::is_control) {
            return Err(Invalid {
                field: "name",
                reason: "must have 1 to 64 bytes and no control characters",
            });
        }
        Ok(Self { name: name.to_owned(), role, tenant: None, expires_in_ms: None })
    }

    /// Confines the token to one tenant.
    pub fn tenant(self, tenant: &str) -> Result<Self, Invalid> {
        let is_plain = !tenant.contains(|letter: char| letter == ':' || letter.is_control());
        if !(1..=MAX_TENANT_BYTES).contains(&tenant.len()) || !is_plain {
            let reason = "must have 1 to 64 bytes, no ':' and no control characters";
            return Err(Invalid { field: "tenant", reason });
        }
        Ok(Self { tenant: Some(tenant.to_owned()), ..self })
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
    }
}
