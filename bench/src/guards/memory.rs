//! Limiters in memory: what a decision costs with many keys and with one.

use super::threads::side_by_side;
use crate::rounds::{median, ratios, version};
use crate::table::Table;
use anyhow::{Result, ensure};
use governor::clock::{QuantaClock, QuantaUpkeepClock};
use governor::{Quota, RateLimiter};
use mainstay_guards::limits::{Policy, memory};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Threads and keys.
const CELLS: [(usize, u64); 4] = [(1, 100_000), (2, 100_000), (1, 1), (2, 1)];
/// Decisions of a thread in a turn.
const CALLS: u64 = 2_000_000;
const ROUNDS: usize = 5;

/// So much that nobody is ever denied: each decision takes a token and writes it down.
const CAPACITY: u32 = 1_000_000_000;
const PER_SECOND: u32 = 1_000_000;
/// How old the time may be that governor goes by, where it is told to keep it in the background.
const UPKEEP: Duration = Duration::from_millis(1);

/// Prints the table.
pub fn run() -> Result<()> {
    println!(
        "\nMemory: keys that are strings, {CALLS} decisions a thread, all of them allowed; the median of {ROUNDS} rounds \
         in turns\n\n- governor {}: DashMap, keyed by String; as it comes, with foldhash instead of SipHash, and with a \
         clock kept by a thread every {UPKEEP:?} as well\n- mainstay: `limits::memory`, with its defaults\n",
        version("governor")
    );
    let names = ENTRIES.map(|(name, _)| name);
    let mut table = Table::new(["what", "keys", "threads", "million /s", "ns a call", "ratio"]);
    for (threads, keys) in CELLS {
        let asks: Vec<Vec<String>> = (0..threads).map(|thread| asks(thread, keys)).collect();
        let mut rates = ENTRIES.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for ((_, open), rates) in ENTRIES.iter().zip(&mut rates) {
                rates.push(turn(&*open()?, keys, &asks)?);
            }
        }
        for ((name, rates), ratio) in names.iter().zip(&rates).zip(ratios(&names, &rates)) {
            let rate = median(rates.clone(), |rate| *rate);
            let ns = threads as f64 * 1e9 / rate;
            let (rate, ns) = (format!("{:.1}", rate / 1e6), format!("{ns:.1}"));
            table.add([(*name).to_owned(), keys.to_string(), threads.to_string(), rate, ns, ratio]);
        }
    }
    print!("{}", table.render());
    Ok(())
}

/// Decides about each of these keys; how many it allowed.
type Decides = dyn Fn(&[String]) -> u64 + Send + Sync;
type Open = fn() -> Result<Box<Decides>>;

const ENTRIES: [(&str, Open); 4] = [
    ("governor", || {
        let governor = RateLimiter::<String, _, _>::keyed(quota()?);
        Ok(decides(move |key| governor.check_key(key).is_ok()))
    }),
    ("governor, foldhash", || {
        let hasher = foldhash::fast::RandomState::default();
        let clock = QuantaClock::default();
        let governor = RateLimiter::dashmap_with_clock_and_hasher(quota()?, clock, hasher);
        Ok(decides(move |key: &String| governor.check_key(key).is_ok()))
    }),
    ("governor, foldhash, kept clock", || {
        let hasher = foldhash::fast::RandomState::default();
        let clock = QuantaUpkeepClock::from_interval(UPKEEP)?;
        let governor = RateLimiter::dashmap_with_clock_and_hasher(quota()?, clock, hasher);
        Ok(decides(move |key: &String| governor.check_key(key).is_ok()))
    }),
    ("mainstay", || {
        let limiter = memory::limiter(Policy::bucket(CAPACITY.into(), PER_SECOND.into())?);
        Ok(decides(move |key| limiter.consume_now(key, 1).is_ok_and(|decision| decision.allowed)))
    }),
];

fn quota() -> Result<Quota> {
    let burst = NonZeroU32::try_from(CAPACITY)?;
    Ok(Quota::per_second(NonZeroU32::try_from(PER_SECOND)?).allow_burst(burst))
}

/// The loop is compiled for each contender, so that nobody is called through a pointer.
fn decides(take: impl Fn(&String) -> bool + Send + Sync + 'static) -> Box<Decides> {
    Box::new(move |keys| keys.iter().map(|key| u64::from(take(key))).sum())
}

/// What a thread asks for, one after another. Every key is a string of its own and lies behind the one before, as near as
/// one that has just been made for a request.
fn asks(thread: usize, keys: u64) -> Vec<String> {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(thread as u64 + 1);
    let key = |_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        format!("user:{}", (u128::from(random) * u128::from(keys)) >> 64)
    };
    (0..CALLS).map(key).collect()
}

/// Decisions per second of all threads.
fn turn(decides: &Decides, keys: u64, asks: &[Vec<String>]) -> Result<f64> {
    decides(&(0..keys).map(|number| format!("user:{number}")).collect::<Vec<_>>());
    let allowed = AtomicU64::new(0);
    let took = side_by_side(asks.len(), &|thread| {
        allowed.fetch_add(decides(&asks[thread]), Ordering::Relaxed);
    });
    let (allowed, asked) = (allowed.into_inner(), asks.len() as u64 * CALLS);
    ensure!(allowed == asked, "{allowed} of {asked} were allowed");
    Ok(asked as f64 / took.as_secs_f64())
}
