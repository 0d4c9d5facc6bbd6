//! What handlers take from a request. Whatever is wrong with it is answered as a problem that names the field.
//!
//! - [`Json`]: the body; its type and size are checked, it must arrive in time, and nothing in it is ignored
//! - [`Query`]: the parameters; unknown ones are refused, a key given several times is a list
//! - [`Path`]: the parts of the path
//! - [`Trace`]: the span of the request
//! - `Whose`: the tenant of an id

pub(crate) mod body;
mod field;
pub(crate) mod json;
mod path;
pub(crate) mod query;
mod trace;
mod whose;

pub use json::{Json, MAX_DEPTH};
pub use path::Path;
pub use query::Query;
pub use trace::Trace;
pub(crate) use whose::{OfTenant, Whose};
