//! facade
pub use mainstay_store as store;
