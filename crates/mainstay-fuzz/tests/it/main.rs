//! Every target over its corpus, over inputs made from it, and over long ones.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

use mainstay_fuzz::{Mutator, TARGETS, Target};
use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Inputs that are made for each target; the long form is what a release is tried with.
const INPUTS: usize = 3_000;
const INPUTS_LONG: usize = 1_000_000;
/// Length of an input that shows whether time grows with the square of it.
const LONG_BYTES: usize = 256 << 10;
/// Far more than a debug build on a busy machine needs for a long input, and far less than a parser that is quadratic.
const LONG_MOST: Duration = Duration::from_secs(4);

fn corpus_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The inputs of a target's corpus, in the order of their names.
fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = corpus_folder().join(target.name);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Tries an input, and says which one it was when it fails.
fn attempt(target: &Target, input: &[u8]) {
    if catch_unwind(|| (target.run)(input)).is_err() {
        panic!("{} fails; add this to its corpus: b\"{}\"", target.name, shown(input));
    }
}

/// An input as a literal of Rust; of a long one, which a test has made by repetition, the beginning.
fn shown(input: &[u8]) -> String {
    input.iter().take(4_096).copied().flat_map(std::ascii::escape_default).map(char::from).collect()
}

fn find(name: &str) -> Target {
    *TARGETS.iter().find(|target| target.name == name).unwrap()
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let names: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let folders: BTreeSet<String> = fs::read_dir(corpus_folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, folders);
    for name in names {
        assert!(corpus(&find(&name)).len() >= 8, "the corpus of {name} is thin");
        let glue = corpus_folder().join(format!("../fuzz_targets/{name}.rs"));
        assert!(fs::read_to_string(glue).unwrap().contains(&format!("mainstay_fuzz::{name}(data)")));
    }
}

fn try_all(name: &str) {
    let target = find(name);
    let inputs = corpus(&target);
    inputs.iter().for_each(|input| attempt(&target, input));
    let is_long = std::env::var_os("MAINSTAY_LONG").is_some();
    let count = if is_long { INPUTS_LONG } else { INPUTS };
    let mut mutator = Mutator::new(inputs, 1);
    let start = Instant::now();
    for _ in 0..count {
        attempt(&target, &mutator.input());
    }
    println!("{name}: {count} inputs in {:.1} s", start.elapsed().as_secs_f64());
}

macro_rules! tried {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            try_all(stringify!($name));
        })*

        #[test]
        fn every_target_is_tried() {
            assert_eq!([$(stringify!($name)),*], TARGETS.map(|target| target.name));
        }
    };
}

tried! { config cron cursor json query signature sql traceparent }

#[test]
fn time_grows_with_the_length_of_an_input() {
    for target in &TARGETS {
        for part in corpus(target).iter().filter(|part| !part.is_empty()) {
            let input = part.repeat(LONG_BYTES / part.len());
            // Under load one try says little.
            let took = || {
                let start = Instant::now();
                attempt(target, &input);
                start.elapsed()
            };
            let is_quick = (0..3).any(|_| took() < LONG_MOST);
            assert!(is_quick, "{}: {LONG_BYTES} bytes of b\"{}\" take too long", target.name, shown(part));
        }
    }
}

#[test]
fn a_seed_makes_the_same_inputs_again() {
    let made = |seed| {
        let mut mutator = Mutator::new(vec![b"a=1".to_vec(), b"b".to_vec()], seed);
        (0..50).map(|_| mutator.input()).collect::<Vec<_>>()
    };
    assert_eq!(made(7), made(7));
    assert_ne!(made(7), made(8));
}
