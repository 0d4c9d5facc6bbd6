//! Slots in Redis, alone and as a cluster.

use super::contract::{self, Bench, SECOND, denied, slots, take};
use mainstay_core::clock::{Clock, ManualClock};
use mainstay_core::limits::leases::{Claim, Leases, Token};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_guards::limits::redis::{Options, Redis, WhenAway};
use mainstay_guards::limits::{Concurrency, Slots};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::redis as server;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Long, so that a busy machine is not mistaken for a Redis that is away.
const PATIENCE: Duration = Duration::from_secs(10);
/// Short, because these wait for it, and long enough for a busy machine to answer.
const SHORT: Duration = Duration::from_secs(1);

enum Servers {
    One(server::Redis),
    Many(server::RedisCluster),
}

struct InRedis {
    servers: Servers,
    redis: Redis,
    clock: Arc<ManualClock>,
}

impl InRedis {
    async fn open(servers: Servers) -> Self {
        let clock = Arc::new(ManualClock::at(Self::START_MS));
        let redis = Redis::open(options(&servers)).await.unwrap();
        let bench = Self { servers, redis, clock };
        bench.set(Self::START_MS);
        bench
    }

    fn set(&self, now_ms: i64) {
        self.clock.set(now_ms);
        match &self.servers {
            Servers::One(server) => server.set_time(now_ms),
            Servers::Many(cluster) => cluster.set_time(now_ms),
        }
    }
}

fn options(servers: &Servers) -> Options {
    let options = match servers {
        Servers::One(server) => Options::new(server.url()),
        Servers::Many(cluster) => Options::cluster(cluster.urls()),
    };
    options.timeout(PATIENCE).when_away(WhenAway::Refuse)
}

impl Bench for InRedis {
    async fn concurrency(&self, slots: Slots) -> Concurrency {
        self.set(Self::START_MS);
        self.redis.concurrency(slots)
    }

    async fn again(&self, slots: Slots) -> Option<Concurrency> {
        Some(Redis::open(options(&self.servers)).await.unwrap().concurrency(slots))
    }

    async fn advance(&self, by_ms: i64) {
        self.set(self.clock.now_ms() + by_ms);
    }
}

fn one() -> server::Redis {
    server::Redis::start().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_in_redis_keep_the_contract() {
    contract::hold(&InRedis::open(Servers::One(one())).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_in_a_cluster_keep_the_contract() {
    let bench = InRedis::open(Servers::Many(server::RedisCluster::start().unwrap())).await;
    contract::hold(&bench).await;
    let limit = bench.concurrency(slots("spread", 1)).await;
    for number in 0..50 {
        take(&limit, &format!("key {number}"), SECOND).await.keep();
    }
    let Servers::Many(cluster) = &bench.servers else { unreachable!() };
    for master in cluster.masters() {
        let keys: u32 = master.command(&["DBSIZE"]).unwrap().parse().unwrap();
        assert!(keys > 0, "all masters have some of the keys");
    }
}

#[tokio::test]
async fn the_script_decides_as_the_law_does() {
    let bench = InRedis::open(Servers::One(one())).await;
    let random = SeededRandom::new(11);
    for round in 0..6 {
        let count = 1 + random.below(4);
        let limit = bench.redis.concurrency(slots(&format!("model{round}"), count));
        let mut leases = Leases::default();
        bench.set(InRedis::START_MS);
        for step in 0..300 {
            let (token, ttl_ms) = (Token(u128::from(random.below(9)) << 100), 1 + random.below(3_000));
            let claim = match random.below(5) {
                0 | 1 => Claim::Acquire { token, ttl_ms },
                2 => Claim::Renew { token, ttl_ms },
                3 => Claim::Release { token },
                _ => Claim::Look,
            };
            let mut seen = leases.clone();
            let expected = seen.act(count, claim, bench.clock.now_ms());
            // A look writes nothing, not even that the clock was put back; but Redis forgets a key that is over.
            if !claim.only_looks() || seen.all().is_empty() {
                leases = seen;
            }
            let claimed = limit.limiter().act("a", claim).await.unwrap();
            assert_eq!(claimed, expected, "round {round}, step {step}, {claim:?}");
            let by_ms = match random.below(8) {
                0 => -(random.below(5_000) as i64),
                _ => random.below(900) as i64,
            };
            bench.advance(by_ms).await;
        }
    }
}

#[tokio::test]
async fn nothing_is_kept_of_a_key_when_the_last_lease_is_over() {
    let bench = InRedis::open(Servers::One(one())).await;
    let Servers::One(server) = &bench.servers else { unreachable!() };
    let limit = bench.concurrency(slots("ttl", 3)).await;
    take(&limit, "a", 5 * SECOND).await.keep();
    take(&limit, "a", SECOND).await.keep();
    let key = server.command(&["KEYS", "*ttl:a"]).unwrap();
    assert_eq!(server.command(&["PTTL", &key]).unwrap(), "5000");
    let permit = take(&limit, "b", SECOND).await;
    assert!(permit.release().await.unwrap());
    assert_eq!(server.command(&["KEYS", "*ttl:b"]).unwrap(), "");
    // A key of somebody else's is left alone.
    server.command(&["DEL", &key]).unwrap();
    server.command(&["SET", &key, "something else"]).unwrap();
    assert_eq!(limit.acquire("a", SECOND).await.unwrap_err().code(), "GUARD_INVALID");
    assert_eq!(server.command(&["GET", &key]).unwrap(), "something else");
}

#[tokio::test]
async fn a_script_that_is_missing_is_loaded_again() {
    let bench = InRedis::open(Servers::One(one())).await;
    let Servers::One(server) = &bench.servers else { unreachable!() };
    let limit = bench.concurrency(slots("script", 1)).await;
    server.command(&["SCRIPT", "FLUSH"]).unwrap();
    assert!(take(&limit, "a", SECOND).await.release().await.unwrap());
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn short(server: &server::Redis, when_away: WhenAway) -> Redis {
    let options = Options::new(server.url()).timeout(SHORT).retry_every(Duration::from_millis(20));
    let redis = Redis::open(options.when_away(when_away)).await.unwrap();
    until("Redis is reached", || redis.is_up()).await;
    redis
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_is_away_this_nodes_part_is_given_in_memory() {
    let mut server = one();
    let redis = short(&server, WhenAway::Insure { nodes: 2 }).await;
    let limit = redis.concurrency(slots("away", 4));
    let before = take(&limit, "a", 60 * SECOND).await;
    server.kill9();
    let began = Instant::now();
    assert!(before.renew(60 * SECOND).await.unwrap(), "who is in stays in");
    let insured = take(&limit, "a", 60 * SECOND).await;
    assert!(limit.acquire("a", SECOND).await.unwrap().permit().is_none(), "this node's part is 2");
    assert!(began.elapsed() < SHORT * 4, "{:?}", began.elapsed());
    server.run().unwrap();
    until("Redis is back", || redis.is_up()).await;
    assert!(insured.renew(60 * SECOND).await.unwrap());
    assert!(insured.release().await.unwrap());
    assert!(before.release().await.unwrap());
    assert_eq!(limit.in_use("a").await.unwrap(), 0, "it came back empty");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_longer_for_a_slot_of_a_paused_redis_than_was_configured() {
    let server = one();
    let redis = short(&server, WhenAway::Refuse).await;
    let limit = redis.concurrency(slots("paused", 100));
    server.pause();
    let callers = (0..50).map(|_| {
        let limit = limit.clone();
        tokio::spawn(async move {
            let began = Instant::now();
            (limit.acquire("a", SECOND).await.unwrap_err().code(), began.elapsed())
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        let (code, waited) = caller.await.unwrap();
        assert_eq!(code, "LIMITER_UNAVAILABLE");
        assert!(waited < SHORT * 4, "nobody waits for the others: {waited:?}");
    }
    server.resume();
    until("Redis is back", || redis.is_up()).await;
}

const URL: &str = "TEST_URL";

#[test]
fn child_holds_a_slot() {
    if !crash::is_child() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let options = Options::new(std::env::var(URL).unwrap()).timeout(PATIENCE);
        let limit = Redis::open(options).await.unwrap().concurrency(slots("died", 1));
        let permit = take(&limit, "a", SECOND).await;
        crash::ack(permit.grant().token);
        std::future::pending::<()>().await;
    });
}

#[tokio::test]
async fn a_holder_that_was_killed_keeps_its_slot_for_its_time_and_no_longer() {
    let bench = InRedis::open(Servers::One(one())).await;
    let Servers::One(server) = &bench.servers else { unreachable!() };
    let mut child =
        Child::of("concurrency::redis::child_holds_a_slot").env(URL, server.url()).spawn().unwrap();
    child.wait_for_acks(1, Duration::from_secs(30)).unwrap();
    child.kill9().unwrap();
    let limit = bench.redis.concurrency(slots("died", 1));
    assert_eq!(denied(&limit, "a").await, 1_000);
    bench.advance(999).await;
    assert_eq!(denied(&limit, "a").await, 1);
    bench.advance(1).await;
    assert!(take(&limit, "a", SECOND).await.release().await.unwrap());
}
