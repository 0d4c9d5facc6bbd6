//! Behaviour of the testkit itself.

mod postgres;
