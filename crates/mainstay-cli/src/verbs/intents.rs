//! `mainstay intents`: long operations between two events.

use super::span;
use crate::Result;
use crate::arguments::Global;
use crate::deed::Deed;
use crate::output::{json, masked, print, print_json, table};
use crate::reach::Reached;
use crate::remote::{Remote, segment};
use crate::shown::{age, lines, moment, short, text};
use crate::workshop;
use clap::{Args, Subcommand, ValueEnum};
use mainstay::events::Log;
use mainstay::flows::delivery::intents::{
    Completion, CompletionStatus, IntentFilter, IntentStatus, Intents as Kept, NewIntent, OnTimeout,
    Operations, Orphans, Policy,
};
use mainstay::store::Store;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::time::Duration;

/// Longest text of an error in a table.
const WIDTH: usize = 50;
/// Why an operator abandons an intent, unless they say.
const BY_AN_OPERATOR: &str = "abandoned by an operator";

/// Begin and end long operations, and see which nobody has ended
///
/// Works on the store, or through the server that holds it. Only a server sees to intents whose time is up.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct Intents {
    #[command(subcommand)]
    verb: IntentsVerb,
}

#[derive(Debug, Subcommand)]
enum IntentsVerb {
    /// List intents, the newest first
    List {
        /// Of this status
        #[arg(long, value_enum)]
        status: Option<Status>,
        /// Of this operation
        #[arg(long)]
        operation: Option<String>,
        /// That belong together under this id
        #[arg(long, value_name = "ID")]
        correlation: Option<String>,
        #[command(flatten)]
        page: Page,
    },
    /// List operations that began and that nobody has ended, the oldest first
    Orphans {
        /// Of this operation
        #[arg(long)]
        operation: Option<String>,
        /// That began at least so long ago, as in 10m
        #[arg(long, value_name = "TIME", value_parser = span)]
        older_than: Option<Duration>,
        #[command(flatten)]
        page: Page,
    },
    /// Show an intent
    Show {
        /// The intent
        intent_key: String,
    },
    /// Record that a long operation begins
    Record(Record),
    /// Record that a long operation has ended
    Complete {
        /// The intent
        intent_key: String,
        /// How it ended
        #[arg(long, value_enum, default_value = "success")]
        status: Ended,
        /// What came of it, in JSON
        #[arg(long, value_name = "JSON", value_parser = raw)]
        result: Option<Box<RawValue>>,
        /// Why it was not done
        #[arg(long, value_name = "TEXT")]
        error: Option<String>,
    },
    /// Give an intent up, with an event
    Abandon {
        /// The intent
        intent_key: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

#[derive(Debug, Args)]
struct Record {
    /// What begins, as in OrderSubmission
    operation: String,
    /// The type of the stream that its events belong to
    stream_type: String,
    /// Which stream
    stream_id: String,
    /// The bounded context that it belongs to
    #[arg(long, value_name = "NAME")]
    context: String,
    /// How long it may take, as in 5m
    #[arg(long, value_name = "TIME", value_parser = span)]
    timeout: Duration,
    /// What becomes of it when nobody completes it in time
    #[arg(long, value_enum)]
    on_timeout: TimeoutPolicy,
    /// The function that is called then, as work
    #[arg(long, value_name = "FUNCTION")]
    handler: Option<String>,
    /// How often it is begun again, for the policy retry
    #[arg(long, value_name = "COUNT")]
    max_retries: Option<u32>,
    /// When it began, in milliseconds since the epoch; with it, the intent may be recorded again
    #[arg(long, value_name = "MILLISECONDS")]
    started_at: Option<i64>,
    /// What it belongs together with
    #[arg(long, value_name = "ID")]
    correlation: Option<String>,
    /// What else there is to know, in JSON
    #[arg(long, value_name = "JSON", value_parser = raw)]
    metadata: Option<Box<RawValue>>,
}

#[derive(Debug, Args)]
struct Page {
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// The `next` of the page before
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Status {
    Pending,
    Completed,
    Failed,
    Abandoned,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Ended {
    Success,
    Failure,
    Abandoned,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TimeoutPolicy {
    Abandon,
    Alert,
    Retry,
}

impl From<Status> for IntentStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Pending => Self::Pending,
            Status::Completed => Self::Completed,
            Status::Failed => Self::Failed,
            Status::Abandoned => Self::Abandoned,
        }
    }
}

impl From<Ended> for CompletionStatus {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Success => Self::Success,
            Ended::Failure => Self::Failure,
            Ended::Abandoned => Self::Abandoned,
        }
    }
}

impl From<TimeoutPolicy> for Policy {
    fn from(policy: TimeoutPolicy) -> Self {
        match policy {
            TimeoutPolicy::Abandon => Self::Abandon,
            TimeoutPolicy::Alert => Self::Alert,
            TimeoutPolicy::Retry => Self::Retry,
        }
    }
}

fn raw(text: &str) -> std::result::Result<Box<RawValue>, String> {
    serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))
}

impl Intents {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let told = self.tell(global).await?;
        if global.json {
            return print_json(&told);
        }
        match told["intents"].as_array() {
            Some(intents) if intents.is_empty() => {
                eprintln!("There is no such intent.");
                Ok(())
            }
            Some(intents) => {
                print(&rows(intents))?;
                if let Some(next) = told["next"].as_str() {
                    eprintln!("There are more: --cursor '{next}'");
                }
                Ok(())
            }
            None => print(&one(&told)),
        }
    }

    /// What comes back is JSON, alike from the store and from a server.
    async fn tell(&self, global: &Global) -> Result<Value> {
        match global.reach_existing().await? {
            Reached::Server(server) => self.verb.ask(&server),
            Reached::Store(store) => {
                let told = self.verb.act(global, &store).await;
                store.close().await;
                told
            }
        }
    }
}

impl IntentsVerb {
    async fn act(&self, global: &Global, store: &Store) -> Result<Value> {
        let log = Log::open(store).await?;
        let work = workshop::open_to_ask(&global.load()?, store).await?;
        let intents = Kept::open(&log, &work, Operations::new());
        let place = |page: &Page| page.cursor.as_deref().map(str::parse).transpose();
        Ok(match self {
            Self::List { status, operation, correlation, page } => {
                let filter = IntentFilter {
                    status: status.map(Into::into),
                    operation_type: operation.clone(),
                    correlation_id: correlation.clone(),
                    after: place(page)?,
                };
                masked(&intents.list(filter, page.limit.into()).await?)
            }
            Self::Orphans { operation, older_than, page } => {
                let orphans = Orphans {
                    operation_type: operation.clone(),
                    older_than_ms: millis(*older_than),
                    after: place(page)?,
                };
                masked(&intents.orphans(orphans, page.limit.into()).await?)
            }
            Self::Show { intent_key } => masked(&intents.get(intent_key).await?),
            Self::Record(record) => json(&intents.record(record.new_intent()?).await?),
            Self::Complete { intent_key, status, result, error } => {
                let complete = async {
                    let mut completion = Completion::new(intent_key, (*status).into());
                    if let Some(result) = result {
                        completion = completion.result(result)?;
                    }
                    Ok(json(&intents.complete(error.iter().fold(completion, Completion::error)).await?))
                };
                completing(intent_key, *status, result, error).carry_out(store, complete).await?
            }
            Self::Abandon { intent_key, reason } => {
                let abandon = async {
                    let why = reason.as_deref().unwrap_or(BY_AN_OPERATOR);
                    Ok(json(&intents.complete(Completion::abandoned(intent_key, why)).await?))
                };
                abandoning(intent_key, reason).carry_out(store, abandon).await?
            }
        })
    }

    fn ask(&self, server: &Remote) -> Result<Value> {
        let with = |name: &str, value: Option<String>| {
            value.map(|value| format!("&{name}={}", segment(&value))).unwrap_or_default()
        };
        match self {
            Self::List { status, operation, correlation, page } => server.get(&format!(
                "/admin/intents?limit={}{}{}{}{}",
                page.limit,
                with("status", status.map(|status| IntentStatus::from(status).as_str().to_owned())),
                with("operationType", operation.clone()),
                with("correlationId", correlation.clone()),
                with("cursor", page.cursor.clone())
            )),
            Self::Orphans { operation, older_than, page } => server.get(&format!(
                "/v1/intents/orphans?limit={}&olderThanMs={}{}{}",
                page.limit,
                millis(*older_than),
                with("operationType", operation.clone()),
                with("cursor", page.cursor.clone())
            )),
            Self::Show { intent_key } => server.get(&format!("/admin/intents/{}", segment(intent_key))),
            Self::Record(record) => server.post("/v1/intents", &record.body()),
            Self::Complete { intent_key, status, result, error } => {
                completing(intent_key, *status, result, error).ask(server)
            }
            Self::Abandon { intent_key, reason } => abandoning(intent_key, reason).ask(server),
        }
    }
}

/// Over HTTP this is what applications do all day. At the store it is somebody at a keyboard, who can abandon with it, too.
fn completing(
    intent_key: &str,
    status: Ended,
    result: &Option<Box<RawValue>>,
    error: &Option<String>,
) -> Deed {
    let status = CompletionStatus::from(status).as_str();
    let body = json!({ "status": status, "result": result, "error": error });
    Deed::new("POST /v1/intents/{intentKey}/complete", &[intent_key]).with(body)
}

fn abandoning(intent_key: &str, reason: &Option<String>) -> Deed {
    Deed::new("POST /admin/intents/{intentKey}/abandon", &[intent_key]).with(json!({ "reason": reason }))
}

impl Record {
    fn new_intent(&self) -> Result<NewIntent> {
        let on_timeout = OnTimeout {
            policy: self.on_timeout.into(),
            handler: self.handler.clone(),
            max_retries: self.max_retries,
        };
        let stream = (&self.stream_type, &self.stream_id);
        let mut new = NewIntent::new(&self.operation, stream, &self.context, self.timeout, on_timeout);
        new = self.started_at.into_iter().fold(new, NewIntent::started_at_ms);
        new = self.correlation.iter().fold(new, NewIntent::correlation);
        if let Some(metadata) = &self.metadata {
            new = new.metadata(metadata)?;
        }
        Ok(new)
    }

    fn body(&self) -> Value {
        json!({
            "operationType": self.operation,
            "streamType": self.stream_type,
            "streamId": self.stream_id,
            "boundedContext": self.context,
            "timeoutMs": millis(Some(self.timeout)),
            "onTimeout": Policy::from(self.on_timeout),
            "handler": self.handler,
            "maxRetries": self.max_retries,
            "startedAt": self.started_at,
            "correlationId": self.correlation,
            "metadata": self.metadata,
        })
    }
}

fn millis(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn rows(intents: &[Value]) -> String {
    let row = |intent: &Value| {
        [
            text(&intent["intentKey"]),
            text(&intent["status"]),
            text(&intent["onTimeout"]["policy"]),
            text(&intent["timeouts"]),
            age(&intent["timeSinceIntent"]),
            short(&intent["error"], WIDTH),
        ]
    };
    let rows: Vec<_> = intents.iter().map(row).collect();
    table(["INTENT", "STATUS", "ON TIMEOUT", "TIMEOUTS", "AGE", "ERROR"], &rows)
}

fn one(intent: &Value) -> String {
    let mut told = vec![("intent", text(&intent["intentKey"]))];
    let mut tell = |name: &'static str, value: &Value, said: fn(&Value) -> String| {
        if !value.is_null() {
            told.push((name, said(value)));
        }
    };
    tell("status", &intent["status"], text);
    tell("operation", &intent["operationType"], text);
    tell("stream", &intent["streamId"], text);
    tell("context", &intent["boundedContext"], text);
    tell("correlation", &intent["correlationId"], text);
    tell("on timeout", &intent["onTimeout"]["policy"], text);
    tell("handler", &intent["onTimeout"]["handler"], text);
    tell("started", &intent["startedAt"], moment);
    tell("time is up", &intent["timeoutAt"], moment);
    tell("timeouts", &intent["timeouts"], text);
    tell("ended", &intent["endedAt"], moment);
    tell("begun by", &intent["intentEventId"], text);
    tell("ended by", &intent["completionEventId"], text);
    tell("result", &intent["result"], Value::to_string);
    tell("error", &intent["error"], text);
    tell("metadata", &intent["metadata"], Value::to_string);
    lines(&told)
}
