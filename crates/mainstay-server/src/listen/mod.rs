//! From a socket to requests: accepting, TLS, and the limits of a connection.

pub(crate) mod connection;
mod impatient;
pub(crate) mod tls;
