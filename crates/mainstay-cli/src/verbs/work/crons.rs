//! `mainstay work crons`.

use super::shown;
use crate::arguments::Global;
use crate::client::Call;
use crate::services::Opening::Existing;
use crate::shown::{moment, text};
use crate::{Result, output};
use clap::Args;
use serde_json::Value;

/// List the crons and when they are due, or let one rest, go on or be gone
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").args(["pause", "resume", "remove"]))]
pub(super) struct Crons {
    /// Let this one rest
    #[arg(long, value_name = "NAME")]
    pause: Option<String>,
    /// Let this one go on from its next tick
    #[arg(long, value_name = "NAME")]
    resume: Option<String>,
    /// Remove this one; what it has enqueued stays
    #[arg(long, value_name = "NAME")]
    remove: Option<String>,
}

impl Crons {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let call = match (&self.pause, &self.resume, &self.remove) {
            (Some(name), ..) => Call::new("POST /v1/crons/{name}/pause", &[name]),
            (_, Some(name), _) => Call::new("POST /v1/crons/{name}/resume", &[name]),
            (.., Some(name)) => Call::new("DELETE /v1/crons/{name}", &[name]),
            _ => Call::new("GET /v1/crons", &[]),
        };
        let done: Value = global.send(Existing, call).await?;
        if global.json {
            return output::print_json(&done);
        }
        match done["crons"].as_array() {
            Some(crons) if crons.is_empty() => eprintln!("There are no crons."),
            Some(crons) => return output::print(&shown::crons(crons)),
            None if self.remove.is_some() => eprintln!("{} is gone.", text(&done["name"])),
            None if self.pause.is_some() => eprintln!("{} rests.", text(&done["name"])),
            None => {
                eprintln!("{} goes on at {}.", text(&done["name"]), moment(&done["nextAt"]));
            }
        }
        Ok(())
    }
}
