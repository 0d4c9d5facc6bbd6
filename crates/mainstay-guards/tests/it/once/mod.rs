//! Requests that are sent again are carried out once.

mod bounds;
mod leases;
mod repeats;
mod shop;
mod socket;
