//! From when on something is wrong.

use mainstay_core::health::usual_depth;
use std::collections::BTreeMap;

/// From when on something is wrong.
#[derive(Debug, Clone)]
pub struct HealthRules {
    /// How many events a projection may be behind before the server is not ready.
    pub max_lag: u64,
    /// How many items of a pool may wait before the server is not ready; twice its parallelism unless said.
    pub max_depth: BTreeMap<String, u64>,
    /// From how many dead letters on, which nobody has dealt with, the system is degraded.
    pub max_letters: u32,
}

impl Default for HealthRules {
    fn default() -> Self {
        Self { max_lag: 100, max_depth: BTreeMap::new(), max_letters: 10 }
    }
}

impl HealthRules {
    /// How many items of a pool may wait.
    pub(super) fn depth(&self, pool: &str, max_parallelism: u32) -> u64 {
        self.max_depth.get(pool).copied().unwrap_or_else(|| usual_depth(max_parallelism))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_241_a_pool_may_hold_twice_its_parallelism_unless_said() {
        let rules = HealthRules { max_depth: [("own".to_owned(), 7)].into(), ..HealthRules::default() };
        for (pool, parallelism, depth) in
            [("projectionPool", 10, 20), ("dcbRetryPool", 10, 20), ("eventReplayPool", 5, 10), ("own", 10, 7)]
        {
            assert_eq!(rules.depth(pool, parallelism), depth, "{pool}");
        }
    }
}
