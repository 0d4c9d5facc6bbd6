//! A seeded simulation of pools: workers that claim, end, stall and die over the real SQL, in virtual time.
//!
//! One number decides everything that happens, so what went wrong happens again when it is given in `MAINSTAY_SEED`.
//! The engine's tasks are left out: a step is one of the transactions that they make, in an order that they would
//! hardly ever come in.
//!
//! - `world`: who there is, and what a step may be
//! - `shop`: what can be enqueued, and the functions it calls
//! - `sight`: all that is in the tables, and what must hold of it after every step

mod shop;
mod sight;
mod world;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use world::{Tally, World};

const STEPS: usize = 120;
/// CI has time for so much, and for as many seeds as fit in, but for these at least.
const CI_TIME: Duration = Duration::from_secs(12);
const CI_LEAST: u64 = 40;
const CI_MOST: u64 = 2_000;
const LONG: u64 = 5_000;

fn is_long() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1")
}

/// The seed that is asked for.
fn asked() -> Option<u64> {
    std::env::var("MAINSTAY_SEED").ok().map(|seed| seed.parse().unwrap())
}

/// Lives through seeds on all cores, until there are none or no time is left; how many there were, what happened in all of
/// them, and what went wrong in the first that did.
fn live_through(seeds: Range<u64>, is_over: impl Fn(u64) -> bool + Sync) -> (u64, Tally, Option<String>) {
    let (next, is_wrong) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let results = Mutex::new((0, Tally::default(), None::<(u64, String)>));
    let take = || {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        (seed < seeds.end && !is_wrong.load(Ordering::Relaxed) && !is_over(seed)).then_some(seed)
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(seed) = take() {
                    let lived = live(seed, true);
                    let (count, sum, first) = &mut *results.lock().unwrap();
                    *count += 1;
                    match lived {
                        Ok(tally) => *sum += tally,
                        Err(wrong) => {
                            is_wrong.store(true, Ordering::Relaxed);
                            if first.as_ref().is_none_or(|(first, _)| seed < *first) {
                                *first = Some((seed, wrong));
                            }
                        }
                    }
                }
            });
        }
    });
    let (count, sum, first) = results.into_inner().unwrap();
    (count, sum, first.map(|(seed, wrong)| format!("{wrong}\nreplay it with MAINSTAY_SEED={seed}")))
}

/// Lives through one seed to its end, when nothing is left to do; what was wrong, if anything.
fn live(seed: u64, is_fenced: bool) -> Result<Tally, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(seed).await;
        if !is_fenced {
            world.take_fence_away();
        }
        for number in 0..STEPS {
            let step = world.step().await;
            let seen = match step {
                Ok(step) => world.look().await.map_err(|wrong| (step, wrong)),
                Err(wrong) => Err((String::new(), wrong)),
            };
            if let Err((step, wrong)) = seen {
                return Err(format!("seed {seed}, step {number} {step}: {wrong}"));
            }
        }
        world.drain().await.map_err(|wrong| format!("seed {seed}, at the end: {wrong}"))
    })
}

#[test]
fn whatever_workers_do_every_item_ends_once_and_keys_keep_their_order() {
    let began = Instant::now();
    let seeds = match asked() {
        Some(seed) => seed..seed + 1,
        None => 0..if is_long() { LONG } else { CI_MOST },
    };
    let is_over = |seed: u64| !is_long() && seed >= CI_LEAST && began.elapsed() > CI_TIME;
    let (count, sum, wrong) = live_through(seeds, is_over);
    println!("{count} seeds: {sum:?}, {:.1?}", began.elapsed());
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    // A simulation in which nothing happens shows nothing.
    assert!(count < 100 || sum.is_telling(), "{sum:?}");
}

/// The same workers without the fence: whoever lost its lease changes what it should not, and that is noticed.
#[test]
#[cfg(debug_assertions)]
fn what_the_fence_keeps_out_is_noticed() {
    const SEEDS: u64 = 20;
    let wrong: Vec<String> = (0..SEEDS).filter_map(|seed| live(seed, false).err()).collect();
    let caught = wrong.len();
    println!("without the fence, {caught} of {SEEDS} seeds go wrong: {:?}", wrong.first());
    assert!(caught as u64 > SEEDS / 2, "{caught} of {SEEDS}");
}
