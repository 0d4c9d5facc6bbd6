//! `mainstay events read`.

use super::LAST;
use super::filters::{Filters, moment, stream};
use super::page;
use super::shown::Layout;
use crate::arguments::Global;
use crate::client::Client;
use crate::services::Opening::Existing;
use crate::{Result, output};
use clap::Args;
use mainstay::events::{MAX_PAGE, Selection};

/// Read events, in the order of their positions
///
/// A table for people, with long data shortened; with --json one event per line, whole.
#[derive(Debug, Args)]
pub(super) struct Read {
    /// Only events after this position; of a stream, after this version
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true,
        value_parser = clap::value_parser!(u64).range(..=LAST))]
    after: u64,
    /// At most so many events
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// All there are, however many
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    #[command(flatten)]
    filters: Filters,
    /// Only events of this stream
    #[arg(long, value_name = "TYPE/ID",
        conflicts_with_all = ["types", "tags", "query", "correlation_id", "since", "before"])]
    stream: Option<String>,
    /// Only events that were committed at this time or later: 2027-01-15T08:00:00Z, or milliseconds
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    since: Option<i64>,
    /// Only events that were committed before this time
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    before: Option<i64>,
}

impl Read {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let selection = self.selection()?;
        global.ask(Existing, async |client| self.read(client, selection, global.json).await).await
    }

    fn selection(&self) -> Result<Selection> {
        let selection =
            Selection { since_ms: self.since, before_ms: self.before, ..self.filters.selection()? };
        let stream = self.stream.as_deref().map(stream).transpose()?;
        Ok(Selection { after: self.after, stream, ..selection })
    }

    async fn read(&self, client: &Client, mut selection: Selection, is_json: bool) -> Result<()> {
        let mut left = if self.all { u64::MAX } else { self.limit };
        let mut layout = Layout::default();
        let mut count = 0;
        loop {
            let limit = left.min(MAX_PAGE as u64);
            let page = page::read(client, &selection, limit as usize).await?;
            count += page.lines.len();
            left -= (page.lines.len() as u64).min(left);
            let text = match is_json {
                true => page.lines.iter().map(|line| format!("{line}\n")).collect(),
                false => layout.page(&page.lines),
            };
            if !output::offer(&text)? {
                return Ok(());
            }
            match page.next {
                Some(next) if left > 0 => selection.after = next,
                next => {
                    if let Some(talk) = self.summary(count, next).filter(|_| !is_json) {
                        eprintln!("{talk}");
                    }
                    return Ok(());
                }
            }
        }
    }

    fn summary(&self, count: usize, next: Option<u64>) -> Option<String> {
        match next {
            Some(next) => Some(format!("There is more; --after {next} goes on from here.")),
            None if count == 0 => Some("There are no such events.".to_owned()),
            None => None,
        }
    }
}
