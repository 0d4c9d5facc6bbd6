//! The workshop: functions that are carried out durably.
