//! What views are made of.
//!
//! - `told`: values of documents, as texts
//! - `time`: moments and durations, as people say them
//! - `table`: rows, and the way to the next page
//! - `form`: filters, and actions that ask first
//! - `chart`: lines and bars, drawn here as SVG

mod chart;
mod form;
mod table;
mod time;
mod told;

pub(super) use chart::{Line, meter, sparkline};
pub(super) use form::{Ask, choice, field, filters, post};
pub(super) use table::{Column, attempts, next, rows, table};
pub(super) use time::{ago, moment, span};
pub(super) use told::{Told, badge, code, count, link, pretty, short};
