//! Flows: commands that are decided, and read models that follow the log.
//!
//! | file | what lives there |
//! |---|---|
//! | `dispatch` | the contest of commands: the load and the tables |
//! | `halls` | what is decided |
//! | `mainstay` | ours: a bare append, and a command |
//! | `disintegrate` | a peer in a process of its own; its side is in `bench/peers` |
//! | `replay` | how fast a read model is filled anew, as the log grows |
//! | `visible` | how soon a read model shows what was appended |
//! | `rows` | the read model of both |
//!
//! A contender of `dispatch` implements [`dispatch::Contender`] and takes part once its entry stands in
//! `dispatch::on_sqlite` or `dispatch::on_postgres`. Each is compared with all that stand before it, so Mainstay's come last.

mod disintegrate;
mod dispatch;
mod halls;
mod mainstay;
mod replay;
mod rows;
mod visible;

use anyhow::{Result, bail};

/// Runs the contests that the arguments name; all of them without any.
pub async fn run(contests: &[&str]) -> Result<()> {
    let contests = if contests.is_empty() { &["dispatch", "replay", "visible"] } else { contests };
    for contest in contests {
        match *contest {
            "dispatch" => dispatch::run().await?,
            "replay" => replay::run().await?,
            "visible" => visible::run().await?,
            _ => bail!(crate::USAGE),
        }
    }
    Ok(())
}

/// On both kinds of store, in a new place each.
async fn on_each(mut measure: impl AsyncFnMut(&str, &str) -> Result<()>) -> Result<()> {
    let folder = tempfile::tempdir_in(".")?;
    measure("SQLite", &format!("sqlite:{}", folder.path().join("flows.db").display())).await?;
    crate::rounds::on_postgres(async |server, _| {
        let server = server.clone();
        let database = tokio::task::spawn_blocking(move || server.database()).await??;
        measure("PostgreSQL", database.url()).await
    })
    .await
}
