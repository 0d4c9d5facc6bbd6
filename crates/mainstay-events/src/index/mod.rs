//! The index: which events have a tag, a type, a stream and so on.
//!
//! Everything an event can be found by is a *term*, a 64-bit number made from a kind and a text, and the index is one
//! sorted table of (term, position). A query is an intersection of terms (`lookup`). Terms of different texts may
//! coincide, so whoever uses a position from here looks at the event before believing it.
//!
//! The index is derived from the log: `mainstay verify` compares the two, and it can be rebuilt at any time.

mod lookup;
mod sql;
mod term;

pub(crate) use lookup::{Groups, Probe, ascending, latest, latest_in};
pub(crate) use sql::{insert_rows, insert_terms, rows_at};
pub(crate) use term::{Terms, kind_of, made_uuid, position_in};
