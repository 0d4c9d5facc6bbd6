//! `mainstay events erase`.

use crate::arguments::{Global, Whose};
use crate::audited::audited;
use crate::verbs::open_log;
use crate::{Result, output};
use clap::Args;
use mainstay::events::{Erased, Erasure};
use serde_json::json;

/// Erase what events say, and leave that they happened
///
/// Data and metadata are overwritten, in the file and in its write-ahead log; type, tags, ids and time stay, and so does
/// everything that rests on them. Who did it and why is written to the table mainstay_erasures. Copies elsewhere, such
/// as backups, are not touched.
#[derive(Debug, Args)]
pub(super) struct Erase {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    whose: Whose,
    /// Why: the number of the request, for instance
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who does it; whom USER names when it is not given
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    actor: String,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The event with this id
    #[arg(long, value_name = "ID")]
    event: Option<String>,
    /// Every event with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
}

impl Erase {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let erasure = match (&self.which.event, &self.which.tag) {
            (Some(id), _) => Erasure::of_event(id),
            (None, tag) => Erasure::of_tag(tag.as_deref().unwrap_or_default())?,
        };
        let log = open_log(global).await?;
        let log = self.whose.tenant().map_or_else(|| log.clone(), |tenant| log.for_tenant(tenant));
        let body = json!({
            "event": self.which.event, "tag": self.which.tag, "tenant": self.whose.tenant(), "actor": self.actor,
            "reason": self.reason,
        });
        let erase = async { Ok(log.erase(erasure.by(&self.actor).because(&self.reason)).await?) };
        let erased = audited(log.store(), "mainstay events erase", &body, erase).await;
        log.store().clone().close().await;
        let Erased { erasure_id, events, .. } = erased?;
        if global.json {
            return output::print_json(&json!({ "erasureId": erasure_id, "events": events }));
        }
        let noun = if events == 1 { "event" } else { "events" };
        output::print(&format!("{erasure_id}: {events} {noun} erased\n"))
    }
}
