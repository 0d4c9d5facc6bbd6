//! Concurrency limits: how many may be at something at once.
//!
//! Whoever is let in has a [`Permit`] for a time. It is given back when it is dropped, and free anyway when its time is
//! over, so a process that died keeps nobody out for longer than that. The law is that of [`mainstay_core::limits::leases`].

use super::{Answer, MAX_PREFIX_BYTES, check_key};
use crate::{Error, Result};
use mainstay_core::limits::leases::{Claim, Claimed, MAX_SLOTS, MAX_TTL_MS, Token};
use mainstay_core::random::Random;
use mainstay_store::system::SystemRandom;
use std::sync::Arc;
use std::time::Duration;

/// How many slots every key has, and what stands in front of the keys: limiters of the same prefix share their slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    count: u64,
    prefix: Arc<str>,
}

impl Slots {
    /// So many, without a prefix.
    pub fn new(count: u64) -> Result<Self> {
        if !(1..=MAX_SLOTS).contains(&count) {
            return Err(Error::invalid("slots", format!("are 1 to {MAX_SLOTS}")));
        }
        Ok(Self { count, prefix: "".into() })
    }

    /// The same with a prefix.
    pub fn with_prefix(self, prefix: &str) -> Result<Self> {
        if prefix.len() > MAX_PREFIX_BYTES || prefix.contains(char::is_control) {
            let reason = format!("has at most {MAX_PREFIX_BYTES} bytes and no control characters");
            return Err(Error::invalid("prefix", reason));
        }
        Ok(Self { prefix: prefix.into(), ..self })
    }

    /// One node's part of them among so many, and one at least.
    #[cfg(feature = "redis")]
    pub(super) fn part(&self, nodes: u64) -> Self {
        Self { count: (self.count / nodes.max(1)).max(1), prefix: self.prefix.clone() }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What stands in front of every key.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

/// Lets so many be at something at once. The adapter owns the clock; nobody can supply a time.
pub trait ConcurrencyLimiter: Send + Sync {
    /// Does something about the slots of a key. What is done about one key is done in one piece.
    fn act<'a>(&'a self, key: &'a str, claim: Claim) -> Answer<'a, Claimed>;

    /// What the limiter goes by.
    fn slots(&self) -> Slots;
}

/// What a holder has to show: a lease on a slot of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The key.
    pub key: String,
    /// The lease.
    pub token: Token,
}

/// What came of asking for a slot.
#[derive(Debug, PartialEq, Eq)]
pub enum Acquired<T = Permit> {
    /// It was given.
    Permit(T),
    /// All are taken.
    Denied {
        /// When one will be free, if nobody renews or is earlier.
        retry_after_ms: u64,
    },
}

impl<T> Acquired<T> {
    /// What was given, if anything was.
    pub fn permit(self) -> Option<T> {
        match self {
            Self::Permit(permit) => Some(permit),
            Self::Denied { .. } => None,
        }
    }
}

/// A concurrency limit as those see it who ask for slots. Clones are the same.
#[derive(Clone)]
pub struct Concurrency {
    limiter: Arc<dyn ConcurrencyLimiter>,
    /// Two, because one has no more than 64 bits of chance in it.
    random: Arc<(SystemRandom, SystemRandom)>,
}

impl Concurrency {
    /// Over any limiter.
    pub fn new(limiter: impl ConcurrencyLimiter + 'static) -> Self {
        Self { limiter: Arc::new(limiter), random: Arc::default() }
    }

    /// Takes a slot of a key for so long, 1 ms to a day, if there is one.
    pub async fn acquire(&self, key: &str, ttl: Duration) -> Result<Acquired> {
        let (token, ttl_ms) = (self.token(), ttl_ms(ttl)?);
        let claimed = self.limiter.act(key, Claim::Acquire { token, ttl_ms }).await?;
        Ok(match claimed.done {
            true => Acquired::Permit(self.permit(Grant { key: key.to_owned(), token })),
            false => Acquired::Denied { retry_after_ms: claimed.retry_after_ms },
        })
    }

    /// How many slots of a key are taken.
    pub async fn in_use(&self, key: &str) -> Result<u64> {
        Ok(self.limiter.act(key, Claim::Look).await?.in_use)
    }

    /// What the limiter goes by.
    pub fn slots(&self) -> Slots {
        self.limiter.slots()
    }

    /// The limiter, for whoever has tokens of its own.
    pub fn limiter(&self) -> &dyn ConcurrencyLimiter {
        &*self.limiter
    }

    /// The permit that a grant is for, also of another process.
    pub fn permit(&self, grant: Grant) -> Permit {
        Permit { limiter: self.limiter.clone(), grant: Some(grant) }
    }

    /// A token that nobody has.
    fn token(&self) -> Token {
        let (one, other) = &*self.random;
        Token(u128::from(one.next_u64()) << 64 | u128::from(other.next_u64()))
    }
}

/// Refuses times that are too short or too long.
pub(super) fn ttl_ms(ttl: Duration) -> Result<u64> {
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    match (1..=MAX_TTL_MS).contains(&ttl_ms) {
        true => Ok(ttl_ms),
        false => Err(Error::invalid("ttlMs", format!("is 1 to {MAX_TTL_MS}"))),
    }
}

/// Refuses what no limiter can take.
pub(crate) fn check_claim(key: &str, claim: Claim) -> Result<()> {
    check_key(key)?;
    match claim {
        Claim::Acquire { ttl_ms: within, .. } | Claim::Renew { ttl_ms: within, .. } => {
            ttl_ms(Duration::from_millis(within)).map(drop)
        }
        Claim::Release { .. } | Claim::Look => Ok(()),
    }
}

/// A slot that is taken. It is given back when this is dropped: at once if the limiter is in memory, and otherwise by a
/// task, as well as that goes; what is not given back is free when its time is over.
pub struct Permit {
    limiter: Arc<dyn ConcurrencyLimiter>,
    grant: Option<Grant>,
}

impl Permit {
    /// What its holder has to show.
    pub fn grant(&self) -> &Grant {
        self.grant.as_ref().expect("a permit has its grant until it is used up")
    }

    /// Lets it last so long from now on; false when it is over already, and somebody else may have the slot.
    pub async fn renew(&self, ttl: Duration) -> Result<bool> {
        let Grant { key, token } = self.grant();
        let claim = Claim::Renew { token: *token, ttl_ms: ttl_ms(ttl)? };
        Ok(self.limiter.act(key, claim).await?.done)
    }

    /// Gives it back; false when it was over already.
    pub async fn release(mut self) -> Result<bool> {
        let grant = self.grant.take().expect("a permit has its grant until it is used up");
        Ok(self.limiter.act(&grant.key, Claim::Release { token: grant.token }).await?.done)
    }

    /// Keeps the slot when this is dropped: somebody else sees to it, or its time does.
    pub fn keep(mut self) -> Grant {
        self.grant.take().expect("a permit has its grant until it is used up")
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Permit").field("grant", &self.grant).finish_non_exhaustive()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(Grant { key, token }) = self.grant.take() else { return };
        let claim = Claim::Release { token };
        if self.limiter.act(&key, claim).ready().is_ok() {
            return;
        }
        // Without a runtime there is nobody to do it, and the slot is free when its time is over.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let limiter = self.limiter.clone();
        runtime.spawn(async move {
            if let Err(error) = limiter.act(&key, claim).await {
                tracing::debug!(key, %error, "a slot was not given back; it is free when its time is over");
            }
        });
    }
}
