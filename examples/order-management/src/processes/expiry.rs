//! Reservations expire: every five minutes, those whose time is over are given up.

use super::POOL;
use super::wanted::failed;
use crate::inventory::ReservationCommand;
use crate::projections::expired;
use mainstay::Handle;
use mainstay::core::failure::Failure;
use mainstay::core::schedule::Schedule;
use mainstay::flows::commands::Command;
use mainstay::flows::{Error, Result};
use mainstay::work::{Call, Cron, Functions};

const EXPIRE: &str = "processes.expireReservations";
const EVERY_MS: u64 = 5 * 60 * 1_000;
/// Most reservations of one tick; the next one goes on.
const MOST: i64 = 1_000;

/// Every five minutes, one tick after another.
pub(super) fn cron() -> Result<Cron> {
    let schedule = Schedule::interval(EVERY_MS, 0)
        .map_err(|error| Error::Invalid { field: "schedule".to_owned(), reason: error.to_string() })?;
    Ok(Cron::new("expireReservations", schedule, POOL, EXPIRE, &())?.key("expireReservations"))
}

/// Adds the function that the clock starts.
pub(super) fn functions(functions: Functions, handle: &Handle) -> Functions {
    let handle = handle.clone();
    functions.action(EXPIRE, move |call: Call, (): ()| {
        let handle = handle.clone();
        async move { expire(&handle, &call).await }
    })
}

/// Gives up what is over; how many were. The read model may be behind, but the decision is not: what was confirmed
/// meanwhile is kept.
async fn expire(handle: &Handle, call: &Call) -> std::result::Result<usize, Failure> {
    let store = handle.store().map_err(failed)?;
    let now_ms = store.clock().now_ms();
    let due = expired(&store, now_ms, MOST).await.map_err(|error| failed(error.into()))?;
    let mut given_up = 0;
    for reservation_id in due {
        // One id for each tick: what is refused now may be due at the next.
        let id = format!("expire:{}:{reservation_id}", call.idempotency_key());
        let command = Command::of(&ReservationCommand::ExpireReservation { reservation_id });
        let dispatched = handle.dispatch(command.map_err(failed)?.id(id)).await.map_err(failed)?;
        given_up += dispatched.outcome.events().len();
    }
    Ok(given_up)
}
