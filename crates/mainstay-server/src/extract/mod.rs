//! What handlers take from a request. Whatever is wrong with it is answered as a problem that names the field.
//!
//! - [`Json`]: the body; its type and size are checked, it must arrive in time, and nothing in it is ignored
//! - [`Query`]: the parameters; unknown ones are refused, a key given several times is a list
//! - [`Path`]: the parts of the path
//! - [`Trace`]: the span of the request

pub(crate) mod body;
mod field;
mod json;
mod path;
mod query;
mod trace;

pub use json::{Json, MAX_DEPTH};
pub use path::Path;
pub use query::Query;
pub use trace::Trace;
