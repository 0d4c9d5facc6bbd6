//! The store's behaviour, on every kind of store.

mod dialect;
mod transactions;
