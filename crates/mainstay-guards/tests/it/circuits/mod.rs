//! Circuits over every kind of store.

mod away;
mod calls;
mod history;
mod house;
mod layer;
mod nodes;
mod operators;
mod states;
