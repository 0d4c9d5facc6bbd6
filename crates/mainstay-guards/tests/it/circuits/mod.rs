//! Circuits over every kind of store.

mod away;
mod calls;
mod house;
mod layer;
mod nodes;
mod operators;
mod states;
