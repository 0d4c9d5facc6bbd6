//! One client, its server, and the bytes between them.

use std::{
    io,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::Weather;

/// Chunks under way in one direction: together with their size this bounds the memory of a held connection to
/// one megabyte.
const CHUNKS: usize = 64;
const CHUNK_BYTES: usize = 16 * 1024;

/// What every live connection hangs on. Each holds a receiver; a message cuts them all, and the channel counts
/// as closed once the last of them has ended.
#[derive(Debug, Default)]
pub(super) struct Line(Mutex<watch::Sender<()>>);

impl Line {
    pub(super) fn hook(&self) -> watch::Receiver<()> {
        self.current().subscribe()
    }

    pub(super) fn connections(&self) -> usize {
        self.current().receiver_count()
    }

    /// Cuts what hangs on the line now and waits until it has gone; what comes later hangs on a new line.
    pub(super) async fn cut(&self) {
        let old = std::mem::take(&mut *self.current());
        old.send_replace(());
        old.closed().await;
    }

    fn current(&self) -> MutexGuard<'_, watch::Sender<()>> {
        // Nothing that could panic happens under the lock, so a poisoned one is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the drop of `stream` an RST instead of an orderly end.
pub(super) fn reset(stream: &TcpStream) {
    // Fails only on a socket that is gone already, which is what was wanted.
    let _ = stream.set_zero_linger();
}

/// Carries bytes until both sides have ended, one has failed, or `hook` says that the line is cut.
pub(super) async fn run(
    mut client: TcpStream,
    target: SocketAddr,
    mut weather: watch::Receiver<Weather>,
    mut hook: watch::Receiver<()>,
) {
    let mut server = None;
    let orderly = tokio::select! {
        _ = hook.changed() => false,
        carried = carry(&mut client, &mut server, target, &mut weather) => carried.is_ok(),
    };
    if !orderly {
        reset(&client);
        server.as_ref().inspect(|server| reset(server));
    }
    // The sockets go before the hook does, so that whoever waits for the line to be empty finds them closed.
    drop((client, server));
}

async fn carry(
    client: &mut TcpStream,
    server: &mut Option<TcpStream>,
    target: SocketAddr,
    weather: &mut watch::Receiver<Weather>,
) -> io::Result<()> {
    // On a half-open line the server would not even hear that somebody calls.
    clear(weather, Instant::now()).await;
    let server = server.insert(TcpStream::connect(target).await?);
    // The proxy should add no delay but the one it is asked for.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::try_join!(
        direction(from_client, to_server, weather.clone()),
        direction(from_server, to_client, weather.clone()),
    )?;
    Ok(())
}

/// Reading goes on while earlier chunks wait for their time, or a delay would add up chunk by chunk.
async fn direction(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    let (taken, due) = mpsc::channel(CHUNKS);
    let ((), delivered) = tokio::join!(take(from, taken), deliver(due, to, weather));
    delivered
}

/// What was read and when: no bytes for the end of the stream, an error for its failure. The end and the failure
/// travel like bytes do, since on a half-open line the other side hears of neither.
type Chunk = (Instant, io::Result<Vec<u8>>);

async fn take(mut from: ReadHalf<'_>, taken: mpsc::Sender<Chunk>) {
    loop {
        let mut bytes = Vec::with_capacity(CHUNK_BYTES);
        let read = from.read_buf(&mut bytes).await.map(|_| bytes);
        let last = read.as_ref().map_or(true, Vec::is_empty);
        if taken.send((Instant::now(), read)).await.is_err() || last {
            return;
        }
    }
}

async fn deliver(
    mut due: mpsc::Receiver<Chunk>,
    mut to: WriteHalf<'_>,
    mut weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    while let Some((arrived, chunk)) = due.recv().await {
        clear(&mut weather, arrived).await;
        to.write_all(&chunk?).await?;
    }
    to.shutdown().await
}

/// Waits until what arrived at `arrived` may pass.
async fn clear(weather: &mut watch::Receiver<Weather>, arrived: Instant) {
    loop {
        let Weather { hold, delay, .. } = *weather.borrow_and_update();
        let due = arrived + delay;
        if !hold && due <= Instant::now() {
            return;
        }
        tokio::select! {
            () = sleep_until(due), if !hold => {}
            // Without a proxy nothing will ever change; this task is about to be ended with it.
            changed = weather.changed() => if changed.is_err() { std::future::pending().await },
        }
    }
}
