//! Mainstay: the log on SQLite in this process, behind its server, and on PostgreSQL.

use super::{Answer, Contender, DATA, Entry, TYPE, Verdict};
use anyhow::{Context, Result, bail};
use mainstay_events::{Append, COMPONENT, Condition, Error, Log, MAX_PAGE, NewEvent, Selection};
use mainstay_store::Options;
use mainstay_testkit::postgres::{Database, Private};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The first argument that makes this program the server.
pub const SERVE: &str = "mainstay-server";

/// On a SQLite file, through the library.
pub fn embedded() -> Entry {
    Entry::new("mainstay", async |folder: PathBuf| {
        Ok(Arc::new(Library::open(&url(&folder), None).await?) as _)
    })
}

/// On a database of its own.
pub fn on_postgres(server: &Arc<Private>) -> Entry {
    let server = server.clone();
    Entry::new("mainstay", move |_folder| {
        let server = server.clone();
        async move {
            let database = tokio::task::spawn_blocking(move || server.database()).await??;
            let url = database.url().to_owned();
            Ok(Arc::new(Library::open(&url, Some(database)).await?) as _)
        }
    })
}

/// On one database, by callers of two nodes in turns.
pub fn two_nodes(server: &Arc<Private>) -> Entry {
    let server = server.clone();
    Entry::new("mainstay, two nodes", move |_folder| {
        let server = server.clone();
        async move {
            let database = tokio::task::spawn_blocking(move || server.database()).await??;
            let url = database.url().to_owned();
            let first = Library::open(&url, Some(database)).await?;
            let second = Library::open(&url, None).await?;
            Ok(Arc::new(Pair { nodes: [first, second], turn: Default::default() }) as _)
        }
    })
}

/// Behind `mainstay serve`'s server, over HTTP.
pub fn served() -> Entry {
    Entry::new("mainstay", async |folder: PathBuf| {
        Ok(tokio::task::spawn_blocking(move || Http::open(&folder)).await?.map(Arc::new)? as _)
    })
}

fn url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("log.db").display())
}

/// Appends as the library's users do.
struct Library {
    log: Log,
    event: NewEvent,
    _database: Option<Database>,
}

impl Library {
    async fn open(url: &str, database: Option<Database>) -> Result<Self> {
        let store = Options::new(url).component(COMPONENT).open().await?;
        let data = serde_json::value::RawValue::from_string(DATA.to_owned())?;
        Ok(Self { log: Log::open(&store).await?, event: NewEvent::new(TYPE, &data)?, _database: database })
    }
}

impl Contender for Library {
    fn append(&self, tag: String) -> Answer<'_, Verdict> {
        Box::pin(async move {
            let once = Condition::no_tag(tag.as_str())?;
            match self.log.append(Append::from(self.event.clone().tag(tag)).unless(once)).await {
                Ok(_) => Ok(Verdict::Appended),
                Err(Error::ConditionFailed { .. }) => Ok(Verdict::Refused),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn read_all(&self) -> Answer<'_, u64> {
        Box::pin(async move {
            let (mut count, mut selection) = (0, Selection::all());
            loop {
                let page = self.log.read(&selection, MAX_PAGE).await?;
                for event in &page.events {
                    std::hint::black_box(event.data());
                    count += 1;
                }
                let Some(next) = page.next else { return Ok(count) };
                selection.after = next;
            }
        })
    }
}

/// Two nodes on one database.
struct Pair {
    nodes: [Library; 2],
    turn: std::sync::atomic::AtomicUsize,
}

impl Contender for Pair {
    fn append(&self, tag: String) -> Answer<'_, Verdict> {
        let turn = self.turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.nodes[turn % 2].append(tag)
    }

    fn read_all(&self) -> Answer<'_, u64> {
        self.nodes[0].read_all()
    }
}

/// Runs the server on a store in `folder` until the process that started it is gone.
pub fn serve(folder: &str) -> Result<()> {
    std::thread::spawn(|| {
        drop(std::io::stdin().read(&mut [0]));
        std::process::exit(0);
    });
    tokio::runtime::Runtime::new()?.block_on(async {
        let store = mainstay_server::equipped(Options::new(url(Path::new(folder)))).open().await?;
        let options = mainstay_server::Options::default().listen(([127, 0, 0, 1], 0).into());
        let server = mainstay_server::Server::bind(options, store).await?;
        println!("{}", server.address());
        server.run(std::future::pending()).await;
        Ok(())
    })
}

/// A server in a process of its own, and connections to it that stay open.
struct Http {
    address: String,
    idle: Mutex<Vec<TcpStream>>,
    server: Child,
}

impl Drop for Http {
    fn drop(&mut self) {
        if let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", self.server.id())) {
            let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
            eprintln!("  mainstay's server: {}", peak.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

impl Http {
    fn open(folder: &Path) -> Result<Self> {
        let mut server = Command::new(std::env::current_exe()?)
            .args([SERVE.as_ref(), folder.as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        BufReader::new(server.stdout.take().context("a pipe")?).read_line(&mut address)?;
        Ok(Self { address: address.trim().to_owned(), idle: Mutex::default(), server })
    }

    /// One request on a connection that stays open, as every client library does it.
    async fn ask(&self, request: String) -> Result<(u16, Vec<u8>)> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut line = match idle {
            Some(line) => line,
            None => {
                let line = TcpStream::connect(&self.address).await?;
                line.set_nodelay(true)?;
                line
            }
        };
        line.write_all(request.as_bytes()).await?;
        let mut bytes = Vec::with_capacity(4096);
        let (status, head, length) = loop {
            if line.read_buf(&mut bytes).await? == 0 {
                bail!("the server hung up");
            }
            if let Some(found) = parse_head(&bytes)? {
                break found;
            }
        };
        bytes.reserve((head + length).saturating_sub(bytes.len()));
        while bytes.len() < head + length {
            if line.read_buf(&mut bytes).await? == 0 {
                bail!("the server hung up");
            }
        }
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        Ok((status, bytes.split_off(head)))
    }
}

/// Status, length of the head and length of the body, once the head is there.
fn parse_head(bytes: &[u8]) -> Result<Option<(u16, usize, usize)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end])?;
    let status = head.get(9..12).context("a status")?.parse()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    Ok(Some((status, end + 4, length.context("a length")?.parse()?)))
}

impl Contender for Http {
    fn append(&self, tag: String) -> Answer<'_, Verdict> {
        Box::pin(async move {
            let body = format!(
                r#"{{"events":[{{"type":"{TYPE}","data":{DATA},"tags":["{tag}"]}}],"condition":{{"failIfEventsMatch":[{{"tags":["{tag}"]}}]}}}}"#
            );
            let request = format!(
                "POST /v1/events HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                self.address,
                body.len()
            );
            match self.ask(request).await? {
                (200, _) => Ok(Verdict::Appended),
                (409, _) => Ok(Verdict::Refused),
                (status, body) => bail!("{status}: {}", String::from_utf8_lossy(&body)),
            }
        })
    }

    fn read_all(&self) -> Answer<'_, u64> {
        Box::pin(async move {
            let (mut after, mut count) = (0_u64, 0);
            loop {
                let request = format!(
                    "GET /v1/events?limit=1000&after={after} HTTP/1.1\r\nHost: {}\r\n\r\n",
                    self.address
                );
                let (status, body) = self.ask(request).await?;
                if status != 200 {
                    bail!("{status}: {}", String::from_utf8_lossy(&body));
                }
                let text = std::str::from_utf8(&body)?;
                count += text.matches("{\"eventId\"").count() as u64;
                let Some((_, next)) = text.rsplit_once("\"next\":") else { return Ok(count) };
                after = next.trim_end_matches('}').parse()?;
            }
        })
    }
}
