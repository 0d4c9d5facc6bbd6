//! What can be enqueued in the simulation, and the functions it calls.

use crate::{Call, Failure, Functions, NewWork, OnComplete, RetryPolicy};
use mainstay_core::random::Random;
use mainstay_store::{Tx, params};
use std::time::Duration;

/// The number of the first of them: the retrier and the timers have theirs before.
pub(super) const FIRST_POOL: i64 = 3;

pub(super) const POOLS: [(&str, u32); 2] = [("wide", 6), ("narrow", 2)];
/// Mutations that count what they did, so that doing it twice is seen.
pub(super) const TABLES: [&str; 2] =
    ["CREATE TABLE effects (id TEXT NOT NULL)", "CREATE TABLE told (id TEXT NOT NULL, kind TEXT NOT NULL)"];

/// - `act`: an action; what comes of it is up to the simulation
/// - `put`: a mutation that fails as often as its args say
/// - `told`, `told_badly`: an `onComplete` that is a mutation, and one that always fails
/// - `told_away`: an `onComplete` that is an action
pub(super) fn functions() -> Functions {
    Functions::new()
        .action("act", async |_: Call, (): ()| Ok::<_, Failure>(()))
        .action("told_away", async |_: Call, _: OnComplete| Ok::<_, Failure>(()))
        .mutation("put", async |tx: Tx, call: Call, failures: u32| {
            tx.execute("INSERT INTO effects (id) VALUES ($1)", params![&call.work_id]).await?;
            match call.attempt {
                attempt if attempt > failures => Ok(attempt),
                _ => Err(mainstay_store::Error::application(Failure::retryable("not yet"))),
            }
        })
        .mutation("told", async |tx: Tx, _: Call, told: OnComplete| {
            let sql = "INSERT INTO told (id, kind) VALUES ($1, $2)";
            tx.execute(sql, params![&told.work_id, told.result.kind()]).await
        })
        .mutation("told_badly", async |tx: Tx, _: Call, told: OnComplete| {
            tx.execute("INSERT INTO told (id, kind) VALUES ($1, '')", params![&told.work_id]).await?;
            Err::<(), _>(mainstay_store::Error::application(Failure::permanent("cannot be told")))
        })
}

/// The pool with its number among [`POOLS`].
pub(super) fn any_item(random: &dyn Random) -> (usize, NewWork) {
    let pool = random.below(2) as usize;
    let name = POOLS[pool].0;
    let new = match random.below(2) {
        0 => NewWork::new(name, "act", &()).unwrap(),
        _ => NewWork::new(name, "put", &random.below(3)).unwrap(),
    };
    let attempts = 1 + random.below(3) as u32;
    let mut new = new.retry(RetryPolicy::new(attempts, 100, 2.0, 1_000).unwrap());
    if random.below(3) > 0 {
        new = new.key(format!("key {}", random.below(3)));
    }
    if random.below(4) == 0 {
        new = new.run_after(Duration::from_millis(random.below(3_000)));
    }
    if random.below(4) == 0 {
        new = new.priority([-5, 5][random.below(2) as usize]);
    }
    if random.below(6) == 0 {
        new = new.dedupe(format!("once {}", random.below(3)), Duration::from_millis(random.below(4_000)));
    }
    let told = ["told", "told", "told", "told_badly", "told_away"];
    match told.get(random.below(7) as usize) {
        Some(function) => (pool, new.on_complete(*function, &pool).unwrap()),
        None => (pool, new),
    }
}
