//! Rate limits: one contract for every adapter, and what each promises beyond it.

mod contract;
mod crash;
mod layer;
mod memory;
mod outages;
mod redis;
mod store;

/// Whether long forms of tests are wanted.
fn is_long() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some()
}
