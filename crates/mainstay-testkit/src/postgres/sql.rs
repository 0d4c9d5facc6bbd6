//! Statements for the testkit itself, callable inside and outside of async code.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, Error, NoTls, SimpleQueryMessage};

/// Runs statements one by one, each in its own transaction; returns the first column of all rows.
///
/// They run on a thread and runtime of their own: the caller's runtime, if there is one, must not be entered.
pub(super) fn run(url: &str, statements: &[&str]) -> Result<Vec<String>> {
    let work = || -> Result<Vec<String>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run_async(url, statements))
    };
    let result = std::thread::scope(|scope| scope.spawn(work).join());
    result.map_err(|_| anyhow::anyhow!("a thread talking to PostgreSQL panicked"))?
}

async fn run_async(url: &str, statements: &[&str]) -> Result<Vec<String>> {
    let mut config: Config = url.parse()?;
    config.connect_timeout(Duration::from_secs(10));
    let (client, connection) = config.connect(NoTls).await?;
    let connection = tokio::spawn(connection);
    let mut column = Vec::new();
    for statement in statements {
        let messages = client.simple_query(statement).await.with_context(|| (*statement).to_owned())?;
        column.extend(messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }));
    }
    drop(client);
    // Until the server has seen our goodbye, a database that we used cannot serve as a template.
    let _ = connection.await;
    Ok(column)
}

/// Whether an error is that of a server with no room for us at the moment, rather than of no server at all.
pub(super) fn is_busy(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::TOO_MANY_CONNECTIONS | &SqlState::CANNOT_CONNECT_NOW))
}
