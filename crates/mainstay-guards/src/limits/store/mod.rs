//! Named limits, kept in the store: they outlive the process, all nodes share them, and what is taken in a transaction
//! is given back when it is rolled back.
//!
//! Callers that ask at the same time share a transaction, so one key that everybody wants is no conflict: it is decided
//! for all of them at once.

mod apply;
mod directory;
mod heard;
mod recovered;
mod schema;
mod slots;
mod sweep;

use super::definition::{Definition, MAX_LIMITS, check_name, shipped};
use super::{Answer, Figures, MostDenied, Policy, RateLimiter, check, check_key};
use crate::{Error, Result};
use apply::{Applied, Ask, Deed, Outcome, Part, apply};
use directory::{Directory, find};
use heard::Heard;
use mainstay_core::limits::{Decision, Limit, State, Verb};
use mainstay_store::batch::{Batcher, Runs};
use mainstay_store::{Store, Tx, params};
use recovered::Budgets;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, PoisonError, RwLock};
use sweep::Sweep;

pub use schema::COMPONENT;
pub use slots::Permits;

/// One transaction at a time: a second one would only wait for the budgets of the first.
const LANES: usize = 1;

/// Named limits in a store. Clones are the same.
#[derive(Clone)]
pub struct Limits(Batcher<Ground>);

struct Ground {
    store: Store,
    directory: Arc<Directory>,
    sweep: Arc<Sweep<Budgets>>,
    heard: Heard,
}

/// What is wanted of several limits at once.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Wanted {
    /// The limit.
    pub name: String,
    /// The key.
    pub key: String,
    /// How many tokens; one unless it is said.
    #[serde(default = "one_token")]
    pub cost: u64,
}

fn one_token() -> u64 {
    1
}

/// What came of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reservation {
    /// Whether it was taken.
    pub ok: bool,
    /// How long to wait: if it was taken, until its tokens are there, 0 when they are; if not, before asking again;
    /// nothing when asking will never help.
    pub retry_after_ms: Option<u64>,
}

/// How a key's budget stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// How many whole tokens there are in all shards; below 0 when some were taken ahead.
    pub value: i64,
    /// The most there can be.
    pub capacity: u64,
    /// When that was so, in milliseconds since the epoch.
    #[serde(rename = "at")]
    pub at_ms: i64,
}

impl Limits {
    /// Named limits in this store, which was opened with [`COMPONENT`]. Those that Mainstay ships with are defined unless
    /// somebody has.
    pub async fn open(store: Store) -> Result<Self> {
        store
            .transact(async |tx| {
                for (name, definition) in shipped() {
                    Directory::put_new(&tx, name, &definition).await?;
                }
                Ok(())
            })
            .await?;
        let directory: Arc<Directory> = Arc::default();
        shipped().iter().for_each(|(name, _)| directory.own(name));
        let ground = Ground { store, directory, sweep: Arc::default(), heard: Heard::default() };
        Ok(Self(Batcher::new(ground, LANES)))
    }

    /// Defines a limit, or changes it: on all nodes, from the next decision on. What was used stays used.
    pub async fn define(&self, name: &str, definition: Definition) -> Result<()> {
        check_name(name)?;
        let put = async |tx: Tx, (directory, name, definition): (Arc<Directory>, String, Definition)| {
            directory.put(&tx, &name, &definition).await
        };
        let context = (self.ground().directory.clone(), name.to_owned(), definition);
        self.store().transact_with(context, put).await?;
        Ok(())
    }

    /// As [`define`](Self::define), for a limit that this program names: callers cannot use up its room.
    pub async fn declare(&self, name: &str, definition: Definition) -> Result<()> {
        check_name(name)?;
        self.ground().directory.own(name);
        self.define(name, definition).await
    }

    /// Deletes a limit with all its budgets: on all nodes, from the next decision on. Those that Mainstay ships with stay.
    pub async fn delete(&self, name: &str) -> Result<()> {
        if shipped().iter().any(|(shipped, _)| *shipped == name) {
            return Err(Error::InUse { name: name.to_owned(), reason: "Mainstay itself uses it" });
        }
        let delete = async |tx: Tx, (directory, name): (Arc<Directory>, String)| {
            Directory::delete(&tx, &name).await?;
            tx.after_commit(Arc::new(move || directory.forget(&name)))
        };
        let context = (self.ground().directory.clone(), name.to_owned());
        Ok(self.store().transact_with(context, delete).await?)
    }

    /// Limits, in the order of names after `after`.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<(String, Definition)>> {
        let limit = limit.clamp(1, MAX_LIMITS) as i64;
        let read = async |tx: Tx, (after, limit): (String, i64)| Directory::page(&tx, &after, limit).await;
        Ok(self.store().read_with((after.unwrap_or_default().to_owned(), limit), read).await?)
    }

    /// What a limit is now.
    pub async fn definition(&self, name: &str) -> Result<Definition> {
        let read = async |tx: Tx, (directory, name): (Arc<Directory>, String)| {
            let found = directory.limits(&tx, std::slice::from_ref(&name)).await?;
            Ok(find(&found, &name).map(|named| named.definition)?)
        };
        Ok(self.store().read_with((self.ground().directory.clone(), name.to_owned()), read).await?)
    }

    /// What a limit was when this process asked it last; without asking.
    pub fn known(&self, name: &str) -> Option<Limit> {
        self.ground().directory.known(name).map(|named| *named.definition.limit())
    }

    /// Takes `cost` tokens if they are there, and otherwise nothing.
    pub async fn consume(&self, name: &str, key: &str, cost: u64) -> Result<Decision> {
        self.act(name, key, Verb::Consume(cost)).await
    }

    /// Tells what taking `cost` tokens would come to.
    pub async fn check(&self, name: &str, key: &str, cost: u64) -> Result<Decision> {
        self.act(name, key, Verb::Peek(cost)).await
    }

    /// Makes a key as if nobody had used it.
    pub async fn reset(&self, name: &str, key: &str) -> Result<()> {
        self.act(name, key, Verb::Reset).await.map(drop)
    }

    /// Does something to a key's budget.
    pub async fn act(&self, name: &str, key: &str, verb: Verb) -> Result<Decision> {
        check(key, verb)?;
        let ask = Ask(vec![Part { name: name.to_owned(), key: key.to_owned(), deed: Deed::Act(verb) }]);
        if verb.only_looks() {
            return Ok(one(self.look(ask).await?).0);
        }
        let outcomes = match verb {
            // Operators do these, seldom, and an audit entry goes along with the transaction of their task.
            Verb::Block(_) | Verb::Reset => self.ground().run_alone(ask).await,
            _ => self.0.ask(ask).await,
        };
        let answer = outcomes.map(|outcomes| one(outcomes).0);
        if let Verb::Consume(_) = verb {
            self.ground().heard.record(name, key, &answer);
        }
        answer
    }

    /// Takes `cost` tokens now or ahead of their coming, as long as no more than the limit's `maxReserved` are then owed.
    pub async fn reserve(&self, name: &str, key: &str, cost: u64) -> Result<Reservation> {
        check(key, Verb::Consume(cost))?;
        let part = Part { name: name.to_owned(), key: key.to_owned(), deed: Deed::Reserve(cost) };
        let outcome = self.0.ask(Ask(vec![part])).await.map(one);
        self.ground().heard.record(name, key, &outcome.clone().map(|(decision, _)| decision));
        let (decision, wait_ms) = outcome?;
        let retry_after_ms = if decision.allowed { Some(wait_ms) } else { decision.retry_after_ms };
        Ok(Reservation { ok: decision.allowed, retry_after_ms })
    }

    /// Takes from several limits: from all of them, or from none. The decisions are in the order of what was wanted;
    /// those that are denied say why nothing was taken.
    pub async fn consume_many(&self, wanted: &[Wanted]) -> Result<Vec<Decision>> {
        let outcomes = self.0.ask(many(wanted)?).await?;
        let decisions: Vec<Decision> = outcomes.into_iter().map(|(decision, _)| decision).collect();
        for (one, decision) in wanted.iter().zip(&decisions) {
            self.ground().heard.record(&one.name, &one.key, &Ok(*decision));
        }
        Ok(decisions)
    }

    /// As [`consume`](Self::consume), as a part of a transaction: what is taken is given back when it is rolled back.
    /// On PostgreSQL others who want the key wait until it ends.
    pub async fn consume_in(&self, tx: &Tx, name: &str, key: &str, cost: u64) -> Result<Decision> {
        let wanted = Wanted { name: name.to_owned(), key: key.to_owned(), cost };
        Ok(self.consume_many_in(tx, &[wanted]).await?[0])
    }

    /// As [`consume_many`](Self::consume_many), as a part of a transaction.
    pub async fn consume_many_in(&self, tx: &Tx, wanted: &[Wanted]) -> Result<Vec<Decision>> {
        let asks = [many(wanted)?];
        let ground = self.ground();
        let mut applied = apply(&ground.store, &ground.directory, tx, &asks).await?;
        let outcomes = applied.answers.pop().unwrap_or_else(|| Ok(Vec::new()))?;
        Ok(outcomes.into_iter().map(|(decision, _)| decision).collect())
    }

    /// How a key's budget stands.
    pub async fn value(&self, name: &str, key: &str) -> Result<Standing> {
        check_key(key)?;
        let read = async |tx: Tx, (directory, name, key): (Arc<Directory>, String, String)| {
            standing(&directory, &tx, &name, &key).await
        };
        let context = (self.ground().directory.clone(), name.to_owned(), key.to_owned());
        Ok(self.store().read_with(context, read).await?)
    }

    /// The named limit as a limiter. Its prefix is its name.
    pub async fn limiter(&self, name: &str) -> Result<StoreLimiter> {
        let definition = self.definition(name).await?;
        let policy = RwLock::new(policy(name, &definition)?);
        Ok(StoreLimiter { limits: self.clone(), name: name.to_owned(), policy })
    }

    /// Defines the limit that a policy's prefix names, without the colon at its end, and gives its limiter.
    pub async fn create(&self, policy: Policy) -> Result<StoreLimiter> {
        let name = policy.prefix().trim_end_matches(':').to_owned();
        self.define(&name, Definition::of(*policy.limit())).await?;
        self.limiter(&name).await
    }

    /// What was decided by this process, whatever the limit.
    pub fn figures(&self) -> &Figures {
        self.ground().heard.all()
    }

    /// The keys that a limit denied most in this process, the most denied first.
    pub fn most_denied(&self, name: &str, count: usize) -> Vec<MostDenied> {
        self.ground().heard.of(name).map(|figures| figures.most_denied(count)).unwrap_or_default()
    }

    /// The store that the limits are in.
    pub fn store(&self) -> &Store {
        &self.ground().store
    }

    fn ground(&self) -> &Ground {
        self.0.runs()
    }

    /// Looks without holding anything.
    async fn look(&self, ask: Ask) -> Result<Vec<Outcome>> {
        let ground = self.ground();
        let context = (ground.store.clone(), ground.directory.clone(), ask);
        let read = async |tx: Tx, (store, directory, ask): (Store, Arc<Directory>, Ask)| {
            apply(&store, &directory, &tx, &[ask]).await
        };
        let mut applied = ground.store.read_with(context, read).await?;
        applied.answers.pop().unwrap_or_else(|| ground.lost())
    }
}

impl Runs for Ground {
    type Ask = Ask;
    type Answer = Result<Vec<Outcome>>;

    async fn run(&self, asks: Vec<Ask>) -> Vec<Result<Vec<Outcome>>> {
        let asks = Arc::new(asks);
        let context = (self.store.clone(), self.directory.clone(), asks.clone());
        let run = async |tx: Tx, (store, directory, asks): (Store, Arc<Directory>, Arc<Vec<Ask>>)| {
            let applied = apply(&store, &directory, &tx, &asks).await?;
            match applied.answers.as_slice() {
                // Who asks alone and is refused has changed nothing. Rolled back, so that nothing goes along that says so.
                [Err(refused)] => Err(refused.clone().into()),
                _ => Ok(applied),
            }
        };
        match self.store.transact_with(context, run).await {
            Ok(Applied { answers, new }) => {
                self.sweep.note(&self.store, new);
                answers
            }
            Err(error) => {
                let error = Error::from(error);
                asks.iter().map(|_| Err(error.clone())).collect()
            }
        }
    }

    fn lost(&self) -> Result<Vec<Outcome>> {
        Err(mainstay_store::Error::Closed.into())
    }
}

fn many(wanted: &[Wanted]) -> Result<Ask> {
    if wanted.is_empty() || wanted.len() > MAX_WANTED {
        return Err(Error::invalid("limits", format!("are 1 to {MAX_WANTED}")));
    }
    let part = |one: &Wanted| {
        check(&one.key, Verb::Consume(one.cost))?;
        Ok(Part { name: one.name.clone(), key: one.key.clone(), deed: Deed::Act(Verb::Consume(one.cost)) })
    };
    Ok(Ask(wanted.iter().map(part).collect::<Result<_>>()?))
}

/// Most limits that are asked at once.
const MAX_WANTED: usize = 16;

fn one(mut outcomes: Vec<Outcome>) -> Outcome {
    outcomes.pop().unwrap_or((Decision::impossible(0), 0))
}

fn policy(name: &str, definition: &Definition) -> Result<Policy> {
    Policy::new(*definition.limit()).with_prefix(&format!("{name}:"))
}

const BUDGET: &str = "SELECT version, missing, at_ms FROM mainstay_budgets WHERE id = $1";

async fn standing(directory: &Directory, tx: &Tx, name: &str, key: &str) -> mainstay_store::Result<Standing> {
    let found = directory.limits(tx, &[name.to_owned()]).await?;
    let named = find(&found, name)?;
    let now_ms = tx.now_ms().await?;
    let mut value = 0;
    for (shard, limit) in named.limits.iter().enumerate() {
        let mut state = limit.fresh(now_ms);
        if let Some(row) = tx.query_optional(BUDGET, params![apply::id(name, shard as u64, key)]).await? {
            let written: i64 = row.get(0)?;
            state = State { missing: row.get(1)?, at_ms: row.get(2)? };
            if written != named.version {
                let before = Directory::earlier(tx, name, written).await?;
                let before = before.as_ref().and_then(|before| before.limits.get(shard));
                state = before.map_or(limit.fresh(now_ms), |before| limit.convert(before, &state, now_ms));
            }
        }
        value += limit.value(&state, now_ms);
    }
    Ok(Standing { value, capacity: named.definition.limit().capacity(), at_ms: now_ms })
}

/// A named limit as a limiter.
pub struct StoreLimiter {
    limits: Limits,
    name: String,
    /// As this process knows it; decisions go by what the store says.
    policy: RwLock<Policy>,
}

impl RateLimiter for StoreLimiter {
    fn act<'a>(&'a self, key: &'a str, verb: Verb) -> Answer<'a, Decision> {
        Answer::later(self.limits.act(&self.name, key, verb))
    }

    fn policy(&self) -> Policy {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_limit(&self, limit: Limit) -> Answer<'_, ()> {
        Answer::later(async move {
            let definition = self.limits.definition(&self.name).await?.with_limit(limit)?;
            self.limits.define(&self.name, definition).await?;
            *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy(&self.name, &definition)?;
            Ok(())
        })
    }
}
