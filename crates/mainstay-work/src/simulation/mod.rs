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

use std::time::Instant;
use world::{Tally, World};

const STEPS: usize = 120;

fn is_long() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1")
}

/// The seeds to be tried: the one that is asked for, or so many from the first on.
fn seeds(in_ci: u64, if_long: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("MAINSTAY_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    match asked {
        Some(seed) => seed..seed + 1,
        None => 0..if is_long() { if_long } else { in_ci },
    }
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
    let (began, mut sum, seeds) = (Instant::now(), Tally::default(), seeds(200, 10_000));
    for seed in seeds.clone() {
        match live(seed, true) {
            Ok(tally) => sum += tally,
            Err(wrong) => panic!("{wrong}\nreplay it with MAINSTAY_SEED={seed}"),
        }
    }
    println!("{seeds:?}: {sum:?}, {:.1?}", began.elapsed());
    // A simulation in which nothing happens shows nothing.
    if seeds.end - seeds.start > 100 {
        assert!(sum.is_telling(), "{sum:?}");
    }
}

/// The same workers without the fence: whoever lost its lease changes what it should not, and that is noticed.
#[test]
#[cfg(debug_assertions)]
fn what_the_fence_keeps_out_is_noticed() {
    let wrong: Vec<String> = seeds(60, 60).filter_map(|seed| live(seed, false).err()).collect();
    let caught = wrong.len();
    println!("without the fence, {caught} of 60 seeds go wrong: {:?}", wrong.first());
    assert!(caught > 20 || std::env::var_os("MAINSTAY_SEED").is_some(), "{caught} of 60");
}
