//! A Redis Cluster.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Redis;
use super::server::free_port;

/// How many hash slots a cluster has.
const SLOTS: u32 = 16_384;

/// A cluster of three masters that belongs to one test.
#[derive(Debug)]
pub struct RedisCluster {
    masters: Vec<Redis>,
}

impl RedisCluster {
    /// Starts three masters, and waits until each knows the others.
    pub fn start() -> Result<Self> {
        let mut masters = Vec::new();
        for _ in 0..3 {
            let bus = free_port()?.to_string();
            let options =
                ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", "2000"];
            masters.push((Redis::start_with(&options)?, bus));
        }
        for (number, (master, bus)) in (0..).zip(&masters) {
            let (from, to) = (number * SLOTS / 3, (number + 1) * SLOTS / 3 - 1);
            master.command(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()])?;
            let port = master.port().to_string();
            masters[0].0.command(&["CLUSTER", "MEET", "127.0.0.1", &port, bus])?;
        }
        let cluster = Self { masters: masters.into_iter().map(|(master, _)| master).collect() };
        cluster.wait_until_whole()?;
        Ok(cluster)
    }

    /// Where each master is.
    pub fn urls(&self) -> Vec<String> {
        self.masters.iter().map(Redis::url).collect()
    }

    /// The masters.
    pub fn masters(&self) -> &[Redis] {
        &self.masters
    }

    /// Puts the time of day of all masters to `now_ms`.
    pub fn set_time(&self, now_ms: i64) {
        self.masters.iter().for_each(|master| master.set_time(now_ms));
    }

    fn wait_until_whole(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let is_whole = |master: &Redis| {
            let info = master.command(&["CLUSTER", "INFO"]).unwrap_or_default();
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        while !self.masters.iter().all(is_whole) {
            ensure!(Instant::now() < deadline, "the masters of the test cluster do not find each other");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}
