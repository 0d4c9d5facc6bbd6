//! Whether an item that has ended is the one that goes on with something.
//!
//! A replay and an operation on dead letters are carried out by one item after another. Their rows name the item that
//! goes on, so that the end of any other item changes nothing.

use crate::functions::Call;
use mainstay_core::failure::{Class, Failure};
use mainstay_store::Error;

/// The item of a step, as a row names it.
pub fn item(step: i64, work_ids: &[String]) -> Option<String> {
    work_ids.first().map(|work_id| format!("{step} {work_id}"))
}

/// Fails for good unless a call tells the end of the item that a row names. A node of the previous version moves the step
/// on without naming an item; then the step decides.
pub fn check(call: &Call, named: Option<&str>, step: i64) -> Result<(), Error> {
    let named = named.and_then(|named| named.split_once(' '));
    match named.filter(|(of, _)| of.parse() == Ok(step)) {
        Some((_, work_id)) if !is_of(call, work_id) => Err(foreign(call)),
        _ => Ok(()),
    }
}

/// Whether a call tells the end of an item, or of a retry of it.
pub fn is_of(call: &Call, work_id: &str) -> bool {
    call.completes.as_ref().is_some_and(|completes| completes.is_of(work_id))
}

/// The failure of a call that tells the end of an item of something else.
pub fn foreign(call: &Call) -> Error {
    let work_id = call.completes.as_ref().map_or(&call.work_id, |completes| &completes.work_id);
    let reason = format!("work {work_id} does not belong to what it reports on");
    Error::application(Failure::new(Class::ValidationError, reason))
}
