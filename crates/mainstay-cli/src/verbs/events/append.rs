//! `mainstay events append`.

use super::LAST;
use super::filters::{json, stream};
use crate::arguments::Global;
use crate::client::Call;
use crate::services::Opening::Anew;
use crate::{Error, Result, output};
use clap::Args;
use mainstay::events::{self, Appended, Condition, Item, NewEvent, NewStream, Query, Status};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::io::Read;

/// Append an event, or several together
///
/// One event from flags, or with --file whatever `POST /v1/events` takes. Prints what the log answers: the position of
/// each event, and with a stream its version. A condition (--fail-if-tag, --fail-if, --expected-version) that does not
/// hold changes nothing and ends with exit code 1. With --key the same append may be sent any number of times.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("event").args(["event_type", "file"]).required(true))]
#[command(group = clap::ArgGroup::new("condition").args(["fail_if_tags", "fail_if"]))]
pub(super) struct Append {
    /// What happened, as in OrderPlaced
    #[arg(long = "type", value_name = "TYPE", requires = "data")]
    event_type: Option<String>,
    /// What there is to know about it
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// What it is about, as in order:1; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The stream it belongs to
    #[arg(long, value_name = "TYPE/ID")]
    stream: Option<String>,
    /// The version its stream must have; 0 when there must be none yet
    #[arg(long, value_name = "N", requires = "stream", value_parser = clap::value_parser!(u64).range(..=LAST))]
    expected_version: Option<u64>,
    /// Its id; one is made when there is none
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The idempotency key, by which the same append is known when it is sent again
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// What it belongs together with
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Whose it is
    #[arg(long)]
    tenant: Option<String>,
    /// What else is to be noted, an object
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,
    /// Refuse when an event has this tag; given several times, when an event has all of them
    #[arg(long = "fail-if-tag", value_name = "TAG")]
    fail_if_tags: Vec<String>,
    /// Refuse when an event is there that this query means: [{"types":[…],"tags":[…]}, …]
    #[arg(long, value_name = "JSON", conflicts_with = "fail_if_tags")]
    fail_if: Option<String>,
    /// Only events after this position count against it: the head of what the decision rests on
    #[arg(long, value_name = "N", requires = "condition", value_parser = clap::value_parser!(u64).range(..=LAST))]
    after: Option<u64>,
    /// A file with the body of `POST /v1/events`; - reads stdin
    #[arg(long, conflicts_with_all = ["event_type", "data", "tags", "stream", "id", "key", "correlation_id", "tenant",
        "metadata", "fail_if_tags", "fail_if"])]
    file: Option<String>,
}

impl Append {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        // Whatever is wrong with the flags is told before a store is opened or made.
        let append = self.asked()?;
        let appended: Appended = global.send(Anew, Call::new("POST /v1/events", &[]).with(&append)).await?;
        if global.json {
            return output::print_json(&appended);
        }
        output::print(&table(&appended))?;
        eprintln!("{}", summary(&appended));
        Ok(())
    }

    fn asked(&self) -> Result<events::Append> {
        if let Some(file) = &self.file {
            return body(file);
        }
        let (Some(event_type), Some(data)) = (&self.event_type, &self.data) else {
            return Err(Error::Argument("--type and --data are needed, or --file".to_owned()));
        };
        let data: Box<RawValue> = json("--data", data)?;
        let event = NewEvent::new(event_type, &data)?;
        let event = NewEvent {
            event_id: self.id.clone(),
            tags: self.tags.clone(),
            stream: self.stream()?,
            metadata: self.metadata.as_deref().map(|text| json("--metadata", text)).transpose()?,
            idempotency_key: self.key.clone(),
            correlation_id: self.correlation_id.clone(),
            tenant_id: self.tenant.clone(),
            ..event
        };
        Ok(events::Append { events: vec![event], condition: self.condition()? })
    }

    fn stream(&self) -> Result<Option<NewStream>> {
        let Some(text) = &self.stream else { return Ok(None) };
        let (stream_type, id) = stream(text)?;
        Ok(Some(NewStream { stream_type, id, expected_version: self.expected_version }))
    }

    fn condition(&self) -> Result<Option<Condition>> {
        let query: Query = match &self.fail_if {
            Some(text) => json("--fail-if", text)?,
            None if self.fail_if_tags.is_empty() => return Ok(None),
            None => Query::new(vec![Item { types: Vec::new(), tags: self.fail_if_tags.clone() }])
                .map_err(|error| Error::Argument(format!("--fail-if-tag: {error}")))?,
        };
        Ok(Some(Condition { fail_if_events_match: query, after: self.after }))
    }
}

/// The body of a request, from a file or from stdin.
fn body<T: DeserializeOwned>(file: &str) -> Result<T> {
    let (what, text) = match file {
        "-" => {
            let mut text = String::new();
            ("stdin", std::io::stdin().read_to_string(&mut text).map(|_| text))
        }
        path => (path, std::fs::read_to_string(path)),
    };
    let text = text.map_err(|source| Error::Io { what: what.to_owned(), source })?;
    json(&format!("--file {what}"), &text)
}

fn table(appended: &Appended) -> String {
    let rows = appended.events.iter().map(|event| {
        let version = event.version.map_or("-".to_owned(), |version| version.to_string());
        [event.position.to_string(), version, event.event_id.clone()]
    });
    output::table(["POSITION", "VERSION", "EVENT ID"], &rows.collect::<Vec<_>>())
}

fn summary(appended: &Appended) -> String {
    match appended.status {
        Status::Appended => format!("Appended; the log is at position {}.", appended.head),
        Status::Duplicate => "Appended before, with the same key; nothing was changed.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay::events::AppendedEvent;

    #[test]
    fn a_receipt_has_a_line_per_event() {
        let event = |position, version| AppendedEvent { event_id: format!("e{position}"), position, version };
        let mut appended =
            Appended { status: Status::Appended, events: vec![event(9, None), event(10, Some(2))], head: 10 };
        insta::assert_snapshot!(table(&appended), @"
            POSITION  VERSION  EVENT ID
            9         -        e9
            10        2        e10
            ");
        assert_eq!(summary(&appended), "Appended; the log is at position 10.");
        appended.status = Status::Duplicate;
        assert!(summary(&appended).contains("nothing was changed"));
    }
}
