//! The binary as its users meet it, and the workspace as a whole.
#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod arrows;
mod audit;
mod audited;
mod bad_input;
mod bench;
mod config;
mod curl;
mod dead_letters;
mod demo;
mod deploy;
mod descriptors;
mod documents;
mod endpoint;
mod events;
mod flows;
mod greeting;
mod guards;
mod intents;
mod keeping;
mod migrate;
mod modes;
mod parity;
mod program;
mod reference;
mod secrets;
mod serve;
mod serve_work;
mod serving;
mod specification;
mod upgrade;
mod work;
