//! Commands: what somebody wants to happen, decided once.
