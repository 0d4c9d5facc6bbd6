//! `mainstay token create` and `rotate`: what prints a secret, or writes it into a file.

use super::{check, life};
use crate::arguments::Global;
use crate::client::Call;
use crate::services::Opening::Anew;
use crate::{Error, Result, output};
use clap::Args;
use mainstay::store::files;
use mainstay_server::{Created, NewToken, Role, RotateToken, Rotated, Scope};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Create a token and print its secret, which is shown this once
#[derive(Debug, Args)]
pub(super) struct Create {
    /// Purpose of the token, shown in lists and in the audit
    #[arg(long)]
    name: String,
    /// Role of the token: worker, publisher, reader, operator or admin
    #[arg(long)]
    role: Role,
    /// The tenant it is confined to; without one it sees all
    #[arg(long)]
    tenant: Option<String>,
    /// When it becomes worthless, counted from now: 90s, 30m, 12h, 30d, 52w or never; what access.tokenLifeMs says, when left out
    #[arg(long, value_name = "TIME", value_parser = expiry)]
    expires_in: Option<Expiry>,
    /// For a worker or a publisher: a pool to claim from or to enqueue into; `orders.*` names every pool that begins so
    #[arg(long = "pool", value_name = "NAME")]
    pools: Vec<String>,
    /// For a worker or a publisher: a function to claim, or to enqueue and to be told with
    #[arg(long = "function", value_name = "NAME")]
    functions: Vec<String>,
    /// For a publisher: a type of events to append and to publish
    #[arg(long = "event-type", value_name = "NAME")]
    event_types: Vec<String>,
    /// For a publisher: a type of streams to append to
    #[arg(long = "stream-type", value_name = "NAME")]
    stream_types: Vec<String>,
    /// For a publisher: a target to publish to
    #[arg(long = "target", value_name = "NAME")]
    targets: Vec<String>,
    /// Write the secret into a new file, which only its owner can read, instead of printing it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Give a token a new secret and print it; the old one goes on working for a while
///
/// The new token has the name, role, scope and tenant of the old one, another id, and lives as long.
#[derive(Debug, Args)]
pub(super) struct Rotate {
    /// The id of the token, as `list` tells it
    id: String,
    /// Time for which the old secret goes on working: 0s to 30d
    #[arg(long, value_name = "TIME", value_parser = life, default_value = "24h")]
    overlap: Duration,
    /// Write the secret into a new file, which only its owner can read, instead of printing it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// When a token becomes worthless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    Never,
    After(Duration),
}

pub(super) fn expiry(text: &str) -> std::result::Result<Expiry, String> {
    match text {
        "never" => Ok(Expiry::Never),
        text => life(text).map(Expiry::After).map_err(|wrong| format!("{wrong}, or never")),
    }
}

impl Create {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let scope = Scope {
            pools: self.pools.clone(),
            functions: self.functions.clone(),
            stream_types: self.stream_types.clone(),
            event_types: self.event_types.clone(),
            targets: self.targets.clone(),
        };
        let asked = NewToken {
            name: self.name.clone(),
            role: self.role,
            tenant: self.tenant.clone(),
            scope: Some(scope).filter(|scope| *scope != Scope::default()),
            expires_in_ms: self.expires_in.map(|expiry| match expiry {
                Expiry::Never => None,
                Expiry::After(life) => Some(millis(life)),
            }),
        };
        let place = Place::open(self.file.as_deref())?;
        let call = Call::new("POST /admin/tokens", &[]).with(&asked);
        let created: Created = global.send(Anew, call).await?;
        let told = output::json(&created);
        place.tell(global, &created.secret, &told, &format!("Token {} was created.", created.token.id))
    }
}

impl Rotate {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let asked = RotateToken { overlap_ms: Some(millis(self.overlap)) };
        check(&self.id)?;
        let place = Place::open(self.file.as_deref())?;
        let call = Call::new("POST /admin/tokens/{id}/rotate", &[&self.id]).with(&asked);
        let rotated: Rotated = global.send(Anew, call).await?;
        let (old, new) = (&rotated.replaces, &rotated.token);
        let end = super::moment(old.expires_at);
        let said = format!("Token {} takes the place of {}, which works until {end}.", new.id, old.id);
        place.tell(global, &rotated.secret, &output::json(&rotated), &said)
    }
}

/// The place of a secret: stdout, or a new file that is there before the token is made.
struct Place<'a> {
    file: Option<(&'a Path, std::fs::File)>,
    is_told: bool,
}

impl<'a> Place<'a> {
    fn open(path: Option<&'a Path>) -> Result<Self> {
        let create = |path| files::create_new(path).map(|file| (path, file)).map_err(failed(path));
        Ok(Self { file: path.map(create).transpose()?, is_told: false })
    }

    fn tell(mut self, global: &Global, secret: &str, told: &serde_json::Value, said: &str) -> Result<()> {
        let Some((path, file)) = &mut self.file else {
            if global.json {
                return output::print_json(told);
            }
            output::print(&format!("{secret}\n"))?;
            eprintln!("{said} Its secret, above, is not shown again.");
            return Ok(());
        };
        let written = file.write_all(format!("{secret}\n").as_bytes()).and_then(|()| file.sync_all());
        written.map_err(failed(path))?;
        self.is_told = true;
        if global.json {
            let mut told = told.clone();
            told["secret"] = json!(null);
            told["file"] = json!(path.display().to_string());
            return output::print_json(&told);
        }
        eprintln!("{said} Its secret is in {}, which only you can read.", path.display());
        Ok(())
    }
}

/// A file without a secret in it is of no use.
impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some((path, _)) = self.file.as_ref().filter(|_| !self.is_told) {
            drop(std::fs::remove_file(path));
        }
    }
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let what = path.display().to_string();
    move |source| Error::Io { what, source }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
