//! From a socket to requests: accepting, TLS, and the limits of a connection.

pub(crate) mod connection;
pub(crate) mod host;
mod impatient;
pub(crate) mod places;
pub(crate) mod tls;
