//! Processes that die or stop while what they deliver fails: actions that are refused or cancelled, ends and appends that
//! meet another version of their stream until they are letters, and intents that nobody completes.
//!
//! Afterwards one that lives does what is left. Then the end of every action is one event or one letter of its outbox, and
//! no action has a letter. Every append that cannot be done is one letter and told of once. Every intent is abandoned, or
//! listed as pending.
//!
//! - `node`: a shop in which everything fails
//! - `found`: what there is afterwards

mod found;
mod node;

use found::Found;
use mainstay_core::random::{Random, SeededRandom};
use mainstay_store::{Options, Tx};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, Place};
use mainstay_work::LetterFilter;
use node::{LEASE, LIMIT, Node, PATIENCE};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::sync::Mutex;
use std::time::Duration;

const SIGABRT: i32 = 6;
const CALLERS: u64 = 2;

const URL: &str = "TEST_URL";
const CYCLE: &str = "TEST_CYCLE";
const PAUSED: &str = "TEST_PAUSED";

fn is_long() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(work)
}

#[test]
fn child_fails() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let cycle: u64 = std::env::var(CYCLE).unwrap().parse().unwrap();
        let options = Options::new(std::env::var(URL).unwrap()).connections(4);
        let node = Node::open(match std::env::var_os(PAUSED) {
            Some(_) => options.transaction_timeout(LIMIT),
            None => options,
        })
        .await;
        let _engine = node.work.start().await.unwrap();
        crash::say("fails");
        let asking = (0..CALLERS).map(|caller| {
            let (node, random) = (&node, SeededRandom::new(cycle * CALLERS + caller));
            async move {
                for number in 0_u64.. {
                    let wait = Duration::from_millis(1 + random.below(12));
                    // A node that was paused may be told that its transaction is over.
                    drop(node.ask(&format!("{cycle}-{caller}-{number}"), wait, crash::ack).await);
                }
            }
        });
        futures_util::future::join_all(asking).await;
    });
}

struct Home {
    place: Place,
    promised: BTreeSet<String>,
}

impl Home {
    fn new(kind: Kind) -> Self {
        let home = Self { place: Place::new(kind), promised: BTreeSet::new() };
        block_on(async { Node::open(home.place.options()).await.store.close().await });
        home
    }

    fn child(&self, cycle: u64) -> Child {
        let child = Child::of("delivery::crash_failing::child_fails");
        child.env(URL, self.place.url()).env(CYCLE, cycle.to_string())
    }

    /// Lets a process that lives do what is left; everything that is wrong then.
    fn check(&self) -> Vec<String> {
        block_on(async {
            let node = Node::open(self.place.options()).await;
            node.drain().await;
            let mut found = Found::load(&node).await;
            for promise in &self.promised {
                let (what, id) = promise.split_once(' ').unwrap();
                if !found.holds(what, id) {
                    let (event, letter) = (found.event_of(id), found.letters.get(id));
                    found.wrong.push(format!("{promise}: {event:?}, letter {letter:?}"));
                }
            }
            for (id, times) in &found.letters {
                let is_told = !id.ends_with("-append") || found.told.get(id) == Some(&1);
                if *times != 1 || !is_told {
                    found.wrong.push(format!("{id} is a letter {times} times: {:?}", found.told.get(id)));
                }
            }
            println!(
                "{}: {} promises, {} events, {} letters, {} intents",
                self.place.kind(),
                self.promised.len(),
                found.events.len(),
                found.letters.len(),
                found.intents.len()
            );
            node.store.close().await;
            found.wrong
        })
    }

    fn nothing_is_wrong(&self, seed: u64) {
        let wrong = self.check();
        assert!(wrong.is_empty(), "seed {seed}, {} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
    }
}

/// Deaths at commits and between them, at passings that a seed tells.
fn survive(kind: Kind) {
    let (aborts, kills) = if is_long() { (60, 60) } else { (3, 2) };
    let (seed, mut home, mut cycle) = (11, Home::new(kind), 0);
    let random = SeededRandom::new(seed);
    for point in ["store.commit", "store.committed"] {
        for _ in 0..aborts {
            // The first ones are those of opening.
            let failpoint = format!("{point}=abort@{}", 9 + random.below(60));
            let mut child = home.child(cycle).env("MAINSTAY_FAILPOINTS", &failpoint).spawn().unwrap();
            let status = child.wait(PATIENCE).unwrap();
            assert_eq!(status.signal(), Some(SIGABRT), "{failpoint} strikes: {:?}", child.said());
            home.promised.extend(child.acknowledged());
            cycle += 1;
        }
    }
    for _ in 0..kills {
        let mut child = home.child(cycle).spawn().unwrap();
        child.wait_for_acks(1 + random.below(60) as usize, PATIENCE).unwrap();
        child.kill9().unwrap();
        home.promised.extend(child.acknowledged());
        cycle += 1;
    }
    println!("{kind}, seed {seed}: {cycle} deaths");
    home.nothing_is_wrong(seed);
}

#[test]
fn b_278_a_death_while_delivery_fails_loses_and_doubles_no_failure_on_sqlite() {
    survive(Kind::SqliteFile);
}

#[test]
fn b_278_a_death_while_delivery_fails_loses_and_doubles_no_failure_on_postgres() {
    survive(Kind::Postgres);
}

/// Two nodes on one PostgreSQL. One is stopped for longer than its lease and its transactions last, while the other takes up
/// what it had.
#[test]
fn b_278_a_node_paused_while_delivery_fails_loses_and_doubles_no_failure() {
    let (seed, mut home) = (7, Home::new(Kind::Postgres));
    let (random, own) = (SeededRandom::new(seed), Mutex::new(Vec::new()));
    let mut child = home.child(0).env(PAUSED, "1").spawn().unwrap();
    child.wait_for("fails", PATIENCE).unwrap();
    block_on(async {
        let node = Node::open(home.place.options()).await;
        let engine = node.work.start().await.unwrap();
        for round in 0..if is_long() { 30 } else { 2 } {
            child
                .wait_for_acks(child.acknowledged().len() + 1 + random.below(40) as usize, PATIENCE)
                .unwrap();
            child.stop().unwrap();
            let before = tokio::time::Instant::now();
            for number in (0..).take_while(|_| before.elapsed() < LEASE * 3) {
                // It waits for what the other holds, and not longer than it may.
                let keep = |promise: String| own.lock().unwrap().push(promise);
                drop(node.ask(&format!("own-{round}-{number}"), Duration::from_millis(5), keep).await);
            }
            child.cont().unwrap();
        }
        engine.stop(PATIENCE).await.unwrap();
        node.store.close().await;
    });
    child.wait_for_acks(child.acknowledged().len() + 20, PATIENCE).unwrap();
    child.kill9().unwrap();
    home.promised.extend(child.acknowledged());
    home.promised.extend(own.into_inner().unwrap());
    home.nothing_is_wrong(seed);
}

/// Letters that are lost, and an intent whose handler was never called: that must be seen.
#[test]
fn the_check_finds_a_failure_that_is_lost() {
    let mut home = Home::new(Kind::SqliteFile);
    let promised = Mutex::new(Vec::new());
    block_on(async {
        let node = Node::open(home.place.options()).await;
        let keep = |promise: String| promised.lock().unwrap().push(promise);
        for id in ["one", "other"] {
            node.ask(id, Duration::from_millis(1), keep).await.unwrap();
        }
        node.drain().await;
        for letter in node.work.letters(LetterFilter::default(), 100).await.unwrap() {
            if letter.kind == "append" {
                node.work.ignore_letter(&letter.work_id).await.unwrap();
            }
        }
        let forget = async |tx: Tx| {
            tx.execute("DELETE FROM told WHERE id IN (SELECT min(id) FROM told WHERE id LIKE 'Sub%')", &[])
                .await
        };
        node.store.transact(forget).await.unwrap();
        node.store.close().await;
    });
    home.promised.extend(promised.into_inner().unwrap());
    let wrong = home.check();
    for what in ["letter one-append", "letter other-append", "intent "] {
        assert!(wrong.iter().any(|one| one.starts_with(what)), "{what}: {wrong:#?}");
    }
    assert_eq!(wrong.len(), 3, "and nothing else: {wrong:#?}");
}
