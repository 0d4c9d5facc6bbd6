//! The private PostgreSQL: shared by processes, isolated by databases, killed and restarted, never left behind.
//!
//! Tests of sharing and of cleaning up run children of their own in a temp folder of their own, so that they do
//! not meet the server that the other tests share.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mainstay_testkit::postgres::Postgres;
use tempfile::TempDir;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn text(client: &Client, sql: &str) -> Result<String> {
    Ok(client.query_one(sql, &[]).await?.get(0))
}

#[tokio::test]
async fn databases_of_two_tests_do_not_see_each_other() -> Result<()> {
    let postgres = Postgres::shared()?;
    let (one, other) = (postgres.database()?, postgres.database()?);
    connect(one.url()).await?.batch_execute("CREATE TABLE mine (id int)").await?;
    let client = connect(other.url()).await?;
    assert!(client.batch_execute("SELECT * FROM mine").await.is_err());
    assert_eq!(text(&client, "SELECT current_database()::text").await?, other.name());
    Ok(())
}

#[tokio::test]
async fn a_dropped_database_is_gone_even_with_connections_open() -> Result<()> {
    let postgres = Postgres::shared()?;
    let database = postgres.database()?;
    database.limited_user()?;
    let name = database.name().to_owned();
    let _client = connect(database.url()).await?;
    drop(database);
    let admin = connect(postgres.url()).await?;
    let left = format!(
        "SELECT (SELECT count(*) FROM pg_database WHERE datname = '{name}')
              + (SELECT count(*) FROM pg_roles WHERE rolname LIKE '{name}%')"
    );
    assert_eq!(admin.query_one(&left, &[]).await?.get::<_, i64>(0), 0);
    Ok(())
}

#[tokio::test]
async fn a_limited_user_connects_but_creates_nothing() -> Result<()> {
    let database = Postgres::shared()?.database()?;
    let url = database.limited_user()?;
    assert_eq!(url, database.limited_user()?);
    let client = connect(&url).await?;
    assert_eq!(text(&client, "SELECT 'in'").await?, "in");
    for forbidden in ["CREATE TABLE t (id int)", "CREATE SCHEMA s", "CREATE TEMP TABLE t (id int)"] {
        let error = client.batch_execute(forbidden).await.expect_err(forbidden);
        assert_eq!(error.code().map(SqlState::code), Some("42501"), "{forbidden}: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn text_sorts_as_on_most_servers_in_the_field_and_not_by_bytes() -> Result<()> {
    let database = Postgres::shared()?.database()?;
    let client = connect(database.url()).await?;
    let sorted = "SELECT string_agg(x, '' ORDER BY x) FROM (VALUES ('b'), ('A'), ('a'), ('B')) v(x)";
    assert_eq!(text(&client, sorted).await?, "aAbB");
    Ok(())
}

#[tokio::test]
async fn a_private_server_keeps_what_was_committed_over_a_kill() -> Result<()> {
    let mut postgres = Postgres::private()?;
    let database = postgres.database()?;
    let client = connect(database.url()).await?;
    assert_eq!(text(&client, "SHOW fsync").await?, "on");
    client.batch_execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)").await?;
    client.batch_execute("BEGIN; INSERT INTO t VALUES (2)").await?;

    postgres.kill9()?;
    assert!(connect(database.url()).await.is_err());
    assert!(postgres.kill9().is_err(), "it is not running");
    postgres.start()?;
    assert!(client.batch_execute("COMMIT").await.is_err());
    let client = connect(database.url()).await?;
    assert_eq!(text(&client, "SELECT string_agg(id::text, ',') FROM t").await?, "1");

    postgres.restart()?;
    let client = connect(database.url()).await?;
    assert_eq!(text(&client, "SELECT string_agg(id::text, ',') FROM t").await?, "1");
    Ok(())
}

#[test]
fn a_private_server_is_gone_when_dropped() -> Result<()> {
    for killed in [false, true] {
        let mut postgres = Postgres::private()?;
        let data = PathBuf::from(run(postgres.url(), "SHOW data_directory")?);
        assert!(data.exists());
        if killed {
            postgres.kill9()?;
        }
        drop(postgres);
        assert!(!data.exists());
    }
    Ok(())
}

#[test]
fn two_processes_share_one_server() -> Result<()> {
    let temp = temp_folder()?;
    let one = Child::start(temp.path(), "shared", "60")?;
    let other = Child::start(temp.path(), "shared", "60")?;
    assert_eq!(one.server, other.server);
    drop(one);
    assert_eq!(run(&other.server.url, "SELECT 'still there'")?, "still there");
    let server = other.server.clone();
    drop(other);
    let later = Child::start(temp.path(), "shared", "0")?;
    assert_eq!(later.server, server, "it lingers for the next test binary");
    later.server.kill("QUIT")
}

#[test]
fn a_dead_server_is_replaced() -> Result<()> {
    let temp = temp_folder()?;
    let one = Child::start(temp.path(), "shared", "0")?;
    one.server.kill("KILL")?;
    let other = Child::start(temp.path(), "shared", "0")?;
    assert_ne!(one.server, other.server);
    assert_eq!(run(&other.server.url, "SELECT 'alive'")?, "alive");
    drop((one, other));
    until("the folder to vanish", || is_empty(temp.path()))
}

#[test]
fn the_record_of_another_boot_is_replaced() -> Result<()> {
    let temp = temp_folder()?;
    let server = Child::start(temp.path(), "shared", "0")?.server.clone();
    until("the folder to vanish", || is_empty(temp.path()))?;
    let home = server.home().context("home/server/data")?;
    fs::create_dir(home)?;
    fs::write(home.join("shared"), format!("1\n{}/server-gone\n", home.display()))?;
    let child = Child::start(temp.path(), "shared", "0")?;
    assert_eq!(run(&child.server.url, "SELECT 'alive'")?, "alive");
    drop(child);
    until("the folder to vanish", || is_empty(temp.path()))
}

#[test]
fn killed_processes_leave_nothing_behind() -> Result<()> {
    let temp = temp_folder()?;
    let shared = Child::start(temp.path(), "shared", "1")?;
    let private = Child::start(temp.path(), "private", "1")?;
    let servers = [shared.server.clone(), private.server.clone()];
    assert!(servers.iter().all(Server::is_running));
    drop((shared, private));
    until("the servers to stop", || !servers.iter().any(Server::is_running))?;
    until("the folder to vanish", || is_empty(temp.path()))
}

/// No test of its own: what the children of the tests above run. Names its server and waits to be killed.
#[test]
fn child() -> Result<()> {
    let url;
    let _private;
    match std::env::var("MAINSTAY_CHILD").as_deref() {
        Ok("shared") => url = Postgres::shared()?.url().to_owned(),
        Ok("private") => {
            let server = Postgres::private()?;
            url = server.url().to_owned();
            _private = server;
        }
        _ => return Ok(()),
    }
    let data = run(&url, "SHOW data_directory")?;
    fs::write(std::env::var("MAINSTAY_CHILD_SAYS")?, format!("{url}\n{data}\n"))?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

#[derive(Clone, Debug, PartialEq)]
struct Server {
    url: String,
    data: PathBuf,
}

impl Server {
    fn pid(&self) -> Option<u32> {
        fs::read_to_string(self.data.join("postmaster.pid")).ok()?.lines().next()?.parse().ok()
    }

    fn is_running(&self) -> bool {
        run(&self.url, "SELECT ''").is_ok()
    }

    fn home(&self) -> Option<&Path> {
        self.data.ancestors().nth(2)
    }

    fn kill(&self, signal: &str) -> Result<()> {
        let pid = self.pid().context("a running server has a pid file")?;
        let status = Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status()?;
        ensure!(status.success(), "kill: {status}");
        until("the server to die", || !self.is_running())
    }
}

/// A process that uses a server until it is killed, when this is dropped.
struct Child {
    process: std::process::Child,
    server: Server,
}

impl Child {
    fn start(temp: &Path, kind: &str, linger: &str) -> Result<Self> {
        let says = tempfile::NamedTempFile::new()?;
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--exact", "postgres::child", "--nocapture"])
            .env("MAINSTAY_CHILD", kind)
            .env("MAINSTAY_CHILD_SAYS", says.path())
            .env("TMPDIR", temp)
            .env("MAINSTAY_TEST_LINGER", linger)
            .env_remove("MAINSTAY_TEST_POSTGRES")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let mut said = String::new();
        let waited = until("a child to name its server", || {
            said = fs::read_to_string(says.path()).unwrap_or_default();
            said.ends_with('\n') || process.try_wait().is_ok_and(|status| status.is_some())
        });
        let named = waited.and_then(|()| said.trim_end().split_once('\n').context("the child ended early"));
        match named {
            Ok((url, data)) => {
                let server = Server { url: url.to_owned(), data: PathBuf::from(data) };
                Ok(Self { process, server })
            }
            Err(error) => {
                process.kill()?;
                process.wait()?;
                Err(error)
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The user who runs PostgreSQL for root must be able to pass.
fn temp_folder() -> Result<TempDir> {
    let temp = TempDir::new()?;
    fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o755))?;
    Ok(temp)
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

fn until(what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !done() {
        ensure!(start.elapsed() < Duration::from_secs(60), "waited a minute for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// From a test without a runtime; also shows that the testkit's own calls need none.
fn run(url: &str, sql: &str) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { text(&connect(url).await?, sql).await })
}
