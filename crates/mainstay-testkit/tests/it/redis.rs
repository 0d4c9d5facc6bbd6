//! The private Redis: killed, paused, with a time of its own, never left behind.

use anyhow::Result;
use mainstay_testkit::redis::{Redis, RedisCluster};

#[test]
fn a_killed_server_comes_back_empty_on_the_same_port() -> Result<()> {
    let mut redis = Redis::start()?;
    redis.command(&["SET", "a", "1"])?;
    redis.kill9();
    assert!(redis.command(&["PING"]).is_err());
    redis.run()?;
    assert_eq!(redis.command(&["EXISTS", "a"])?, "0");
    Ok(())
}

#[test]
fn time_is_the_tests_to_set() -> Result<()> {
    let redis = Redis::start()?;
    redis.set_time(1_000_500);
    assert_eq!(redis.command(&["TIME"])?, "1000\n500000");
    assert_eq!(redis.command(&["SET", "a", "1", "PX", "1000"])?, "OK");
    redis.set_time(1_001_499);
    assert_eq!(redis.command(&["EXISTS", "a"])?, "1");
    redis.set_time(1_001_501);
    assert_eq!(redis.command(&["EXISTS", "a"])?, "0");
    Ok(())
}

#[test]
fn a_cluster_spreads_its_keys() -> Result<()> {
    let cluster = RedisCluster::start()?;
    assert_eq!(cluster.urls().len(), 3);
    let kept =
        |key: &str| cluster.masters().iter().filter(|one| one.command(&["SET", key, "1"]).is_ok()).count();
    assert_eq!((kept("a"), kept("b"), kept("c")), (1, 1, 1));
    Ok(())
}

#[test]
fn a_server_ends_with_whoever_holds_it() -> Result<()> {
    let redis = Redis::start()?;
    redis.pause();
    let port = redis.port();
    drop(redis);
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "also one that was paused");
    Ok(())
}
