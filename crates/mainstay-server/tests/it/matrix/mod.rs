//! Every route × every caller × {valid, reserved name, another tenant's id, hostile value}, made from `/openapi.json`.
//!
//! - `description`: operations, what each takes, and a valid value of it
//! - `hostile`: values that break careless servers
//! - `callers`: tokens of every kind; a further kind is a further row
//! - `rows`: rows of all tables
//! - `checks`: the four tests
//!
//! The store is filled by `everybody`; its rows belong to the tenant `globex` or to no tenant.

mod callers;
mod checks;
mod description;
mod hostile;
mod rows;
