//! Commands, from dispatch to outcome.

mod crash;
mod deciders;
mod dispatch;
mod house;
mod limits;
mod pipeline;
mod retry;
mod speed;
mod trace;
mod unheard;
