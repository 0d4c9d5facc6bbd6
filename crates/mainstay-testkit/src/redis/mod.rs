//! Real Redis servers on demand, alone or as a cluster, whose time of day is in the hands of the test. They can be killed,
//! paused and started again empty, and none is left behind.

mod cluster;
mod server;
mod wire;

pub use cluster::RedisCluster;
pub use server::Redis;
