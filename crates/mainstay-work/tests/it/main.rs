//! What the workshop promises, tried from outside.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod http;
