//! Rate limits: one contract for every adapter, and what each promises beyond it.

mod contract;
mod layer;
mod memory;
mod redis;
mod store;
