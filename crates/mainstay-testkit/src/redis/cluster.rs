//! A Redis Cluster.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Redis;
use super::server::free_port;

/// How many hash slots a cluster has.
const SLOTS: usize = 16_384;
const MASTERS: usize = 3;
/// How long a master may say nothing before the others take it for dead; a busy machine keeps it from speaking, too.
const NODE_TIMEOUT_MS: &str = "5000";

/// A master, and where it talks to the others. That port may be taken by the time the master wants it, as its own may.
fn start_master() -> Result<(Redis, String)> {
    let bus = free_port()?.to_string();
    let cluster = ["--cluster-enabled", "yes", "--cluster-port", &bus];
    let options = [&cluster[..], &["--cluster-node-timeout", NODE_TIMEOUT_MS]].concat();
    Ok((Redis::start_with(&options)?, bus))
}

/// A cluster of three masters that belongs to one test.
#[derive(Debug)]
pub struct RedisCluster {
    masters: Vec<Redis>,
    /// Where the masters talk to each other.
    buses: Vec<String>,
}

impl RedisCluster {
    /// Starts three masters, and waits until each knows the others.
    pub fn start() -> Result<Self> {
        let mut cluster = Self { masters: Vec::new(), buses: Vec::new() };
        for _ in 0..MASTERS {
            let (master, bus) = start_master().or_else(|_| start_master())?;
            cluster.masters.push(master);
            cluster.buses.push(bus);
        }
        for number in 0..MASTERS {
            cluster.take_in(number, 0)?;
        }
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

    /// Kills a master in one stroke, with all that it had.
    pub fn kill9(&mut self, number: usize) {
        self.masters[number].kill9();
    }

    /// Puts an empty master in the place of one that was killed, and waits until the cluster is whole.
    pub fn replace(&mut self, number: usize) -> Result<()> {
        let dead = self.masters.iter().enumerate().filter(|(other, _)| *other != number);
        for (_, other) in dead {
            let nodes = other.command(&["CLUSTER", "NODES"])?;
            let port = format!(":{}@", self.masters[number].port());
            let line = nodes.lines().find(|line| line.contains(&port));
            if let Some(id) = line.and_then(|line| line.split(' ').next()) {
                other.command(&["CLUSTER", "FORGET", id])?;
            }
        }
        self.masters[number].run()?;
        self.take_in(number, (number + 1) % MASTERS)?;
        self.wait_until_whole()
    }

    /// Gives a master its slots, and lets it meet the others through one of them.
    fn take_in(&self, number: usize, through: usize) -> Result<()> {
        let (from, to) = (number * SLOTS / MASTERS, (number + 1) * SLOTS / MASTERS - 1);
        let master = &self.masters[number];
        master.command(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()])?;
        let port = master.port().to_string();
        self.masters[through].command(&["CLUSTER", "MEET", "127.0.0.1", &port, &self.buses[number]])?;
        Ok(())
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
