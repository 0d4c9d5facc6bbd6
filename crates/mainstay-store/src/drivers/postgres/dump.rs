//! Backups by PostgreSQL's own programs: `pg_dump` and `pg_restore`.
//!
//! They are given everything in their environment, since a command line is seen by every user of the machine.

use super::connect::{self, Server};
use super::failure;
use crate::{Error, Location, Options, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Names the folder of the server's programs, when they are not on the PATH or are of another version there.
const FOLDER_VARIABLE: &str = "MAINSTAY_PG_BIN";

/// Most of what a program said that an error quotes.
const QUOTED_BYTES: usize = 2_000;

/// Writes the whole database to a file, as of one snapshot.
pub(crate) fn dump(url: &str, target: &Path) -> Result<()> {
    let mut command = program("pg_dump", url)?;
    // The mark of a restore that has not finished is that database's own.
    command
        .args(["--format=custom", "--no-password", "--exclude-table=mainstay_restore_pending", "--file"])
        .arg(target);
    run_tool("pg_dump", command)
}

/// Reads such a file into an empty database: all of it or nothing. Everything belongs to who restores it.
pub(crate) fn undump(url: &str, backup: &Path) -> Result<()> {
    let mut command = program("pg_restore", url)?;
    command.args([
        "--no-owner",
        "--no-privileges",
        "--no-password",
        "--exit-on-error",
        "--single-transaction",
    ]);
    let (config, _) = connect::read(url)?;
    command.arg("--dbname").arg(config.get_dbname().unwrap_or_default()).arg(backup);
    run_tool("pg_restore", command)
}

const COUNT_RELATIONS: &str = "SELECT count(*) FROM pg_catalog.pg_class AS relation \
     JOIN pg_catalog.pg_namespace AS space ON space.oid = relation.relnamespace \
     WHERE space.nspname <> 'information_schema' AND space.nspname NOT LIKE 'pg\\_%' \
     AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_depend AS part \
                     WHERE part.objid = relation.oid AND part.deptype = 'e') \
     AND relation.oid IS DISTINCT FROM to_regclass('mainstay_restore_pending')";

/// Runs a statement of no use to the store itself.
pub(crate) async fn run(url: &str, sql: &str) -> Result<()> {
    let server = Server::new(url, &Options::new(url))?;
    let (client, line) = server.connect().await?;
    let line = tokio::spawn(line);
    let ran = server.answer(client.batch_execute(sql)).await;
    drop(client);
    line.abort();
    ran
}

/// Refuses a database that has anything in it but extensions, and the mark of a restore that has put nothing there.
pub(crate) async fn check_empty(url: &str) -> Result<()> {
    let server = Server::new(url, &Options::new(url))?;
    let (client, line) = server.connect().await?;
    let line = tokio::spawn(line);
    let row = server.answer(client.query_one(COUNT_RELATIONS, &[])).await;
    drop(client);
    line.abort();
    match row?.try_get::<_, i64>(0).map_err(|error| failure::of(&error))? {
        0 => Ok(()),
        _ => Err(Error::Exists(format!("a schema in {}", Location::Postgres(url.to_owned())))),
    }
}

/// One of PostgreSQL's programs, told how to reach the server.
fn program(name: &'static str, url: &str) -> Result<Command> {
    let (config, wanted) = connect::read(url)?;
    let mut command = Command::new(find(name)?);
    for (variable, value) in environment(&config) {
        command.env(variable, value);
    }
    if wanted.is_required {
        // What the store itself asks of the server.
        command.env("PGSSLMODE", "verify-full");
        command.env("PGSSLROOTCERT", wanted.authority.as_deref().unwrap_or("system"));
    }
    command.stdin(Stdio::null());
    Ok(command)
}

fn find(name: &'static str) -> Result<PathBuf> {
    let missing = |places: String| Error::ToolMissing { tool: name, places };
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        let path = Path::new(&folder).join(name);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(missing(Path::new(&folder).display().to_string()))
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| missing("the PATH".to_owned()))
}

/// What libpq reads from its environment.
fn environment(config: &Config) -> Vec<(&'static str, String)> {
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(folder) => folder.display().to_string(),
    });
    let joined = |parts: Vec<String>| parts.join(",");
    let mut pairs = vec![
        ("PGHOST", joined(hosts.collect())),
        ("PGHOSTADDR", joined(config.get_hostaddrs().iter().map(ToString::to_string).collect())),
        ("PGPORT", joined(config.get_ports().iter().map(ToString::to_string).collect())),
        ("PGUSER", config.get_user().unwrap_or_default().to_owned()),
        ("PGDATABASE", config.get_dbname().unwrap_or_default().to_owned()),
        ("PGPASSWORD", String::from_utf8_lossy(config.get_password().unwrap_or_default()).into_owned()),
        ("PGOPTIONS", config.get_options().unwrap_or_default().to_owned()),
        ("PGAPPNAME", config.get_application_name().unwrap_or("mainstay").to_owned()),
    ];
    pairs.retain(|(_, value)| !value.is_empty());
    pairs
}

fn run_tool(tool: &'static str, mut command: Command) -> Result<()> {
    let output = command.output().map_err(|error| Error::ToolFailed { tool, reason: error.to_string() })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: String = said.trim().chars().take(QUOTED_BYTES).collect();
    let reason = if said.is_empty() { output.status.to_string() } else { said };
    Err(Error::ToolFailed { tool, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_in_the_environment_only() {
        let url = "postgres://ada:s3cret@db.example:5433/shop?sslmode=require&sslrootcert=/ca.pem";
        let (config, _) = connect::read(url).unwrap();
        let pairs = environment(&config);
        for pair in [
            ("PGHOST", "db.example"),
            ("PGPORT", "5433"),
            ("PGUSER", "ada"),
            ("PGDATABASE", "shop"),
            ("PGPASSWORD", "s3cret"),
        ] {
            assert!(pairs.contains(&(pair.0, pair.1.to_owned())), "{pair:?}");
        }
    }
}
