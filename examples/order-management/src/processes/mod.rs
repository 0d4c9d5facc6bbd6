//! Process managers: when this has happened, that is wanted.
//!
//! One is a projection whose handler starts work in its transaction, so what is wanted is enqueued once for an event. The
//! work dispatches a command, whose id is made of the event's: carried out a second time, it is a duplicate. Process
//! managers are not rebuilt; what they know of the past is in tables of their own.
//!
//! - `order_notification`: a confirmed order is told to its customer
//! - `reservation_release`: a cancelled order holds nothing
//! - `expiry`: every five minutes, reservations whose time is over are given up
//! - `wanted`: the commands on their way

mod expiry;
mod order_notification;
mod reservation_release;
mod wanted;

use mainstay::Handle;
use mainstay::flows::projections::Registry;
use mainstay::store::migrations::{Component, Script, Step};
use mainstay::work::{Cron, Functions, Pool};

pub use order_notification::ORDER_NOTIFICATION;
pub use reservation_release::RESERVATION_RELEASE;

/// The pool of all that processes do.
pub const POOL: &str = "processes";

/// The tables of the process managers.
pub static COMPONENT: Component = Component { name: "order_management", steps: &[CREATE_PROCESSES] };

const CREATE_PROCESSES: Step =
    Step { name: "create_processes", script: Script::Both(&reservation_release::TABLES), needs: 0 };

/// Adds the process managers.
pub fn all(registry: Registry, handle: &Handle) -> Registry {
    registry.with(order_notification::projection(handle)).with(reservation_release::projection(handle))
}

/// Adds what they do as work.
pub fn functions(functions: Functions, handle: &Handle) -> Functions {
    expiry::functions(wanted::functions(functions, handle), handle)
}

/// The pool that they do it in.
pub fn pool() -> Pool {
    Pool::new(POOL)
}

/// What the clock starts.
pub fn cron() -> mainstay::flows::Result<Cron> {
    expiry::cron()
}
