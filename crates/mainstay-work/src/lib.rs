//! The workshop: functions that are carried out durably.

pub mod egress;
pub mod http;
