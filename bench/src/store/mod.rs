//! Transactions with two small inserts: through Mainstay's store, and by hand on the same drivers.

pub mod long_read;
pub mod postgres;
pub mod sqlite;

use mainstay_bench::load::Load;
use std::time::Duration;

/// Callers at once, as the table shows them.
const CALLERS: [usize; 3] = [1, 8, 64];

fn load(callers: usize) -> Load {
    Load { callers, warm_up: Duration::from_millis(500), measured: Duration::from_secs(4) }
}
