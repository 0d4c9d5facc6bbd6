//! `mainstay projections`: how read models are doing, and what they could not take.

use crate::Result;
use crate::arguments::{Global, Page, Whose};
use crate::client::Call;
use crate::output::{print, print_json, table};
use crate::shown::{lines, members, moment, short, text};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// Longest text of an error in a table.
const WIDTH: usize = 60;

/// Look at read models, and mend them
///
/// Read models are part of an application: its server is asked.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct Projections {
    #[command(subcommand)]
    verb: ProjectionsVerb,
}

#[derive(Debug, Subcommand)]
enum ProjectionsVerb {
    /// List the read models, with their lag
    List,
    /// Show a read model
    Show(Name),
    /// Stop a read model for a while
    Pause(Name),
    /// Let a read model that was stopped go on
    Resume(Name),
    /// Let a read model that could not go on try again
    Recover(Name),
    /// List where every lane of every read model is
    Checkpoints,
    /// Set where a lane of a read model is
    SetCheckpoint {
        /// The projection
        projection: String,
        /// Everything up to here counts as applied
        position: u64,
        /// The lane
        #[arg(long, default_value_t = 0)]
        partition: u32,
    },
    /// List events that were put aside
    Poison {
        /// Of this projection
        #[arg(long)]
        projection: Option<String>,
        #[command(flatten)]
        page: Page,
    },
    /// Count events that were put aside
    PoisonStats,
    /// Try an event again that was put aside
    Unquarantine(Event),
    /// Leave an event for good that was put aside
    IgnorePoison(Event),
    /// List events that a read model could not take
    Letters {
        /// Of this projection
        #[arg(long)]
        projection: Option<String>,
        /// Of this status: pending, retrying, resolved or ignored
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        page: Page,
    },
    /// Count events that read models could not take, by projection and status
    LetterStats,
    /// Take a letter to see to it yourself: nobody else retries it meanwhile
    Take(Event),
    /// Tell that a letter which was taken was seen to, or why it could not be
    Complete {
        /// The `retryRunId` of the letter that was taken
        run_id: String,
        /// Why it could not be seen to; it was unless given
        #[arg(long, value_name = "TEXT")]
        error: Option<String>,
    },
    /// Try a letter again through the retrier, by an action if one is named
    Run {
        #[command(flatten)]
        event: Event,
        /// The action that sees to it, instead of the projection itself
        #[arg(long, value_name = "FUNCTION")]
        action: Option<String>,
    },
    /// Show a letter, with what its event says
    Letter(Event),
    /// Try a letter again
    Retry(Event),
    /// Leave a letter for good
    Ignore(Event),
}

#[derive(Debug, Args)]
struct Name {
    /// The projection
    name: String,
}

#[derive(Debug, Args)]
struct Event {
    /// The projection
    projection: String,
    /// The event
    event_id: String,
    #[command(flatten)]
    whose: Whose,
}

/// Why only the server of an application can be asked about its projections.
pub(super) const WHY: &str =
    "projections are part of an application, and no server of it runs on this store; name one with --server";

impl Projections {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let told: Value = global.send_to_server(WHY, self.call()).await?;
        if global.json {
            return print_json(&told);
        }
        for (list, show) in [
            ("projections", models as fn(&[Value]) -> String),
            ("checkpoints", checkpoints),
            ("poisonEvents", poison),
            ("letters", letters),
        ] {
            if let Some(rows) = told[list].as_array() {
                if rows.is_empty() {
                    eprintln!("There are none.");
                    return Ok(());
                }
                return print(&show(rows));
            }
        }
        print(&one(&told))
    }

    fn call(&self) -> Call {
        let letter = |route: &'static str, Event { projection, event_id, whose }: &Event| {
            Call::new(route, &[projection, event_id]).of(whose)
        };
        match &self.verb {
            ProjectionsVerb::List => Call::new("GET /admin/projections", &[]),
            ProjectionsVerb::Show(Name { name }) => Call::new("GET /admin/projections/{name}", &[name]),
            ProjectionsVerb::Pause(Name { name }) => {
                Call::new("POST /admin/projections/{name}/pause", &[name])
            }
            ProjectionsVerb::Resume(Name { name }) => {
                Call::new("POST /admin/projections/{name}/resume", &[name])
            }
            ProjectionsVerb::Recover(Name { name }) => {
                Call::new("POST /admin/projections/{name}/recover", &[name])
            }
            ProjectionsVerb::Checkpoints => Call::new("GET /admin/checkpoints", &[]),
            ProjectionsVerb::SetCheckpoint { projection, position, partition } => {
                let lane = partition.to_string();
                let call = Call::new("PUT /admin/checkpoints/{projection}/{partition}", &[projection, &lane]);
                call.with(&json!({ "position": position }))
            }
            ProjectionsVerb::Poison { projection, page } => {
                Call::new("GET /admin/poison-events", &[]).page(page).query("projection", projection.as_ref())
            }
            ProjectionsVerb::PoisonStats => Call::new("GET /admin/poison-events/stats", &[]),
            ProjectionsVerb::LetterStats => Call::new("GET /admin/projection-letters/stats", &[]),
            ProjectionsVerb::Take(event) => letter("POST /admin/projection-letters/{p}/{e}/prepare", event),
            ProjectionsVerb::Run { event: Event { projection, event_id, whose }, action } => {
                let call = Call::new("POST /admin/projection-letters/{p}/{e}/run", &[projection, event_id]);
                call.of(whose).with(&json!({ "action": action }))
            }
            ProjectionsVerb::Complete { run_id, error } => {
                let told = json!({ "runId": run_id, "error": error });
                Call::new("POST /admin/projection-letters/complete", &[]).with(&told)
            }
            ProjectionsVerb::Unquarantine(event) => {
                letter("POST /admin/poison-events/{p}/{e}/unquarantine", event)
            }
            ProjectionsVerb::IgnorePoison(event) => letter("POST /admin/poison-events/{p}/{e}/ignore", event),
            ProjectionsVerb::Letters { projection, status, page } => {
                Call::new("GET /admin/projection-letters", &[])
                    .page(page)
                    .query("projection", projection.as_ref())
                    .query("status", status.as_ref())
            }
            ProjectionsVerb::Letter(event) => letter("GET /admin/projection-letters/{p}/{e}", event),
            ProjectionsVerb::Retry(event) => letter("POST /admin/projection-letters/{p}/{e}/retry", event),
            ProjectionsVerb::Ignore(event) => letter("POST /admin/projection-letters/{p}/{e}/ignore", event),
        }
    }
}

fn models(models: &[Value]) -> String {
    let row = |model: &Value| {
        [
            text(&model["projection"]),
            text(&model["status"]),
            text(&model["lag"]),
            text(&model["lastGlobalPosition"]),
            text(&model["eventsProcessed"]),
            text(&model["eventsFailed"]),
        ]
    };
    let rows: Vec<_> = models.iter().map(row).collect();
    table(["PROJECTION", "STATUS", "LAG", "POSITION", "PROCESSED", "FAILED"], &rows)
}

fn checkpoints(checkpoints: &[Value]) -> String {
    let row = |checkpoint: &Value| {
        [
            text(&checkpoint["projection"]),
            text(&checkpoint["partition"]),
            text(&checkpoint["lastGlobalPosition"]),
            moment(&checkpoint["updatedAt"]),
        ]
    };
    let rows: Vec<_> = checkpoints.iter().map(row).collect();
    table(["PROJECTION", "PARTITION", "POSITION", "UPDATED"], &rows)
}

fn poison(events: &[Value]) -> String {
    let row = |event: &Value| {
        [
            text(&event["projectionName"]),
            text(&event["position"]),
            text(&event["eventType"]),
            text(&event["eventId"]),
            text(&event["attempts"]),
            short(&event["error"], WIDTH),
        ]
    };
    let rows: Vec<_> = events.iter().map(row).collect();
    table(["PROJECTION", "POSITION", "TYPE", "EVENT", "ATTEMPTS", "ERROR"], &rows)
}

fn letters(letters: &[Value]) -> String {
    let row = |letter: &Value| {
        [
            text(&letter["projectionName"]),
            text(&letter["position"]),
            text(&letter["eventType"]),
            text(&letter["eventId"]),
            text(&letter["status"]),
            short(&letter["error"], WIDTH),
        ]
    };
    let rows: Vec<_> = letters.iter().map(row).collect();
    table(["PROJECTION", "POSITION", "TYPE", "EVENT", "STATUS", "ERROR"], &rows)
}

fn one(told: &Value) -> String {
    if let Some(count) = told["count"].as_u64() {
        return format!("{count} done\n");
    }
    if let Some(work_id) = told["workId"].as_str() {
        return format!("tried again by {work_id}\n");
    }
    if told["eventId"].is_string() {
        return letter(told);
    }
    if told["projection"].is_null() {
        return members(told);
    }
    lines(&[
        ("projection", text(&told["projection"])),
        ("description", text(&told["description"])),
        ("category", text(&told["category"])),
        ("kind", text(&told["kind"])),
        ("status", text(&told["status"])),
        ("error", text(&told["errorMessage"])),
        ("position", text(&told["lastGlobalPosition"])),
        ("lag", text(&told["lag"])),
        ("partitions", text(&told["partitions"])),
        ("processed", text(&told["eventsProcessed"])),
        ("failed", text(&told["eventsFailed"])),
        ("generation", text(&told["generation"])),
        ("outdated", text(&told["isOutdated"])),
        ("updated", moment(&told["updatedAt"])),
    ])
}

fn letter(letter: &Value) -> String {
    lines(&[
        ("projection", text(&letter["projectionName"])),
        ("event", text(&letter["eventId"])),
        ("position", text(&letter["position"])),
        ("type", text(&letter["eventType"])),
        ("correlation", text(&letter["correlationId"])),
        ("status", text(&letter["status"])),
        ("error", text(&letter["error"])),
        ("failed", moment(&letter["failedAt"])),
        ("retries", text(&letter["retryCount"])),
        ("retried by", text(&letter["retryRunId"])),
        ("last error", text(&letter["lastError"])),
        ("payload", text(&letter["payload"])),
    ])
}
