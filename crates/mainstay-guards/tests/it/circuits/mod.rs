//! Circuits over every kind of store.

mod away;
mod calls;
mod house;
mod nodes;
mod operators;
mod states;
