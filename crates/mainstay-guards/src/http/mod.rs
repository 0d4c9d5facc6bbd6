//! What a guard needs to know of HTTP.
//!
//! - `answers`: what answers mean to a guard, and what a guard answers by itself
//! - `head`: what is known of a request before its body is read
//! - `key`: whose a request is
//! - `proxies`: which address a request comes from, behind proxies
//! - `forwarded`: how proxies write addresses down

mod answers;
mod forwarded;
mod head;
mod key;
mod proxies;

pub use answers::failure_of;
pub use forwarded::ProxyHeader;
pub use head::{Caller, Head, Peer};
pub use key::{Key, WithoutKey};
pub use proxies::{MAX_HOPS, TrustedProxies};

pub(crate) use answers::{problem, problem_response, retry_after};
