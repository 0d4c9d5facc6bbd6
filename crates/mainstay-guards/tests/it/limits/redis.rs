//! Budgets in Redis, alone and as a cluster.

use super::contract::{self, Bench, bucket_policy};
use futures_util::future::join_all;
use mainstay_core::clock::{Clock, ManualClock};
use mainstay_core::limits::Account;
use mainstay_core::random::{Random, SeededRandom};
use mainstay_guards::limits::redis::{Options, Redis, WhenAway};
use mainstay_guards::limits::{Decision, Kind, Limit, Policy, RateLimiter, Verb};
use mainstay_testkit::redis as server;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Long, so that a busy machine is not mistaken for a Redis that is away.
const PATIENCE: Duration = Duration::from_secs(10);

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
        let redis = Redis::open(options(&servers).clock(clock.clone())).await.unwrap();
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
    async fn limiter(&self, policy: Policy) -> Arc<dyn RateLimiter> {
        self.set(Self::START_MS);
        Arc::new(self.redis.limiter(policy))
    }

    async fn again(&self, policy: Policy) -> Option<Arc<dyn RateLimiter>> {
        let redis = Redis::open(options(&self.servers).clock(self.clock.clone())).await.unwrap();
        Some(Arc::new(redis.limiter(policy)))
    }

    async fn advance(&self, by_ms: i64) {
        self.set(self.clock.now_ms() + by_ms);
    }
}

fn one() -> server::Redis {
    server::Redis::start().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_in_redis_keep_the_contract() {
    contract::hold(&InRedis::open(Servers::One(one())).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_in_a_cluster_keep_the_contract() {
    let cluster = server::RedisCluster::start().unwrap();
    let bench = InRedis::open(Servers::Many(cluster)).await;
    contract::hold(&bench).await;
    let Servers::Many(cluster) = &bench.servers else { unreachable!() };
    for master in cluster.masters() {
        let keys: u32 = master.command(&["DBSIZE"]).unwrap().parse().unwrap();
        assert!(keys > 0, "all masters have some of the keys");
    }
}

#[tokio::test]
async fn the_script_decides_as_the_arithmetic_does() {
    let bench = InRedis::open(Servers::One(one())).await;
    let random = SeededRandom::new(3);
    let limits = [
        Limit::bucket(10.0, 3.0).unwrap(),
        Limit::new(Kind::TokenBucket, 7.0, 60_000).unwrap().with_capacity(100.0).unwrap(),
        Limit::bucket(1e9, 1e6).unwrap(),
        Limit::new(Kind::FixedWindow, 5.0, 10_000).unwrap().with_capacity(12.0).unwrap().starting_at(3_000),
        Limit::new(Kind::SlidingWindow, 10.0, 10_000).unwrap(),
    ];
    for (number, limit) in limits.iter().enumerate() {
        let policy = Policy::new(*limit).with_prefix(&format!("model{number}:")).unwrap();
        let limiter = bench.limiter(policy).await;
        let mut model = Model { limit: *limit, kept: None };
        for step in 0..400 {
            let mut verb = any_verb(&random, &model.limit);
            if step % 35 == 34 {
                let next = limits[random.below(limits.len() as u64) as usize];
                model.set_limit(next, bench.clock.now_ms());
                limiter.set_limit(next).await.unwrap();
                verb = Verb::Refund(1);
            }
            let expected = model.act(verb, bench.clock.now_ms());
            // What is remembered of a denial is how much remained then; here Redis is asked each time.
            limiter.dispose();
            let decision = limiter.act("a", verb).await.unwrap();
            assert_eq!(decision, expected, "limit {number}, step {step}, {verb:?}, {:?}", model.limit);
            bench.advance(any_step(&random)).await;
        }
    }
}

#[tokio::test]
async fn calls_that_share_a_run_are_decided_one_after_another() {
    let bench = InRedis::open(Servers::One(one())).await;
    let random = SeededRandom::new(5);
    for (number, limit) in [
        Limit::bucket(40.0, 3.0).unwrap(),
        Limit::new(Kind::FixedWindow, 30.0, 10_000).unwrap(),
        Limit::new(Kind::SlidingWindow, 30.0, 10_000).unwrap(),
    ]
    .into_iter()
    .enumerate()
    {
        let policy = Policy::new(limit).with_prefix(&format!("run{number}:")).unwrap();
        let limiter = bench.limiter(policy).await;
        let mut models = ["a", "b", "c"].map(|key| (key, Model { limit, kept: None }));
        for round in 0..60 {
            let calls: Vec<(usize, Verb)> = (0..random.below(24))
                .map(|_| {
                    // Every other round asks the same of all keys.
                    let verb = if round % 2 == 0 { Verb::Consume(2) } else { any_verb(&random, &limit) };
                    (random.below(3) as usize, verb)
                })
                .collect();
            let now_ms = bench.clock.now_ms();
            let expected: Vec<_> =
                calls.iter().map(|(key, verb)| models[*key].1.act(*verb, now_ms)).collect();
            limiter.dispose();
            let acts = calls.iter().map(|(key, verb)| limiter.act(models[*key].0, *verb));
            let decisions: Vec<_> =
                join_all(acts).await.into_iter().map(|decision| decision.unwrap()).collect();
            assert_eq!(decisions, expected, "limit {number}, round {round}, {calls:?}");
            bench.advance(any_step(&random)).await;
        }
    }
    let runs = bench.redis.figures().batch_size.snapshot();
    assert!(runs.sum > 2 * runs.count, "{} calls in {} runs", runs.sum, runs.count);
}

/// The arithmetic of a key, with what Redis keeps of it.
struct Model {
    limit: Limit,
    kept: Option<Account>,
}

impl Model {
    fn act(&mut self, verb: Verb, now_ms: i64) -> Decision {
        let mut account = self.kept.unwrap_or_else(|| Account::fresh(&self.limit, now_ms));
        let decision = account.act(&self.limit, verb, now_ms);
        // Redis writes nothing for a denial, not even that time has passed, and keeps nothing that is over.
        if account.blocked_until_ms <= now_ms {
            account.blocked_until_ms = i64::MIN;
        }
        if !verb.only_looks() && (decision.allowed || !matches!(verb, Verb::Consume(_))) {
            self.kept = Some(account).filter(|account| !account.is_idle(&self.limit, now_ms));
        }
        decision
    }

    fn set_limit(&mut self, limit: Limit, now_ms: i64) {
        if let Some(account) = &mut self.kept {
            account.state = limit.convert(&self.limit, &account.state, now_ms);
        }
        self.limit = limit;
    }
}

fn any_verb(random: &SeededRandom, limit: &Limit) -> Verb {
    let amount = 1 + random.below(limit.capacity() + 2);
    match random.below(16) {
        0 => Verb::Refund(amount),
        1 => Verb::Penalize(amount),
        2 => Verb::Block(random.below(3_000)),
        3 => Verb::Peek(amount),
        4 => Verb::Reset,
        _ => Verb::Consume(1 + random.below(4)),
    }
}

/// How far the clock goes, forwards or back.
fn any_step(random: &SeededRandom) -> i64 {
    match random.below(4) {
        0 => 0,
        1 => random.below(5) as i64,
        2 => random.below(4_000) as i64,
        _ => -(random.below(20) as i64) * 100,
    }
}

#[tokio::test]
async fn b_036_a_budget_is_kept_for_twice_its_recovery_and_a_minute_at_least() {
    let bench = InRedis::open(Servers::One(one())).await;
    let Servers::One(server) = &bench.servers else { unreachable!() };
    let ttl = |prefix: &str| {
        let key = server.command(&["KEYS", &format!("*{prefix}:a")]).unwrap();
        server.command(&["PTTL", &key]).unwrap().parse::<u64>().unwrap()
    };
    for (name, capacity, rate, expected) in [
        ("a", 10.0, 1.0, 60_000),
        ("b", 100.0, 10.0, 60_000),
        ("c", 1.0, 10.0, 60_000),
        ("d", 100.0, 1.0, 200_000),
    ] {
        let limiter = bench.limiter(bucket_policy(name, capacity, rate)).await;
        limiter.consume("a", 1).await.unwrap();
        assert_eq!(ttl(name), expected);
        bench.advance(40).await;
        limiter.consume("a", capacity as u64).await.unwrap();
        assert_eq!(ttl(name), expected, "also when it is denied");
    }
    let own = Redis::open(Options::new(server.url()).timeout(PATIENCE).ttl_ms(5_000)).await.unwrap();
    own.limiter(bucket_policy("own", 10.0, 1.0)).consume("a", 1).await.unwrap();
    assert_eq!(ttl("own"), 5_000);
}

#[tokio::test]
async fn b_035_a_budget_is_a_hash_of_tokens_and_time() {
    let bench = InRedis::open(Servers::One(one())).await;
    let Servers::One(server) = &bench.servers else { unreachable!() };
    let limiter = bench.limiter(bucket_policy("hash", 10.0, 1.0)).await;
    limiter.consume("a", 3).await.unwrap();
    bench.advance(500).await;
    limiter.consume("a", 3).await.unwrap();
    let key = server.command(&["KEYS", "*hash:a"]).unwrap();
    let fields = server.command(&["HMGET", &key, "tokens", "last_ms", "carry"]).unwrap();
    assert_eq!(fields, format!("4\n{}\n500", InRedis::START_MS + 500));
    limiter.reset("a").await.unwrap();
    assert_eq!(server.command(&["EXISTS", &key]).unwrap(), "0");
}

#[tokio::test]
async fn b_035_a_script_that_is_missing_is_loaded_again() {
    let bench = InRedis::open(Servers::One(one())).await;
    let Servers::One(server) = &bench.servers else { unreachable!() };
    let limiter = bench.limiter(bucket_policy("script", 10.0, 1.0)).await;
    assert_eq!(limiter.consume("a", 1).await.unwrap(), Decision::allowed(9));
    server.command(&["SCRIPT", "FLUSH"]).unwrap();
    assert_eq!(limiter.consume("a", 1).await.unwrap(), Decision::allowed(8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_at_once_share_a_run_of_the_script() {
    let bench = InRedis::open(Servers::One(one())).await;
    let limiter = bench.limiter(bucket_policy("batch", 1_000.0, 1.0)).await;
    let callers: Vec<_> = (0..500)
        .map(|number| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.consume(&format!("user:{}", number % 7), 1).await })
        })
        .collect();
    for caller in callers {
        assert!(caller.await.unwrap().unwrap().allowed);
    }
    let runs = bench.redis.figures().batch_size.snapshot();
    assert_eq!(runs.sum, 500);
    assert!(runs.count < 250, "{} runs", runs.count);
}

#[tokio::test]
async fn a_denied_key_costs_redis_nothing_until_it_may_be_tried_again() {
    let bench = InRedis::open(Servers::One(one())).await;
    let limiter = bench.limiter(bucket_policy("denied", 10.0, 1.0)).await;
    limiter.consume("a", 10).await.unwrap();
    assert_eq!(limiter.consume("a", 2).await.unwrap(), Decision::denied(0, 2_000));
    let runs = bench.redis.figures().batch_size.snapshot().count;
    bench.advance(1_500).await;
    assert_eq!(limiter.consume("a", 2).await.unwrap(), Decision::denied(0, 500));
    assert_eq!(bench.redis.figures().batch_size.snapshot().count, runs);
    bench.advance(500).await;
    assert_eq!(limiter.consume("a", 2).await.unwrap(), Decision::allowed(0));
}

#[tokio::test]
async fn a_key_that_somebody_else_uses_fails_alone() {
    let bench = InRedis::open(Servers::One(one())).await;
    let Servers::One(server) = &bench.servers else { unreachable!() };
    let limiter = bench.limiter(bucket_policy("wrong", 10.0, 1.0)).await;
    limiter.consume("taken", 1).await.unwrap();
    let key = server.command(&["KEYS", "*wrong:taken"]).unwrap();
    server.command(&["SET", &key, "something else"]).unwrap();
    let calls: Vec<_> = ["a", "taken", "b", "taken", "c"]
        .into_iter()
        .map(|key| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.consume(key, 1).await })
        })
        .collect();
    let mut codes = Vec::new();
    for call in calls {
        codes.push(call.await.unwrap().map_or_else(|error| error.code(), |_| "allowed"));
    }
    assert_eq!(codes, ["allowed", "GUARD_INVALID", "allowed", "GUARD_INVALID", "allowed"]);
    assert!(bench.redis.is_up());
}

/// Short, because these wait for it, and long enough for a busy machine to answer.
const SHORT: Duration = Duration::from_secs(1);

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
async fn a_redis_that_is_killed_is_insured_and_taken_up_again() {
    let mut server = one();
    let redis = short(&server, WhenAway::Insure { nodes: 2 }).await;
    let limiter = redis.limiter(bucket_policy("killed", 10.0, 0.001));
    assert_eq!(limiter.consume("a", 1).await.unwrap(), Decision::allowed(9));
    server.kill9();
    let began = Instant::now();
    let mut allowed = 0;
    for _ in 0..20 {
        allowed += u32::from(limiter.consume("a", 1).await.unwrap().allowed);
    }
    assert_eq!(allowed, 5, "this node's half of the budget");
    assert!(began.elapsed() < SHORT * 4, "not each of the twenty waits: {:?}", began.elapsed());
    assert!(!redis.is_up());
    server.run().unwrap();
    until("Redis is back", || redis.is_up()).await;
    // It came back empty, so the budget is full again.
    assert_eq!(limiter.consume("a", 1).await.unwrap(), Decision::allowed(9));
    assert_eq!(redis.figures().outages.get(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_longer_for_a_paused_redis_than_was_configured() {
    let server = one();
    let redis = short(&server, WhenAway::Refuse).await;
    let limiter = Arc::new(redis.limiter(bucket_policy("paused", 1_000.0, 1.0)));
    assert!(limiter.consume("a", 1).await.unwrap().allowed);
    server.pause();
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let began = Instant::now();
                (limiter.consume("a", 1).await, began.elapsed())
            })
        })
        .collect();
    for caller in callers {
        let (answer, waited) = caller.await.unwrap();
        let error = answer.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("LIMITER_UNAVAILABLE", true));
        assert!(waited < SHORT * 4, "nobody waits for the others: {waited:?}");
    }
    let began = Instant::now();
    assert!(limiter.consume("a", 1).await.is_err());
    assert!(began.elapsed() < SHORT, "once it is known to be away nobody waits at all");
    server.resume();
    until("Redis is back", || redis.is_up()).await;
    assert!(limiter.consume("a", 1).await.unwrap().allowed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_away_from_the_start_is_waited_for() {
    let mut server = one();
    server.kill9();
    let options = Options::new(server.url()).timeout(SHORT).retry_every(Duration::from_millis(20));
    let redis = Redis::open(options).await.unwrap();
    let limiter = redis.limiter(bucket_policy("start", 10.0, 0.001));
    assert_eq!(limiter.consume("a", 4).await.unwrap(), Decision::allowed(6), "insured by default");
    server.run().unwrap();
    until("Redis is there", || redis.is_up()).await;
    assert_eq!(limiter.consume("a", 1).await.unwrap(), Decision::allowed(9));
    let error = Redis::open(Options::new("nonsense")).await.err().unwrap();
    assert_eq!(error.code(), "GUARD_INVALID");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_under_load_makes_nobody_wait_and_is_insured() {
    const LIMIT: Duration = Duration::from_secs(2);
    let mut cluster = server::RedisCluster::start().unwrap();
    let options = Options::cluster(cluster.urls()).timeout(LIMIT).retry_every(Duration::from_millis(100));
    let redis = Redis::open(options.when_away(WhenAway::Insure { nodes: 1 })).await.unwrap();
    until("the cluster is reached", || redis.is_up()).await;
    let limiter = Arc::new(redis.limiter(bucket_policy("master", 5.0, 0.001)));
    let (is_over, keys) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let caller = || {
        let (limiter, is_over, keys) = (limiter.clone(), is_over.clone(), keys.clone());
        tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::SeqCst) {
                // Each key is asked for seven times, and has five: from Redis, and from the insurance if that takes over.
                let key = format!("key {}", keys.fetch_add(1, Ordering::SeqCst));
                let mut allowed = 0;
                for _ in 0..7 {
                    let began = Instant::now();
                    allowed += u32::from(limiter.consume(&key, 1).await.unwrap().allowed);
                    longest = longest.max(began.elapsed());
                    // The insurance answers at once, and others shall have their turn.
                    tokio::task::yield_now().await;
                }
                assert!((5..=7).contains(&allowed), "{key}: {allowed}");
            }
            longest
        })
    };
    let callers: Vec<_> = (0..16).map(|_| caller()).collect();
    let asked = |count: u64| {
        let goal = keys.load(Ordering::SeqCst) + count;
        let keys = keys.clone();
        async move { until("calls are answered", || keys.load(Ordering::SeqCst) >= goal).await }
    };
    asked(200).await;
    // A busy machine may have been silent for too long already.
    let outages = redis.figures().outages.get();
    // It says nothing, then it goes on, and then it is gone.
    cluster.masters()[1].pause();
    until("its silence is noticed", || redis.figures().outages.get() > outages).await;
    asked(500).await;
    cluster.masters()[1].resume();
    until("it is heard again", || redis.is_up()).await;
    asked(200).await;
    let outages = redis.figures().outages.get();
    tokio::task::block_in_place(|| cluster.kill9(1));
    until("its death is noticed", || redis.figures().outages.get() > outages).await;
    asked(500).await;
    tokio::task::block_in_place(|| cluster.replace(1)).unwrap();
    asked(200).await;
    is_over.store(true, Ordering::SeqCst);
    for caller in callers {
        let longest = caller.await.unwrap();
        assert!(longest < LIMIT * 4, "{longest:?}");
    }
    // What had become of the cluster, it is used again: the insurance knows nothing of this.
    until("the cluster is reached again", || redis.is_up()).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let key = format!("after {}", keys.fetch_add(1, Ordering::SeqCst));
        limiter.consume(&key, 3).await.unwrap();
        let another = redis.limiter(bucket_policy("master", 5.0, 0.001));
        if another.peek(&key, 1).await.unwrap().remaining == 2 {
            return;
        }
        assert!(Instant::now() < deadline, "budgets are not in the cluster any more");
    }
}
