//! `/v1/pools`, `/v1/work`, `/v1/leases`, `/v1/runs`, `/v1/timers`, `/v1/crons` and what operators
//! see: the workshop.
//!
//! - `pools`: their settings, and how they are doing
//! - `enqueue`, `items`: putting work into a pool, and what became of it
//! - `pull`: programs elsewhere that ask for work and say what came of it
//! - `runs`, `crons`: the retrier, timers and crons
//! - `admin`: everything that waits, runs or has ended, as operators see it
//! - `problem`: what the workshop says, as a problem document
//! - `schema`: how the API's description shows what the workshop takes and gives

mod admin;
mod crons;
mod enqueue;
mod items;
mod pools;
mod problem;
mod pull;
mod runs;
pub(super) mod schema;

pub(crate) use admin::{LOOKED_AT, item_cursor, work_at};

use crate::{Answer, App, Permission, Principal, Problem, Role, Routes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use mainstay_work::Work;
use serde::{Deserialize, Deserializer};
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    use Permission::{Operator, Reader};
    let shop = Routes::default()
        .add(Reader, routes!(pools::list))
        .add(Reader, routes!(pools::get))
        .add(Operator.written(), routes!(pools::put))
        .add(Operator.counted(), routes!(pools::pause))
        .add(Operator.counted(), routes!(pools::resume))
        .add(Operator.batch().or(Role::Publisher), routes!(enqueue::enqueue))
        .add(Reader, routes!(items::pending))
        .add(Reader.waiting(), routes!(items::get))
        .add(Operator, routes!(items::cancel))
        .add(Operator.waiting().or(Role::Worker), routes!(pull::claim))
        .add(Operator.or(Role::Worker), routes!(pull::extend))
        .add(Operator.or(Role::Worker), routes!(pull::give_back))
        .add(Operator.or(Role::Worker), routes!(pull::complete))
        .add(Operator.or(Role::Worker), routes!(pull::fail));
    let clock = Routes::default()
        .add(Operator, routes!(runs::run))
        .add(Reader, routes!(runs::get_run))
        .add(Operator, routes!(runs::cancel_run))
        .add(Operator, routes!(runs::set_timer))
        .add(Reader, routes!(runs::get_timer))
        .add(Operator, routes!(runs::cancel_timer))
        .add(Reader, routes!(crons::list))
        .add(Reader, routes!(crons::get))
        .add(Operator.written(), routes!(crons::put))
        .add(Operator.written(), routes!(crons::remove))
        .add(Operator.counted(), routes!(crons::pause))
        .add(Operator.counted(), routes!(crons::resume));
    shop.and(clock).and(admin::routes())
}

/// Work, for whoever may see all of it: it belongs to no tenant, so those who are confined to one are refused.
struct Shop(Work);

impl FromRequestParts<App> for Shop {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Principal::from_request_parts(parts, app).await?.unconfined("Work")?;
        Ok(Self(app.work().clone()))
    }
}

/// A member that may be null without being left out.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// A member without which nothing can be done.
fn needed<T>(field: &str, value: Option<T>) -> Answer<T> {
    value.ok_or_else(|| Problem::invalid_field(field, "is missing"))
}
