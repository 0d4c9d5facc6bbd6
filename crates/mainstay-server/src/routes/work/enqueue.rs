//! `POST /v1/pools/{pool}/work`.

use super::problem::about;
use super::{Shop, given, needed, schema};
use crate::access::Named;
use crate::{Answer, Json, Path, Principal, Problem, Trace};
use mainstay_core::trace::TraceContext;
use mainstay_work::{Enqueued, NewWork, RetryPolicy};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;

/// Most items of one request.
const MAX_ITEMS: usize = 1_000;

/// An item, or a batch of them. A field of an item that stands beside `items` is refused, and so is a batch in a batch.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked {
    items: Option<Vec<Self>>,
    function: Option<String>,
    #[serde(default, deserialize_with = "given")]
    args: Option<Box<RawValue>>,
    key: Option<String>,
    run_after_ms: Option<u64>,
    run_at_ms: Option<i64>,
    priority: Option<i16>,
    retry: Option<RetryPolicy>,
    on_complete: Option<String>,
    context: Option<Box<RawValue>>,
    dedupe: Option<Dedupe>,
    deadline_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dedupe {
    key: String,
    window_ms: u64,
}

/// What came of it, item by item.
#[derive(Debug, Serialize)]
pub(super) struct Answered {
    work: Vec<Enqueued>,
}

/// Put work into a pool: one item, or up to 1,000 at once, all or none
///
/// An item runs when its function is declared by a node or by a worker that claims, its time has come, no other item of
/// its key is before it, and the pool has room. With a `dedupe` key the same item can be sent any number of times. Items
/// stand in the trace of the request.
#[utoipa::path(post, path = "/v1/pools/{pool}/work", operation_id = "enqueueWork", tag = "work",
    params(("pool" = String, Path, description = "The pool")),
    request_body = schema::EnqueueWork, responses((status = 200, body = schema::WorkEnqueued)))]
pub(super) async fn enqueue(
    Shop(work): Shop,
    principal: Principal,
    Trace(trace): Trace,
    Path(pool): Path<String>,
    Json(asked): Json<Asked>,
) -> Answer<Json<Answered>> {
    principal.check(Named::Pool, &pool, "pool")?;
    asked.check(&principal)?;
    let (items, is_batch) = asked.unpack(&pool, &trace)?;
    let is_alone = items.len() == 1;
    let enqueued = work.enqueue_all(items).await.map_err(|error| {
        about(error, |field| match field {
            // It was said in the path, once for all.
            field if field == "pool" || field.ends_with(".pool") => Some("pool".to_owned()),
            field if is_batch && is_alone && field != "items" => Some(format!("items[0].{field}")),
            _ => None,
        })
    })?;
    Ok(Json(Answered { work: enqueued }))
}

impl Asked {
    /// Refuses functions that the scope of a publisher does not name.
    fn check(&self, principal: &Principal) -> Answer<()> {
        let batch = self.items.iter().flatten().enumerate();
        let batch = batch.map(|(number, item)| (format!("items[{number}]."), item));
        for (at, item) in std::iter::once((String::new(), self)).chain(batch) {
            for (field, function) in [("function", &item.function), ("onComplete", &item.on_complete)] {
                if let Some(function) = function {
                    principal.check(Named::Function, function, &format!("{at}{field}"))?;
                }
            }
        }
        Ok(())
    }

    fn unpack(mut self, pool: &str, trace: &TraceContext) -> Answer<(Vec<NewWork>, bool)> {
        let Some(items) = self.items.take() else {
            return Ok((vec![self.work(pool, "", trace)?], false));
        };
        if let Some(field) = self.first_given() {
            return Err(Problem::invalid_field(field, "cannot stand beside items"));
        }
        if items.len() > MAX_ITEMS {
            let detail = format!("{} items are more than {MAX_ITEMS}", items.len());
            return Err(Problem::invalid_field("items", detail));
        }
        let item = |(number, item): (usize, Self)| item.work(pool, &format!("items[{number}]."), trace);
        Ok((items.into_iter().enumerate().map(item).collect::<Answer<_>>()?, true))
    }

    /// The name of a member that is there.
    fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("function", self.function.is_some()),
            ("args", self.args.is_some()),
            ("key", self.key.is_some()),
            ("runAfterMs", self.run_after_ms.is_some()),
            ("runAtMs", self.run_at_ms.is_some()),
            ("priority", self.priority.is_some()),
            ("retry", self.retry.is_some()),
            ("onComplete", self.on_complete.is_some()),
            ("context", self.context.is_some()),
            ("dedupe", self.dedupe.is_some()),
            ("deadlineMs", self.deadline_ms.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// The item, whose fields are called `at` and their name.
    fn work(self, pool: &str, at: &str, trace: &TraceContext) -> Answer<NewWork> {
        if self.items.is_some() {
            return Err(Problem::invalid_field(&format!("{at}items"), "is not known"));
        }
        let function = needed(&format!("{at}function"), self.function)?;
        let args = needed(&format!("{at}args"), self.args)?;
        let mut item = NewWork::new(pool, function, &args)?.priority(self.priority.unwrap_or(0));
        match (self.run_after_ms, self.run_at_ms) {
            (Some(_), Some(_)) => {
                let field = format!("{at}runAtMs");
                return Err(Problem::invalid_field(&field, "cannot be given together with runAfterMs"));
            }
            (Some(delay), None) => item = item.run_after(Duration::from_millis(delay)),
            (None, Some(moment)) => item = item.run_at_ms(moment),
            (None, None) => {}
        }
        if let Some(key) = self.key {
            item = item.key(key);
        }
        if let Some(policy) = self.retry {
            item = item.retry(policy);
        }
        if let Some(function) = self.on_complete {
            item = item.tell(function);
        }
        if let Some(context) = &self.context {
            item = item.context(context)?;
        }
        if let Some(dedupe) = self.dedupe {
            item = item.dedupe(dedupe.key, Duration::from_millis(dedupe.window_ms));
        }
        if let Some(within) = self.deadline_ms {
            item = item.deadline(Duration::from_millis(within));
        }
        Ok(item.trace(trace.clone()))
    }
}
