//! Slots in the store: all nodes share them, restarts keep them, and what is done in a transaction is undone with it.
//!
//! Callers that ask at the same time share a transaction. Every claim has its token, so one whose commit nobody heard of
//! is made again: the slot it may have got is the slot that it gets.

use super::super::concurrency::ttl_ms;
use super::sweep::{PAGE, Pages, Sweep};
use crate::limits::{Acquired, Answer, Concurrency, ConcurrencyLimiter, Grant, Slots, check_claim};
use crate::{Error, Result};
use mainstay_core::limits::leases::{Claim, Claimed, Lease, Leases, Token};
use mainstay_store::batch::{Batcher, Runs};
use mainstay_store::{Bulk, Column, Hold, Store, Tx, Value, params};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// One transaction at a time: a second one would only wait for the slots of the first.
const LANES: usize = 1;
/// How often a commit that nobody heard of is made again before it is told.
const TRIES: usize = 3;

/// In the order of ids, so that transactions of several nodes wait for each other, and never in a circle.
static HOLD: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::list("SELECT id, leases FROM mainstay_held WHERE id IN ({values}) ORDER BY id"));
static PUT_NEW: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::insert(
        "INSERT INTO mainstay_held (id, leases, until_ms) VALUES {rows} ON CONFLICT (id) DO NOTHING",
        &HELD,
    )
});
static PUT: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::insert(
        "INSERT INTO mainstay_held (id, leases, until_ms) VALUES {rows} \
         ON CONFLICT (id) DO UPDATE SET leases = excluded.leases, until_ms = excluded.until_ms",
        &HELD,
    )
});
static REMOVE: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::list("DELETE FROM mainstay_held WHERE id IN ({values})"));
const HELD: [Column; 3] = [Column::Text, Column::Blob, Column::Int];
const NEXT: &str = "SELECT id, until_ms FROM mainstay_held WHERE id > $1 ORDER BY id LIMIT $2";
/// Unless somebody has used it meanwhile.
const REMOVE_OVER: &str = "DELETE FROM mainstay_held WHERE id = $1 AND until_ms = $2";

/// Concurrency limits in a store. Clones are the same.
#[derive(Clone)]
pub struct Permits(Batcher<Ground>);

struct Ground {
    store: Store,
    sweep: Arc<Sweep<Held>>,
}

#[derive(Debug, Clone)]
struct Ask {
    id: String,
    slots: u64,
    claim: Claim,
}

impl Ask {
    fn new(slots: &Slots, key: &str, claim: Claim) -> Result<Self> {
        check_claim(key, claim)?;
        // Prefixes and keys have no control characters.
        Ok(Self { id: format!("{}\n{key}", slots.prefix()), slots: slots.count(), claim })
    }
}

impl Permits {
    /// Concurrency limits in this store, which was opened with [`COMPONENT`](super::COMPONENT).
    pub fn new(store: Store) -> Self {
        Self(Batcher::new(Ground { store, sweep: Arc::default() }, LANES))
    }

    /// A limit that all nodes share that use the same prefix.
    pub fn concurrency(&self, slots: Slots) -> Concurrency {
        Concurrency::new(StoreSlots { permits: self.clone(), slots })
    }

    /// Takes a slot as a part of a transaction: it is taken when that is committed, and on PostgreSQL others who want the
    /// key wait until then. [`Concurrency::permit`] makes a permit of the grant.
    pub async fn acquire_in(
        &self,
        tx: &Tx,
        slots: &Slots,
        key: &str,
        ttl: Duration,
    ) -> Result<Acquired<Grant>> {
        let random = self.store().random();
        let token = Token(u128::from(random.next_u64()) << 64 | u128::from(random.next_u64()));
        let claimed = self.act_in(tx, slots, key, Claim::Acquire { token, ttl_ms: ttl_ms(ttl)? }).await?;
        Ok(match claimed.done {
            true => Acquired::Permit(Grant { key: key.to_owned(), token }),
            false => Acquired::Denied { retry_after_ms: claimed.retry_after_ms },
        })
    }

    /// Lets a lease last so long from now on, as a part of a transaction; false when it is over. Whoever does this in the
    /// transaction of what the slot is for knows at its commit that nobody else had the slot.
    pub async fn renew_in(&self, tx: &Tx, slots: &Slots, grant: &Grant, ttl: Duration) -> Result<bool> {
        let claim = Claim::Renew { token: grant.token, ttl_ms: ttl_ms(ttl)? };
        Ok(self.act_in(tx, slots, &grant.key, claim).await?.done)
    }

    /// Gives a slot back as a part of a transaction; false when its time was over.
    pub async fn release_in(&self, tx: &Tx, slots: &Slots, grant: &Grant) -> Result<bool> {
        Ok(self.act_in(tx, slots, &grant.key, Claim::Release { token: grant.token }).await?.done)
    }

    /// The store that the slots are in.
    pub fn store(&self) -> &Store {
        &self.0.runs().store
    }

    async fn act_in(&self, tx: &Tx, slots: &Slots, key: &str, claim: Claim) -> Result<Claimed> {
        let asks = [Ask::new(slots, key, claim)?];
        let (claimed, _) = apply(tx, &asks, self.store().capabilities().concurrent_writers).await?;
        Ok(claimed[0])
    }

    async fn act(&self, slots: &Slots, key: &str, claim: Claim) -> Result<Claimed> {
        let ask = Ask::new(slots, key, claim)?;
        if !claim.only_looks() {
            return self.0.ask(ask).await;
        }
        let look = async |tx: Tx, ask: Ask| {
            let rows = HOLD.query(&tx, params![ask.id.as_str()]).await?;
            let mut leases = rows.first().map_or(Ok(Leases::default()), |row| unpack(row.get(1)?))?;
            Ok(leases.act(ask.slots, ask.claim, tx.now_ms().await?))
        };
        Ok(self.store().read_with(ask, look).await?)
    }
}

/// One limit.
struct StoreSlots {
    permits: Permits,
    slots: Slots,
}

impl ConcurrencyLimiter for StoreSlots {
    fn act<'a>(&'a self, key: &'a str, claim: Claim) -> Answer<'a, Claimed> {
        Answer::later(self.permits.act(&self.slots, key, claim))
    }

    fn slots(&self) -> Slots {
        self.slots.clone()
    }
}

impl Runs for Ground {
    type Ask = Ask;
    type Answer = Result<Claimed>;

    async fn run(&self, asks: Vec<Ask>) -> Vec<Result<Claimed>> {
        let asks = Arc::new(asks);
        for left in (0..TRIES).rev() {
            let run = async |tx: Tx, (asks, concurrent_writers): (Arc<Vec<Ask>>, bool)| {
                apply(&tx, &asks, concurrent_writers).await
            };
            match self
                .store
                .transact_with((asks.clone(), self.store.capabilities().concurrent_writers), run)
                .await
            {
                Ok((claimed, new)) => {
                    self.sweep.note(&self.store, new);
                    return claimed.into_iter().map(Ok).collect();
                }
                Err(error) if error.is_outcome_unknown() && left > 0 => {}
                Err(error) => {
                    let error = Error::from(error);
                    return asks.iter().map(|_| Err(error.clone())).collect();
                }
            }
        }
        Vec::new()
    }

    fn lost(&self) -> Result<Claimed> {
        Err(mainstay_store::Error::Closed.into())
    }
}

/// Does what is asked, one ask after another; also how many rows are new.
async fn apply(
    tx: &Tx,
    asks: &[Ask],
    concurrent_writers: bool,
) -> mainstay_store::Result<(Vec<Claimed>, usize)> {
    let mut held = hold(tx, asks, concurrent_writers).await?;
    // After the wait for those who held them, if there was one.
    let now_ms = tx.now_ms().await?;
    let mut claimed = Vec::with_capacity(asks.len());
    for ask in asks {
        let one = held.entry(ask.id.as_str()).or_default();
        claimed.push(one.now.act(ask.slots, ask.claim, now_ms));
    }
    let (mut changed, mut over, mut new) = (Vec::new(), Vec::new(), 0);
    for (id, one) in held {
        match one.now.until_ms() {
            None => over.push(Value::from(id)),
            Some(_) if one.before.as_ref() == Some(&one.now) => {}
            Some(until_ms) => {
                new += usize::from(one.before.is_none_or(|before| before.all().is_empty()));
                changed.extend([Value::from(id), pack(&one.now), until_ms.into()]);
            }
        }
    }
    PUT.execute(tx, &changed).await?;
    REMOVE.execute(tx, &over).await?;
    Ok((claimed, new))
}

#[derive(Default)]
struct One {
    /// As the store has it.
    before: Option<Leases>,
    now: Leases,
}

/// Reads what is held, and holds it against other nodes until the transaction ends.
async fn hold<'a>(
    tx: &Tx,
    asks: &'a [Ask],
    concurrent_writers: bool,
) -> mainstay_store::Result<BTreeMap<&'a str, One>> {
    let mut held: BTreeMap<&str, One> = asks.iter().map(|ask| (ask.id.as_str(), One::default())).collect();
    let ids: Vec<Value> = held.keys().map(|id| Value::from(*id)).collect();
    let mut rows = HOLD.query_holding(tx, &ids, Hold::Alone).await?;
    // What is not there cannot be held. So it is put there, by whoever is first; who was may have left again meanwhile.
    while concurrent_writers && rows.len() < ids.len() {
        let none = |id: &Value| [id.clone(), Value::Blob(Vec::new()), 0.into()];
        PUT_NEW.execute(tx, &ids.iter().flat_map(none).collect::<Vec<_>>()).await?;
        rows = HOLD.query_holding(tx, &ids, Hold::Alone).await?;
    }
    for row in &rows {
        if let Some(one) = held.get_mut(row.get::<&str>(0)?) {
            let leases = unpack(row.get(1)?)?;
            *one = One { before: Some(leases.clone()), now: leases };
        }
    }
    Ok(held)
}

/// A lease as bytes: the token, since when, and for how long.
const LEASE_BYTES: usize = 32;

fn pack(leases: &Leases) -> Value {
    let bytes = leases.all().iter().flat_map(|lease| {
        let Lease { token, since_ms, ttl_ms } = lease;
        [&token.0.to_be_bytes()[..], &since_ms.to_be_bytes(), &ttl_ms.to_be_bytes()].concat()
    });
    Value::Blob(bytes.collect())
}

fn unpack(bytes: &[u8]) -> mainstay_store::Result<Leases> {
    let lease = |bytes: &[u8; LEASE_BYTES]| {
        let number = |at: usize| i64::from_be_bytes(std::array::from_fn(|index| bytes[at + index]));
        let token = Token(u128::from_be_bytes(std::array::from_fn(|index| bytes[index])));
        Lease { token, since_ms: number(16), ttl_ms: number(24) }
    };
    match bytes.as_chunks() {
        (chunks, []) => Ok(Leases::new(chunks.iter().map(lease).collect())),
        _ => Err(mainstay_store::Error::application(Error::invalid("leases", "cannot be read"))),
    }
}

/// The table of what is held. What is over is as good as nothing.
struct Held;

impl Pages for Held {
    async fn page(tx: &Tx, after: &str) -> mainstay_store::Result<String> {
        let rows = tx.query(NEXT, params![after, PAGE as i64]).await?;
        let now_ms = tx.now_ms().await?;
        let mut over = Vec::new();
        for row in &rows {
            if row.get::<i64>(1)? <= now_ms {
                over.push(row.clone().into_values());
            }
        }
        tx.execute_many(REMOVE_OVER, &over).await?;
        let last = if rows.len() < PAGE { None } else { rows.last() };
        last.map_or(Ok(String::new()), |row| row.get(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_torn_is_refused() {
        let lease = |number: u128| Lease { token: Token(number), since_ms: -7, ttl_ms: 1_000 };
        let leases = Leases::new(vec![lease(1), lease(u128::MAX)]);
        let Value::Blob(bytes) = pack(&leases) else { unreachable!() };
        assert_eq!(unpack(&bytes).unwrap(), leases);
        assert!(unpack(&bytes[1..]).is_err());
    }
}
