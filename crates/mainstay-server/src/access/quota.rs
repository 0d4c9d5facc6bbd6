//! Quotas of tokens and tenants: how much of the server one of them may hold at once, so that the others have room.

use super::Principal;
use crate::{Answer, Problem, error};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts what each token and each tenant holds of one thing. Callers without a token have no quota: they are on this
/// machine.
pub(crate) struct Quota {
    what: &'static str,
    of_token: usize,
    of_tenant: usize,
    held: Arc<Counts>,
}

#[derive(Default)]
struct Counts(Mutex<HashMap<Holder, usize>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    Token(Box<str>),
    Tenant(Box<str>),
}

/// A part of a quota, held until it is dropped.
pub(crate) struct Held {
    holders: Vec<Holder>,
    held: Arc<Counts>,
}

impl Quota {
    /// A token may hold so many of a hundred parts of `whole`, and a tenant so many; at least one each.
    pub(crate) fn new(what: &'static str, whole: usize, token_share: u8, tenant_share: u8) -> Self {
        let part = |share: u8| (whole.saturating_mul(share.into()) / 100).max(1);
        Self { what, of_token: part(token_share), of_tenant: part(tenant_share), held: Arc::default() }
    }

    /// Takes one for a caller; refused when its token or its tenant holds as many as it may.
    pub(crate) fn take(&self, principal: &Principal) -> Answer<Held> {
        let mut held = Held { holders: Vec::new(), held: self.held.clone() };
        let Some(token) = &principal.token else { return Ok(held) };
        let token = (Holder::Token(token.as_str().into()), self.of_token, "token");
        let tenant = principal.tenant.as_deref();
        let tenant = tenant.map(|tenant| (Holder::Tenant(tenant.into()), self.of_tenant, "tenant"));
        let mut counts = self.held.counts();
        for (holder, most, whose) in std::iter::once(token).chain(tenant) {
            let count = counts.entry(holder.clone()).or_default();
            if *count >= most {
                // Dropping the permits taken above takes the lock, so the guard goes first.
                drop(counts);
                return Err(self.refuse(whose, most));
            }
            *count += 1;
            held.holders.push(holder);
        }
        Ok(held)
    }

    fn refuse(&self, whose: &str, most: usize) -> Problem {
        let detail = format!("The {whose} holds {most} {} at once, which is all that one may.", self.what);
        Problem::new(&error::QUOTA_REACHED, detail).with("of", whose).with("limit", most)
    }
}

impl Counts {
    fn counts(&self) -> MutexGuard<'_, HashMap<Holder, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.holders.is_empty() {
            return;
        }
        let mut counts = self.held.counts();
        for holder in &self.holders {
            if let Some(count) = counts.get_mut(holder) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(holder);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Role;

    fn principal(token: &str, tenant: Option<&str>) -> Principal {
        let (tenant, token) = (tenant.map(str::to_owned), Some(token.to_owned()));
        Principal { role: Role::Reader, tenant, token, user: None, scope: None }
    }

    #[test]
    fn a_token_and_a_tenant_hold_no_more_than_their_share_and_nothing_is_left_of_those_who_left() {
        let quota = Quota::new("streams", 4, 50, 75);
        let one = principal("one", Some("shop"));
        let held =
            [quota.take(&one).unwrap_or_else(|_| panic!()), quota.take(&one).unwrap_or_else(|_| panic!())];
        assert!(quota.take(&one).is_err(), "its token");
        let other = principal("other", Some("shop"));
        let last = quota.take(&other).unwrap_or_else(|_| panic!());
        assert!(quota.take(&other).is_err(), "its tenant");
        assert!(quota.take(&principal("other", None)).is_ok());
        drop((held, last));
        assert!(quota.held.counts().is_empty(), "{:?}", quota.held.counts());
        assert!(quota.take(&Principal::local()).is_ok());
    }
}
