//! `mainstay restore`: a new store from a backup.

use super::progress::teller;
use super::verify;
use crate::arguments::Global;
use crate::audited::audited;
use crate::{Result, config, output};
use clap::Args;
use mainstay::events::{self, Restored};
use mainstay::store::{Location, Store};
use mainstay_server::{Tokens, sign_out};
use serde_json::json;
use std::path::PathBuf;

/// Make a new store from a backup
///
/// The store that --store or the configuration names must not exist yet: a new SQLite file, or an empty PostgreSQL
/// database. The restored log is looked over as `mainstay verify` does, and a new epoch begins, so that consumers which
/// remember positions beyond the backup notice. Every token of the backup is revoked, and every session ended: a token that
/// was revoked after the backup must not come back. A SQLite file gets its name only after that. Problems are reported with
/// exit code 1, and the store is in its place all the same: damaged events are not served.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// A file that `mainstay backup` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Let the tokens of the backup work again, those too that were revoked after it
    #[arg(long)]
    keep_tokens: bool,
}

impl Restore {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let config = global.load()?;
        let store = Location::parse(config.text(&config::store::URL))?.to_string();
        let options = config::store::options(&config);
        let revoke = async |store: &Store| match self.keep_tokens {
            true => Ok(None),
            false => revoke_all(store).await.map(Some),
        };
        let restored = events::restore_with(&self.file, options, teller(global.json), revoke).await?;
        let (Restored { report, epoch }, revoked) = restored;
        if global.json {
            let told = json!({ "store": store, "epoch": epoch, "revokedTokens": revoked, "report": report });
            output::print_json(&told)?;
        } else {
            let tokens = match revoked {
                Some(revoked) => format!("{revoked} revoked; `mainstay token create` makes new ones"),
                None => "kept, those too that were revoked after the backup".to_owned(),
            };
            let findings = verify::findings(&report);
            output::print(&format!("{store}\nepoch     {epoch}\ntokens    {tokens}\n{findings}"))?;
        }
        verify::sound(&report)
    }
}

/// Revokes every token and ends every session, and writes that down.
async fn revoke_all(store: &Store) -> mainstay::store::Result<u64> {
    let revoke = async {
        sign_out(store, None).await?;
        Ok(Tokens::new(store.clone()).revoke_all().await?)
    };
    match audited(store, "mainstay restore", &json!({ "tokens": "revoked" }), revoke).await {
        Ok(revoked) => Ok(revoked),
        Err(crate::Error::Store(error)) => Err(error),
        Err(other) => Err(mainstay::store::Error::application(other)),
    }
}
