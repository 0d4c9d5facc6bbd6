//! Histories of an event log with dynamic consistency boundaries, and whether a correct log could have made them.
//!
//! Concurrent writers note what they ask and what they are told in a [`Recorder`]; at the end the whole log is read
//! as [`Recorded`] events. [`check`] then passes exactly if the operations can be put into one order that keeps the
//! real time of their beginnings and ends, and in which a log with one writer gives the same answers and the same
//! events. The checker knows nothing of the log's own code, so the two share no mistakes.
//!
//! | file | what lives there |
//! |---|---|
//! | `operation` | what was asked, what was answered, what was found in the end |
//! | `recorder` | the notes of concurrent writers |
//! | `check` | the verdict: positions, and each operation against its own events |
//! | `conditions` | conditional appends: nothing in between; refusals: a witness |
//! | `order` | real time against the order of positions |
//! | `index` | the log by position, tag and type, so that no operation walks the whole log |
//! | `violation` | everything that can be wrong, in words |
//! | [`subscription`] | what a follower of the log has seen |
//!
//! ```
//! use mainstay_testkit::history::{Event, Outcome, Recorded, Recorder, check};
//!
//! let recorder = Recorder::new();
//! let event = Event::new("Opened", ["account:1"]);
//! let pending = recorder.begin(None, vec![event.clone()]);
//! let operation = pending.id(); // goes into the event's metadata, and comes back with the log
//! pending.finish(Outcome::Appended { positions: vec![1] });
//!
//! let log = [Recorded { position: 1, id: "event_1".into(), event, operation }];
//! let report = check(&log, &recorder.operations()).unwrap();
//! assert_eq!(report.appended, 1);
//! ```

mod check;
mod conditions;
mod index;
mod operation;
mod order;
mod recorder;
pub mod subscription;
#[cfg(test)]
mod tests;
mod violation;

pub use check::{Report, check};
pub use operation::{Condition, Event, Operation, Outcome, Recorded};
pub use recorder::{Pending, Recorder};
pub use violation::Violation;
