//! The index: which events have a tag, a type, a stream and so on.
//!
//! Everything an event can be found by is a *term*, a 64-bit number made from a kind and a text, and the index is one
//! sorted table of (term, position). A query is an intersection of terms (`lookup`). Terms of different texts may
//! coincide, so whoever uses a position from here looks at the event before believing it.
//!
//! Where one process owns the log, the newest entries are kept in memory (`recent`) and moved to the table in its order
//! (`merge`), and so are the newest events themselves (`kept`); on PostgreSQL every commit writes its own.
//!
//! The index is derived from the log: `mainstay verify` compares the two, and it can be rebuilt at any time.

mod kept;
mod lookup;
mod merge;
mod recent;
mod sql;
mod term;

pub(crate) use lookup::{
    Groups, Probe, ascending, descending, events_at, events_of, latest, latest_in, latest_in_memory,
};
pub(crate) use merge::{merge_all, merge_if_due};
pub(crate) use recent::{End, Recent, SEGMENT_EVENTS, Segment, View};
pub(crate) use sql::{insert_new_terms, insert_rows, insert_terms, rows_at};
pub(crate) use term::{Terms, kind_of, made_uuid, position_in};
