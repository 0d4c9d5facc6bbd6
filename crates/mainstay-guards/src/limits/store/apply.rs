//! What is done to budgets in one transaction.

use super::directory::{Directory, Named, find};
use crate::Result;
use mainstay_core::limits::{Account, Decision, State, Verb};
use mainstay_core::random::Random;
use mainstay_store::{Bulk, Column, Hold, Row, Store, Tx, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

const BUDGET: [Column; 5] = [Column::Text, Column::Int, Column::Int, Column::Int, Column::Int];

/// In the order of ids, so that transactions of several nodes that want the same budgets wait for each other, and
/// never in a circle.
static HOLD: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list(
        "SELECT id, version, missing, at_ms, blocked_until FROM mainstay_budgets WHERE id IN ({values}) ORDER BY id",
    )
});
static PUT_NEW: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::insert(
        "INSERT INTO mainstay_budgets (id, version, missing, at_ms, blocked_until) VALUES {rows} \
         ON CONFLICT (id) DO NOTHING",
        &BUDGET,
    )
});
static PUT: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::insert(
        "INSERT INTO mainstay_budgets (id, version, missing, at_ms, blocked_until) VALUES {rows} \
         ON CONFLICT (id) DO UPDATE SET version = excluded.version, missing = excluded.missing, \
         at_ms = excluded.at_ms, blocked_until = excluded.blocked_until",
        &BUDGET,
    )
});
static REMOVE: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::list("DELETE FROM mainstay_budgets WHERE id IN ({values})"));

/// What is asked: something of one key, or several things that are done together or not at all.
#[derive(Debug, Clone)]
pub(super) struct Ask(pub(super) Vec<Part>);

#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) key: String,
    pub(super) deed: Deed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// Something that every limiter does.
    Act(Verb),
    /// Takes so many tokens now or ahead of their coming.
    Reserve(u64),
}

impl Deed {
    pub(super) fn only_looks(self) -> bool {
        matches!(self, Self::Act(verb) if verb.only_looks())
    }
}

/// How budgets are held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grip {
    /// Nothing is going to change.
    None,
    /// Nobody else is there.
    Alone,
    /// Other nodes may want them at the same time.
    Shared,
}

/// What came of a part: the decision, and how long to wait for what was reserved.
pub(super) type Outcome = (Decision, u64);

/// What the asks of a transaction have in common.
pub(super) struct Applied {
    /// What came of each ask.
    pub(super) answers: Vec<Result<Vec<Outcome>>>,
    /// How many budgets are new.
    pub(super) new: usize,
}

/// Does what is asked, one ask after another.
pub(super) async fn apply(
    store: &Store,
    directory: &Directory,
    tx: &Tx,
    asks: &[Ask],
) -> mainstay_store::Result<Applied> {
    let names: BTreeSet<&String> = asks.iter().flat_map(|ask| &ask.0).map(|part| &part.name).collect();
    let names: Vec<String> = names.into_iter().cloned().collect();
    let limits = directory.limits(tx, &names).await?;
    let plans: Vec<Result<Vec<Plan>>> = asks
        .iter()
        .map(|ask| ask.0.iter().map(|part| Plan::of(part, &limits, &**store.random())).collect())
        .collect();
    let wanted: BTreeMap<&str, &Target> = plans
        .iter()
        .flatten()
        .flatten()
        .flat_map(|plan| &plan.targets)
        .map(|target| (target.id.as_str(), target))
        .collect();
    let only_looks = plans.iter().flatten().flatten().all(|plan| plan.deed.only_looks());
    let grip = match (only_looks, store.capabilities().concurrent_writers) {
        (true, _) => Grip::None,
        (false, true) => Grip::Shared,
        (false, false) => Grip::Alone,
    };
    let mut budgets = Budgets::hold(grip, tx, &wanted).await?;
    let answers = plans.iter().map(|plan| match plan {
        Ok(parts) => Ok(budgets.act(parts)),
        Err(error) => Err(error.clone()),
    });
    let answers = answers.collect();
    let new = budgets.write(tx).await?;
    Ok(Applied { answers, new })
}

/// A part, with the budgets that it may be taken from.
struct Plan {
    deed: Deed,
    named: Arc<Named>,
    targets: Vec<Target>,
}

#[derive(Clone)]
struct Target {
    id: String,
    shard: usize,
    name: String,
    named: Arc<Named>,
}

impl Plan {
    fn of(part: &Part, limits: &HashMap<String, Arc<Named>>, random: &dyn Random) -> Result<Self> {
        let named = find(limits, &part.name)?.clone();
        let shards = choose(part.deed, named.definition.shards(), random);
        let targets = shards.into_iter().map(|shard| Target {
            id: id(&part.name, shard, &part.key),
            shard: shard as usize,
            name: part.name.clone(),
            named: named.clone(),
        });
        Ok(Self { deed: part.deed, targets: targets.collect(), named })
    }
}

/// The shards that something may be done to. Who takes looks at two of three or more, and takes from the fuller one;
/// what concerns a key as a whole is done to all.
fn choose(deed: Deed, shards: u64, random: &dyn Random) -> Vec<u64> {
    let one = random.below(shards);
    match deed {
        Deed::Act(Verb::Block(_) | Verb::Reset) => (0..shards).collect(),
        _ if shards < 3 => vec![one],
        _ => {
            let step = 1 + random.below(shards - 1);
            vec![one, (one + step) % shards]
        }
    }
}

/// Names and keys have no control characters.
pub(super) fn id(name: &str, shard: u64, key: &str) -> String {
    format!("{name}\n{shard}\n{key}")
}

/// The budgets of a transaction.
struct Budgets {
    now_ms: i64,
    all: HashMap<String, Budget>,
}

#[derive(Clone)]
struct Budget {
    account: Account,
    version: i64,
    is_stored: bool,
    has_changed: bool,
}

impl Budgets {
    /// Reads budgets, and holds them against other nodes until the transaction ends.
    async fn hold(grip: Grip, tx: &Tx, wanted: &BTreeMap<&str, &Target>) -> mainstay_store::Result<Self> {
        let ids: Vec<Value> = wanted.keys().map(|id| Value::from(*id)).collect();
        let mut rows = match grip {
            Grip::None => HOLD.query(tx, &ids).await?,
            Grip::Alone | Grip::Shared => HOLD.query_holding(tx, &ids, Hold::Alone).await?,
        };
        // What is not there cannot be held. So it is put there, by whoever is first; who was may have removed it again.
        while grip == Grip::Shared && rows.len() < ids.len() {
            let new: Vec<Value> = ids.iter().flat_map(|id| row(id.clone(), NEVER, &nothing())).collect();
            PUT_NEW.execute(tx, &new).await?;
            rows = HOLD.query_holding(tx, &ids, Hold::Alone).await?;
        }
        // After the wait for those who held them, if there was one.
        let now_ms = tx.now_ms().await?;
        let mut budgets = Self { now_ms, all: HashMap::with_capacity(wanted.len()) };
        for row in &rows {
            let id: &str = row.get(0)?;
            if let Some(target) = wanted.get(id) {
                let mut budget = budgets.read(tx, row, target).await?;
                budget.has_changed &= grip != Grip::None;
                budgets.all.insert(id.to_owned(), budget);
            }
        }
        for (id, target) in wanted {
            if !budgets.all.contains_key(*id) {
                let account = Account::fresh(&target.named.limits[target.shard], now_ms);
                let budget =
                    Budget { account, version: target.named.version, is_stored: false, has_changed: false };
                budgets.all.insert((*id).to_owned(), budget);
            }
        }
        Ok(budgets)
    }

    async fn read(&self, tx: &Tx, row: &Row, target: &Target) -> mainstay_store::Result<Budget> {
        let written: i64 = row.get(1)?;
        let state = State { missing: row.get(2)?, at_ms: row.get(3)? };
        let limit = &target.named.limits[target.shard];
        let current = target.named.version;
        let mut account = Account { state, blocked_until_ms: row.get(4)? };
        if written == NEVER {
            account = Account::fresh(limit, self.now_ms);
        } else if written != current {
            let before = Directory::earlier(tx, &target.name, written).await?;
            let before = before.as_ref().and_then(|before| before.limits.get(target.shard));
            account.state =
                before.map_or(limit.fresh(self.now_ms), |before| limit.convert(before, &state, self.now_ms));
        }
        Ok(Budget { account, version: current, is_stored: written != NEVER, has_changed: written != current })
    }

    /// Does all parts, or none of them when something cannot be had.
    fn act(&mut self, parts: &[Plan]) -> Vec<Outcome> {
        let targets = parts.iter().flat_map(|part| &part.targets);
        let before: Vec<(&str, Budget)> = match parts {
            [_] => Vec::new(),
            _ => targets.map(|target| (target.id.as_str(), self.all[&target.id].clone())).collect(),
        };
        let outcomes: Vec<Outcome> = parts.iter().map(|part| self.act_one(part)).collect();
        if !before.is_empty() && outcomes.iter().any(|(decision, _)| !decision.allowed) {
            self.all.extend(before.into_iter().map(|(id, budget)| (id.to_owned(), budget)));
        }
        outcomes
    }

    fn act_one(&mut self, part: &Plan) -> Outcome {
        if part.targets.len() > 2 || matches!(part.deed, Deed::Act(Verb::Block(_) | Verb::Reset)) {
            return self.act_on_all(part);
        }
        let fullness = |target: &&Target| {
            let limit = &part.named.limits[target.shard];
            limit.value(&self.all[&target.id].account.state, self.now_ms)
        };
        let target = match part.deed {
            // What is given back is given to the emptier one, where there is room for it.
            Deed::Act(Verb::Refund(_)) => part.targets.iter().min_by_key(fullness),
            _ => part.targets.iter().max_by_key(fullness),
        };
        target.map_or((Decision::impossible(0), 0), |target| self.act_on(part, target))
    }

    fn act_on_all(&mut self, part: &Plan) -> Outcome {
        let outcomes: Vec<Outcome> = part.targets.iter().map(|target| self.act_on(part, target)).collect();
        let remaining = outcomes.iter().map(|(decision, _)| decision.remaining).sum();
        let (first, wait_ms) = outcomes[0];
        (Decision { remaining, ..first }, wait_ms)
    }

    fn act_on(&mut self, part: &Plan, target: &Target) -> Outcome {
        let limit = &part.named.limits[target.shard];
        let Some(budget) = self.all.get_mut(&target.id) else { return (Decision::impossible(0), 0) };
        match part.deed {
            Deed::Act(verb) => {
                let decision = budget.account.act(limit, verb, self.now_ms);
                let is_charged = !matches!(verb, Verb::Consume(_)) || decision.allowed;
                budget.has_changed |= is_charged && !verb.only_looks();
                (decision, 0)
            }
            Deed::Reserve(_) if budget.account.blocked_until_ms > self.now_ms => {
                (budget.account.act(limit, Verb::Peek(1), self.now_ms), 0)
            }
            Deed::Reserve(cost) => {
                let most = part.named.definition.max_reserved();
                let outcome = limit.reserve(&mut budget.account.state, self.now_ms, cost, most);
                budget.has_changed |= outcome.0.allowed;
                outcome
            }
        }
    }

    /// Writes what has changed; how many budgets are new.
    async fn write(self, tx: &Tx) -> mainstay_store::Result<usize> {
        let (mut changed, mut recovered, mut new) = (Vec::new(), Vec::new(), 0);
        let mut all: Vec<(String, Budget)> =
            self.all.into_iter().filter(|(_, budget)| budget.has_changed).collect();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (id, budget) in all {
            let is_idle = budget.account.state.missing == 0 && budget.account.blocked_until_ms <= self.now_ms;
            if is_idle {
                recovered.push(Value::from(id));
            } else {
                new += usize::from(!budget.is_stored);
                changed.extend(row(Value::from(id), budget.version, &budget.account));
            }
        }
        PUT.execute(tx, &changed).await?;
        REMOVE.execute(tx, &recovered).await?;
        Ok(new)
    }
}

/// The version of a budget that was only put there to be held.
pub(super) const NEVER: i64 = 0;

fn nothing() -> Account {
    Account { state: State { missing: 0, at_ms: 0 }, blocked_until_ms: 0 }
}

fn row(id: Value, version: i64, account: &Account) -> [Value; 5] {
    let Account { state, blocked_until_ms } = account;
    [id, version.into(), state.missing.into(), state.at_ms.into(), (*blocked_until_ms).into()]
}
