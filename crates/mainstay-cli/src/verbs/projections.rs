//! `mainstay projections`: how read models are doing, and what they could not take.

use crate::Result;
use crate::arguments::Global;
use crate::output::{print, print_json, table};
use crate::remote::{Remote, segment};
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
    /// Try a letter again, or all pending ones
    Retry(Wanted),
    /// Leave a letter for good, or all pending ones of a projection
    Ignore {
        /// The projection
        projection: String,
        /// The event; the oldest pending letters unless given
        event_id: Option<String>,
    },
    /// Remove letters that were resolved long ago
    PurgeLetters {
        /// Those that were resolved more than so many days ago
        #[arg(long)]
        older_than_days: u32,
    },
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
}

#[derive(Debug, Args)]
struct Wanted {
    /// The projection; all unless given
    projection: Option<String>,
    /// The event; the oldest pending letters unless given
    event_id: Option<String>,
    /// Letters of this status: pending or ignored
    #[arg(long, conflicts_with = "event_id")]
    status: Option<String>,
    /// At most so many
    #[arg(long, conflicts_with = "event_id", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: Option<u16>,
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

impl Page {
    fn query(&self, more: &[(&str, &Option<String>)]) -> String {
        let given = more.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?)));
        let given = given.chain(self.cursor.as_ref().map(|cursor| ("cursor", cursor)));
        given.fold(format!("?limit={}", self.limit), |query, (name, value)| {
            format!("{query}&{name}={}", segment(value))
        })
    }
}

/// The server of the application whose read models these are.
pub(super) async fn application(global: &Global) -> Result<Remote> {
    let why = "projections are part of an application, and no server of it runs on this store; name one with --server";
    global.reach_server(why).await
}

impl Projections {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let told = self.ask(&application(global).await?)?;
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

    fn ask(&self, server: &Remote) -> Result<Value> {
        let model = |name: &str| format!("/admin/projections/{}", segment(name));
        let place = |what: &str, projection: &str, event_id: &str| {
            format!("/admin/{what}/{}/{}", segment(projection), segment(event_id))
        };
        let nothing = json!({});
        match &self.verb {
            ProjectionsVerb::List => server.get("/admin/projections"),
            ProjectionsVerb::Show(Name { name }) => server.get(&model(name)),
            ProjectionsVerb::Pause(Name { name }) => server.post(&(model(name) + "/pause"), &nothing),
            ProjectionsVerb::Resume(Name { name }) => server.post(&(model(name) + "/resume"), &nothing),
            ProjectionsVerb::Recover(Name { name }) => server.post(&(model(name) + "/recover"), &nothing),
            ProjectionsVerb::Checkpoints => server.get("/admin/checkpoints"),
            ProjectionsVerb::SetCheckpoint { projection, position, partition } => {
                let path = place("checkpoints", projection, &partition.to_string());
                server.put(&path, &json!({ "position": position }))
            }
            ProjectionsVerb::Poison { projection, page } => {
                server.get(&format!("/admin/poison-events{}", page.query(&[("projection", projection)])))
            }
            ProjectionsVerb::PoisonStats => server.get("/admin/poison-events/stats"),
            ProjectionsVerb::LetterStats => server.get("/admin/projection-letters/stats"),
            ProjectionsVerb::Take(Event { projection, event_id }) => {
                server.post(&(place("projection-letters", projection, event_id) + "/prepare"), &nothing)
            }
            ProjectionsVerb::Run { event: Event { projection, event_id }, action } => {
                let path = place("projection-letters", projection, event_id) + "/run";
                server.post(&path, &json!({ "action": action }))
            }
            ProjectionsVerb::Complete { run_id, error } => {
                let told = json!({ "runId": run_id, "error": error });
                server.post("/admin/projection-letters/complete", &told)
            }
            ProjectionsVerb::Unquarantine(Event { projection, event_id }) => {
                server.post(&(place("poison-events", projection, event_id) + "/unquarantine"), &nothing)
            }
            ProjectionsVerb::IgnorePoison(Event { projection, event_id }) => {
                server.post(&(place("poison-events", projection, event_id) + "/ignore"), &nothing)
            }
            ProjectionsVerb::Letters { projection, status, page } => {
                let query = page.query(&[("projection", projection), ("status", status)]);
                server.get(&format!("/admin/projection-letters{query}"))
            }
            ProjectionsVerb::Letter(Event { projection, event_id }) => {
                server.get(&place("projection-letters", projection, event_id))
            }
            ProjectionsVerb::Retry(Wanted { projection: Some(projection), event_id: Some(id), .. }) => {
                server.post(&(place("projection-letters", projection, id) + "/retry"), &nothing)
            }
            ProjectionsVerb::Retry(Wanted { projection, status, limit, .. }) => {
                let wanted = json!({ "projection": projection, "status": status, "limit": limit });
                server.post("/admin/projection-letters/retry", &wanted)
            }
            ProjectionsVerb::Ignore { projection, event_id: Some(id) } => {
                server.post(&(place("projection-letters", projection, id) + "/ignore"), &nothing)
            }
            ProjectionsVerb::Ignore { projection, event_id: None } => {
                server.post("/admin/projection-letters/ignore", &json!({ "projection": projection }))
            }
            ProjectionsVerb::PurgeLetters { older_than_days } => {
                server.post("/admin/projection-letters/purge", &json!({ "olderThanDays": older_than_days }))
            }
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
