//! `/admin/work`, `/admin/pools`, `/admin/functions` and `/admin/runs`: the workshop as operators see it.
//!
//! - `items`: items of all pools, one in full, and what is done about one
//! - `pools`: pools, what of each can start next, and the queues of its keys
//! - `schema`: how the API's description shows them

mod items;
mod pools;
mod schema;

pub(crate) use items::{LOOKED_AT, item_cursor, work_at};

use crate::{Permission, Routes};
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    use Permission::{Admin, Operator, Reader};
    Routes::default()
        .add(Reader, routes!(items::list))
        .add(Reader, routes!(items::get))
        .add(Operator.revoking(), routes!(items::cancel))
        .add(Operator, routes!(items::run_now))
        .add(Operator, routes!(items::retry))
        .add(Reader, routes!(items::get_run))
        .add(Reader, routes!(pools::list))
        .add(Reader, routes!(pools::get))
        // Not counted: an admin empties a set of names that a caller has filled.
        .add(Admin.written(), routes!(pools::delete))
        .add(Admin.written(), routes!(pools::delete_function))
        .add(Reader, routes!(pools::work))
        .add(Reader, routes!(pools::keys))
        .add(Operator, routes!(pools::pause))
        .add(Operator, routes!(pools::resume))
}
