//! UmaDB: its server in a process of its own, its client over gRPC, on the same cores.
//!
//! The server syncs twice for every batch, and 0.7 has no setting that would turn it off. It runs with its defaults, and
//! all callers share one connection: of the pipelined writer, a page cache, reading by mmap and four connections, tried
//! in turns on a busy machine, none was faster with 64 callers and none clearly so with fewer.

use super::{Answer, Contender, DATA, Entry, TYPE, Verdict};
use anyhow::{Result, anyhow};
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use umadb::CliOptions;
use umadb_client::{AsyncUmaDbClient, UmaDbClient};
use umadb_dcb::{DcbAppendCondition, DcbError, DcbEvent, DcbEventStoreAsync, DcbQuery, DcbQueryItem};

/// The first argument that makes this program the server.
pub const SERVE: &str = "umadb-server";

/// Its server is this program once more.
pub fn entry() -> Entry {
    Entry::new("umadb", async |folder| Ok(Arc::new(UmaDb::open(&folder).await?) as _))
}

/// Runs UmaDB's own server with its own settings until the process that started it is gone.
pub fn serve(address: &str, folder: &str) -> Result<()> {
    // Killed or not, that process held the other end of the pipe.
    std::thread::spawn(|| {
        drop(std::io::stdin().read(&mut [0]));
        std::process::exit(0);
    });
    let options =
        CliOptions { listen_addr: address.to_owned(), db_path: folder.to_owned(), ..CliOptions::default() };
    umadb::start_server_with_cli_options(options).map_err(|error| anyhow!("UmaDB: {error}"))
}

struct UmaDb {
    client: AsyncUmaDbClient,
    _server: Server,
}

/// Killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl UmaDb {
    async fn open(folder: &Path) -> Result<Self> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.to_string();
        let server = Command::new(std::env::current_exe()?)
            .args([SERVE, &address])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let server = Server(server);
        // Tries for half a second.
        let client = UmaDbClient::new(format!("http://{address}")).connect_async().await?;
        Ok(Self { client, _server: server })
    }
}

impl Contender for UmaDb {
    fn append(&self, tag: String) -> Answer<'_, Verdict> {
        Box::pin(async move {
            let query = DcbQuery::new().item(DcbQueryItem::new().tags([tag.as_str()]));
            let event = DcbEvent::new().event_type(TYPE).tags([tag]).data(DATA);
            match self.client.append(vec![event], Some(DcbAppendCondition::new(query)), None).await {
                Ok(_) => Ok(Verdict::Appended),
                Err(DcbError::IntegrityError(_)) => Ok(Verdict::Refused),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn read_all(&self) -> Answer<'_, u64> {
        Box::pin(async move {
            let mut events = self.client.read(None, None, false, None).await?;
            let mut count = 0;
            loop {
                let batch = events.next_batch().await?;
                if batch.is_empty() {
                    return Ok(count);
                }
                count += batch.len() as u64;
                std::hint::black_box(batch);
            }
        })
    }
}
