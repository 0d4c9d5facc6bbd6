//! Process managers: when this has happened, that is wanted.
//!
//! One is a projection whose handler starts work in its transaction, so what is wanted is enqueued once for an event. The
//! work dispatches a command, whose id is made of the event's: carried out a second time, it is a duplicate. Process
//! managers are not rebuilt; what they know of the past is in tables of their own.
//!
//! - `order_notification`: a confirmed order is told to its customer
//! - `reservation_release`: a cancelled order holds nothing
//! - `order_fulfilment`: a submitted order is reserved for, paid and confirmed, or cancelled
//! - `payment_settlement`: what is to be paid is charged by the provider, and what it says is recorded
//! - `expiry`: every five minutes, reservations whose time is over are given up
//! - `wanted`: the commands on their way

mod expiry;
mod order_fulfilment;
mod order_notification;
mod payment_settlement;
mod reservation_release;
mod wanted;

use crate::payments::{self, PaymentProvider};
use mainstay::flows::projections::Registry;
use mainstay::store::migrations::{Component, Script, Step};
use mainstay::work::{Cron, Functions, Pool};
use mainstay::{Builder, Handle};

pub use order_fulfilment::ORDER_FULFILMENT;
pub use order_notification::ORDER_NOTIFICATION;
pub use payment_settlement::PAYMENT_SETTLEMENT;
pub use reservation_release::RESERVATION_RELEASE;

/// The pool of all that processes do.
pub const POOL: &str = "processes";

/// The tables of the process managers.
pub static COMPONENT: Component =
    Component { name: "order_management", steps: &[CREATE_PROCESSES, CREATE_FULFILMENT] };

const CREATE_PROCESSES: Step =
    Step { name: "create_processes", script: Script::Both(&reservation_release::TABLES), needs: 0 };

const CREATE_FULFILMENT: Step =
    Step { name: "create_fulfilment", script: Script::Both(&[order_fulfilment::TABLE]), needs: 0 };

/// Adds the process managers.
pub fn all(registry: Registry, handle: &Handle) -> Registry {
    registry.with(order_notification::projection(handle)).with(reservation_release::projection(handle))
}

/// Adds those that fulfil orders, where somebody moves the money.
pub fn fulfilment(registry: Registry, handle: &Handle) -> Registry {
    registry.with(order_fulfilment::projection(handle)).with(payment_settlement::projection(handle))
}

/// Adds what they do as work.
pub fn functions(functions: Functions, handle: &Handle) -> Functions {
    payment_settlement::functions(expiry::functions(wanted::functions(functions, handle), handle), handle)
}

/// The pool that they do it in.
pub fn pool() -> Pool {
    Pool::new(POOL)
}

/// Puts the provider of payments behind its circuit, and says in which pool it is called.
pub fn provider(house: Builder, provider: PaymentProvider) -> Builder {
    house
        .pool(Pool::new(payments::POOL).retry(provider.retry))
        .circuit(payments::CIRCUIT, provider.circuit)
        .http(payments::CHARGE, provider.charges)
        .behind(payments::CHARGE, payments::CIRCUIT)
        .http(payments::REFUND, provider.refunds)
        .behind(payments::REFUND, payments::CIRCUIT)
}

/// What the clock starts.
pub fn cron() -> mainstay::flows::Result<Cron> {
    expiry::cron()
}
