//! `mainstay intents`: long operations between two events.

use super::span;
use crate::Result;
use crate::arguments::{Global, Page, Whose};
use crate::client::Call;
use crate::output::{print, print_json, table};
use crate::services::Opening::{Declared, Existing};
use crate::shown::{age, lines, moment, short, text};
use clap::{Args, Subcommand, ValueEnum};
use mainstay::flows::delivery::intents::{CompletionStatus, IntentStatus, MAX_METADATA_BYTES, Policy};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::time::Duration;

/// Longest text of an error in a table.
const WIDTH: usize = 50;

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
        #[command(flatten)]
        whose: Whose,
    },
    /// Record that a long operation begins
    Record(Record),
    /// Record that a long operation has ended
    Complete {
        /// The intent
        intent_key: String,
        #[command(flatten)]
        whose: Whose,
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
        #[command(flatten)]
        whose: Whose,
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
    use mainstay::core::json;
    let bounds = json::Bounds::bytes(MAX_METADATA_BYTES);
    json::parse(text.as_bytes(), bounds).map_err(|error| format!("it {error}"))
}

impl Intents {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let opening = if matches!(self.verb, IntentsVerb::Record(_)) { Declared } else { Existing };
        let told: Value = global.send(opening, self.verb.call()).await?;
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
}

impl IntentsVerb {
    fn call(&self) -> Call {
        match self {
            Self::List { status, operation, correlation, page } => Call::new("GET /admin/intents", &[])
                .page(page)
                .query("status", status.map(|status| IntentStatus::from(status).as_str()))
                .query("operationType", operation.as_ref())
                .query("correlationId", correlation.as_ref()),
            Self::Orphans { operation, older_than, page } => Call::new("GET /v1/intents/orphans", &[])
                .page(page)
                .query("olderThanMs", Some(millis(*older_than)))
                .query("operationType", operation.as_ref()),
            Self::Show { intent_key, whose } => {
                Call::new("GET /admin/intents/{intentKey}", &[intent_key]).of(whose)
            }
            Self::Record(record) => Call::new("POST /v1/intents", &[]).with(&record.body()),
            Self::Complete { intent_key, whose, status, result, error } => {
                let status = CompletionStatus::from(*status).as_str();
                let body = json!({ "status": status, "result": result, "error": error });
                let call = Call::new("POST /v1/intents/{intentKey}/complete", &[intent_key]).of(whose);
                // A person at a keyboard can abandon with it, too.
                call.with(&body).written()
            }
            Self::Abandon { intent_key, whose, reason } => {
                let call = Call::new("POST /admin/intents/{intentKey}/abandon", &[intent_key]).of(whose);
                call.with(&json!({ "reason": reason }))
            }
        }
    }
}

impl Record {
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
