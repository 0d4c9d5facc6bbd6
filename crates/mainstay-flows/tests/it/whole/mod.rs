//! Whatever happens, in whatever order, and whenever the process dies: what somebody was told is true, and nothing is there
//! twice.
//!
//! Random commands, duplicates, conflicts and failures, poison events, replays in place and beside, pauses and
//! cancellations are carried out on a house that dies at any step and is opened again. A model in memory remembers what
//! was told. In the end the log, the authors' rows, the work, those who were to be told, the read models and their
//! checkpoints are what the model says.
//!
//! - `steps`: what may happen
//! - `house`: one life of the process
//! - `model`: what must be true
//! - `world`: carries out, and compares

mod house;
mod model;
mod steps;
mod world;

use mainstay_testkit::stores::{Kind, Place};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::sync::{Arc, Mutex};
use steps::{Step, steps};
use world::{Tally, World};

/// A house that is wrong on purpose: the test must see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    /// Commands are answered before they are committed.
    AnswersEarly,
    /// Read models are written in transactions of their own.
    WritesOutside,
}

async fn live_through(place: Place, steps: Vec<Step>, mutant: Mutant) -> Tally {
    let mut world = World::open(place, mutant).await;
    for step in &steps {
        world.take(step).await;
    }
    world.settle().await;
    world.check().await;
    world.mend().await;
    world.check().await;
    let tally = world.tally;
    world.close().await;
    tally
}

/// One case: its number decides what happens.
fn case(kind: Kind, seed: u64, mutant: Mutant) -> Result<Tally, String> {
    let shrinks = if mutant == Mutant::None { 16 } else { 0 };
    let config =
        Config { cases: 1, failure_persistence: None, max_shrink_iters: shrinks, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let tally = Arc::new(Mutex::new(Tally::default()));
    let kept = tally.clone();
    let run = move |steps: Vec<Step>| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        *kept.lock().unwrap() = runtime.unwrap().block_on(live_through(Place::new(kind), steps, mutant));
        Ok(())
    };
    let done = runner.run(&steps(), run);
    let tally = *tally.lock().unwrap();
    done.map(|()| tally).map_err(|error| format!("{error}\nreplay it with MAINSTAY_SEED={seed}"))
}

fn whatever_happens(kind: Kind, cases: u64) {
    let cases = if std::env::var_os("MAINSTAY_LONG").is_some() { cases * 40 } else { cases };
    let given = std::env::var("MAINSTAY_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let seeds = given.map_or(0..cases, |seed| seed..seed + 1);
    let mut sum = Tally::default();
    for seed in seeds {
        let tally = case(kind, seed, Mutant::None).unwrap_or_else(|wrong| panic!("on {kind}: {wrong}"));
        sum.commands += tally.commands;
        sum.deaths += tally.deaths;
        sum.deferred += tally.deferred;
        sum.unheard += tally.unheard;
    }
    println!("{kind}: {sum:?}");
    if given.is_none() {
        let Tally { commands, deaths, deferred, unheard } = sum;
        assert!([commands, deaths, deferred, unheard].iter().all(|count| *count > 0), "{sum:?} is no test");
    }
}

#[test]
fn whatever_happens_what_was_told_is_true_on_sqlite() {
    whatever_happens(Kind::SqliteFile, 16);
}

#[test]
fn whatever_happens_what_was_told_is_true_on_postgres() {
    whatever_happens(Kind::Postgres, 6);
}

/// A case in which a mutant is noticed.
fn is_noticed(mutant: Mutant) {
    let noticed = (0..200).find_map(|seed| case(Kind::SqliteFile, seed, mutant).err());
    println!("{mutant:?}: {}", noticed.unwrap_or_else(|| panic!("nobody noticed {mutant:?}")));
}

#[test]
fn a_house_that_answers_before_the_commit_is_noticed() {
    is_noticed(Mutant::AnswersEarly);
}

#[test]
fn a_house_whose_read_models_are_written_outside_is_noticed() {
    is_noticed(Mutant::WritesOutside);
}
