//! Work in the store, or at the server that holds it. What comes back is JSON, alike from both.

use crate::Result;
use crate::arguments::Global;
use crate::deed::Deed;
use crate::output::{json, masked};
use crate::reach::Reached;
use crate::remote::{Remote, segment};
use crate::workshop;
use mainstay::work::{
    Error, Functions, LetterFilter, LetterStatus, ListQuery, Native, NewWork, RunOptions, Work,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Work, wherever it is.
pub(super) enum Shop {
    Store(Work),
    Server(Remote),
}

impl Shop {
    /// For whoever asks for something to be done. A store that is opened for this knows the pools and functions of the
    /// configuration.
    pub(super) async fn reach(global: &Global) -> Result<Self> {
        let store = match global.reach().await? {
            Reached::Server(server) => return Ok(Self::Server(server)),
            Reached::Store(store) => store,
        };
        match workshop::open_to_ask(&global.load()?, &store).await {
            Ok(work) => Ok(Self::Store(work)),
            Err(error) => {
                store.close().await;
                Err(error)
            }
        }
    }

    /// For whoever looks: makes no store where there is none.
    pub(super) async fn reach_existing(global: &Global) -> Result<Self> {
        match global.reach_existing().await? {
            Reached::Server(server) => Ok(Self::Server(server)),
            Reached::Store(store) => match Work::open(&store, Functions::new()).await {
                Ok(work) => Ok(Self::Store(work)),
                Err(error) => {
                    store.close().await;
                    Err(error.into())
                }
            },
        }
    }

    /// Does something, and leaves the store in order whatever comes of it.
    pub(super) async fn with<T>(self, act: impl AsyncFnOnce(&Self) -> Result<T>) -> Result<T> {
        let done = act(&self).await;
        if let Self::Store(work) = self {
            work.store().clone().close().await;
        }
        done
    }

    pub(super) async fn enqueue(&self, pool: &str, item: NewWork, body: &Value) -> Result<Value> {
        match self {
            Self::Store(work) => Ok(json!({ "work": [work.enqueue(item).await?] })),
            Self::Server(server) => server.post(&format!("/v1/pools/{}/work", segment(pool)), body),
        }
    }

    pub(super) async fn run(
        &self,
        function: &str,
        args: &RawValue,
        options: RunOptions,
        body: &Value,
    ) -> Result<Value> {
        match self {
            Self::Store(work) => Ok(json!({ "runId": work.run(function, args, options).await? })),
            Self::Server(server) => server.post("/v1/runs", body),
        }
    }

    pub(super) async fn pending(&self, pool: &str, limit: usize) -> Result<Value> {
        match self {
            Self::Store(work) => Ok(json!({ "work": masked(&work.upcoming(pool, limit).await?) })),
            Self::Server(server) => {
                server.get(&format!("{}/pools/{}/work?limit={limit}", area(server), segment(pool)))
            }
        }
    }

    pub(super) async fn list(&self, wanted: &Wanted) -> Result<Value> {
        match self {
            Self::Store(work) => Ok(masked(&work.list(wanted.query(), wanted.limit).await?)),
            Self::Server(server) => server.get(&format!("/admin/work?{}", wanted.parameters())),
        }
    }

    pub(super) async fn keys(&self, pool: &str, after: Option<&str>, limit: usize) -> Result<Value> {
        match self {
            Self::Store(work) => Ok(json(&work.keys(pool, after, limit).await?)),
            Self::Server(server) => {
                let cursor = after.map(|after| format!("&cursor={}", segment(after))).unwrap_or_default();
                server.get(&format!("/admin/pools/{}/keys?limit={limit}{cursor}", segment(pool)))
            }
        }
    }

    pub(super) async fn run_status(&self, id: &str) -> Result<Value> {
        match self {
            Self::Store(work) => Ok(match work.status(id).await? {
                None => json!({ "found": false }),
                Some(status) => json!({
                    "found": true,
                    "runId": status.work_id,
                    "pool": status.pool,
                    "function": status.function,
                    "state": status.state,
                    "native": status.native,
                    "attemptCount": status.attempts,
                    "lastError": status.last_error,
                    "context": masked(&status.context),
                    "enqueuedAt": status.enqueued_at,
                    "dueAt": status.due_at,
                    "endedAt": status.ended_at,
                }),
            }),
            Self::Server(server) => server.get(&format!("/admin/runs/{}", segment(id))),
        }
    }

    /// Changes something, wherever work is; it is written down.
    async fn change(&self, deed: Deed, here: impl AsyncFnOnce(&Work) -> Result<Value>) -> Result<Value> {
        match self {
            Self::Store(work) => deed.carry_out(work.store(), here(work)).await,
            Self::Server(server) => deed.ask(server),
        }
    }

    /// Whether this is asked as an operator asks: at the store itself, or with a token.
    fn is_operator(&self) -> bool {
        matches!(self, Self::Store(_)) || matches!(self, Self::Server(server) if server.has_token())
    }

    pub(super) async fn run_now(&self, id: &str) -> Result<Value> {
        let start = async |work: &Work| Ok(json!({ "workId": id, "starts": work.run_now(id).await? }));
        self.change(Deed::new("POST /admin/work/{id}/run-now", &[id]), start).await
    }

    pub(super) async fn show(&self, id: &str) -> Result<Value> {
        match self {
            Self::Store(work) => {
                let details = work.details(id).await?;
                let mut found = json!({ "found": details.is_some() });
                if let (Some(details), Some(found)) = (details, found.as_object_mut()) {
                    found.extend(masked(&details).as_object().cloned().unwrap_or_default());
                }
                Ok(found)
            }
            Self::Server(server) => server.get(&format!("{}/work/{}", area(server), segment(id))),
        }
    }

    pub(super) async fn cancel(&self, id: &str) -> Result<Value> {
        let action = match self.is_operator() {
            true => "POST /admin/work/{id}/cancel",
            false => "DELETE /v1/work/{id}",
        };
        let cancel = async |work: &Work| Ok(json!({ "workId": id, "canceled": work.cancel(id).await? }));
        self.change(Deed::new(action, &[id]), cancel).await
    }

    pub(super) async fn pools(&self) -> Result<Value> {
        match self {
            Self::Store(work) => Ok(json!({ "pools": work.pools().await? })),
            Self::Server(server) => server.get(&format!("{}/pools", area(server))),
        }
    }

    pub(super) async fn pool(&self, pool: &str) -> Result<Value> {
        match self {
            Self::Store(work) => Ok(json(&work.pool_status(pool).await?)),
            Self::Server(server) => server.get(&format!("{}/pools/{}", area(server), segment(pool))),
        }
    }

    pub(super) async fn set_paused(&self, pool: &str, is_paused: bool) -> Result<Value> {
        let action = match (self.is_operator(), is_paused) {
            (true, true) => "POST /admin/pools/{pool}/pause",
            (true, false) => "POST /admin/pools/{pool}/resume",
            (false, true) => "POST /v1/pools/{pool}/pause",
            (false, false) => "POST /v1/pools/{pool}/resume",
        };
        let set = async |work: &Work| {
            if is_paused { work.pause(pool).await } else { work.resume(pool).await }?;
            Ok(json(&work.pool_status(pool).await?))
        };
        self.change(Deed::new(action, &[pool]), set).await
    }

    pub(super) async fn crons(&self) -> Result<Value> {
        match self {
            Self::Store(work) => Ok(json!({ "crons": work.crons().await? })),
            Self::Server(server) => server.get("/v1/crons"),
        }
    }

    pub(super) async fn pause_cron(&self, name: &str, is_paused: bool) -> Result<Value> {
        let action = match is_paused {
            true => "POST /v1/crons/{name}/pause",
            false => "POST /v1/crons/{name}/resume",
        };
        let pause = async |work: &Work| {
            work.pause_cron(name, is_paused).await?;
            let cron = work.crons().await?.into_iter().find(|cron| cron.name == name);
            Ok(json(&cron.ok_or_else(|| Error::UnknownCron(name.to_owned()))?))
        };
        self.change(Deed::new(action, &[name]), pause).await
    }

    pub(super) async fn remove_cron(&self, name: &str) -> Result<Value> {
        let remove = async |work: &Work| {
            work.remove_cron(name).await?;
            Ok(json!({ "name": name }))
        };
        self.change(Deed::new("DELETE /v1/crons/{name}", &[name]), remove).await
    }

    pub(super) async fn letters(&self, which: &Which, limit: usize) -> Result<Value> {
        match self {
            Self::Store(work) => {
                let letters = work.letters(which.filter(), limit).await?;
                Ok(json!({ "letters": masked(&letters) }))
            }
            Self::Server(server) => {
                let mut query = form_urlencoded::Serializer::new(format!("limit={limit}"));
                query.append_pair("status", which.status_name());
                for (name, value) in
                    [("pool", &which.pool), ("function", &which.function), ("kind", &which.kind)]
                {
                    if let Some(value) = value {
                        query.append_pair(name, value);
                    }
                }
                server.get(&format!("/admin/letters?{}", query.finish()))
            }
        }
    }

    pub(super) async fn letter(&self, id: &str) -> Result<Value> {
        match self {
            Self::Store(work) => Ok(masked(&work.letter(id).await?)),
            Self::Server(server) => server.get(&format!("/admin/letters/{}", segment(id))),
        }
    }

    pub(super) async fn retry_letter(&self, id: &str) -> Result<Value> {
        let retry =
            async |work: &Work| Ok(json!({ "workId": id, "retriedAs": work.retry_failed(id).await? }));
        self.change(Deed::new("POST /admin/work/{id}/retry", &[id]), retry).await
    }

    pub(super) async fn retry_letters(&self, which: &Which, limit: usize) -> Result<Value> {
        let filter = json!({ "pool": which.pool, "function": which.function });
        let body = json!({ "filter": filter, "limit": limit });
        let retry = async |work: &Work| {
            let filter = LetterFilter { after: Some(0), ..which.filter() };
            let letters = work.letters(filter, limit).await?;
            let is_more = letters.len() == limit;
            let mut retried = Vec::new();
            for letter in letters {
                let retried_as = work.retry_letter(&letter.work_id).await?;
                retried.push(json!({ "workId": letter.work_id, "retriedAs": retried_as }));
            }
            Ok(json!({ "retried": retried, "isMore": is_more }))
        };
        self.change(Deed::new("POST /admin/letters/retry", &[]).with(body), retry).await
    }

    pub(super) async fn ignore_letter(&self, id: &str) -> Result<Value> {
        let ignore = async |work: &Work| {
            work.ignore_letter(id).await?;
            Ok(masked(&work.letter(id).await?))
        };
        self.change(Deed::new("POST /admin/letters/{id}/ignore", &[id]), ignore).await
    }
}

/// Whoever shows a token asks as an operator does, and is written down; without one there is what is open to this machine.
fn area(server: &Remote) -> &'static str {
    if server.has_token() { "/admin" } else { "/v1" }
}

/// Which items, and from where on.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) pool: Option<String>,
    pub(super) state: Option<String>,
    pub(super) function: Option<String>,
    pub(super) key: Option<String>,
    pub(super) correlation: Option<String>,
    pub(super) args: Option<String>,
    pub(super) is_oldest_first: bool,
    pub(super) limit: usize,
    pub(super) cursor: Option<String>,
}

impl Wanted {
    fn query(&self) -> ListQuery {
        ListQuery {
            pool: self.pool.clone(),
            states: self.state.as_deref().and_then(Native::named).unwrap_or_default(),
            function: self.function.clone(),
            key: self.key.clone(),
            correlation_id: self.correlation.clone(),
            args: self.args.clone(),
            is_oldest_first: self.is_oldest_first,
            after: self.cursor.clone(),
        }
    }

    fn parameters(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(format!("limit={}", self.limit));
        if self.is_oldest_first {
            query.append_pair("order", "oldest");
        }
        let given = [
            ("pool", &self.pool),
            ("state", &self.state),
            ("function", &self.function),
            ("key", &self.key),
            ("correlationId", &self.correlation),
            ("args", &self.args),
            ("cursor", &self.cursor),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        query.finish()
    }
}

/// Which letters.
#[derive(Debug, Default)]
pub(super) struct Which {
    pub(super) status: Option<LetterStatus>,
    pub(super) pool: Option<String>,
    pub(super) function: Option<String>,
    pub(super) kind: Option<String>,
}

impl Which {
    fn filter(&self) -> LetterFilter {
        LetterFilter {
            status: self.status,
            pool: self.pool.clone(),
            function: self.function.clone(),
            kind: self.kind.clone(),
            ..LetterFilter::default()
        }
    }

    fn status_name(&self) -> &'static str {
        match self.status.unwrap_or(LetterStatus::Pending) {
            LetterStatus::Pending => "pending",
            LetterStatus::Retried => "retried",
            LetterStatus::Ignored => "ignored",
        }
    }
}
