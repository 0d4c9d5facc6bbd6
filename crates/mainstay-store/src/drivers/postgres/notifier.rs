//! Wake-ups between nodes: LISTEN and NOTIFY on a connection of their own.
//!
//! A NOTIFY inside a transaction takes an instance-wide lock at its commit, so wake-ups are sent after the commit,
//! from here, as many in one message as have gathered. What is lost between a commit and its wake-up (the node died,
//! the link was down) is found by the consumers' fallback; after every reconnect everyone is woken once.

use super::connect::Server;
use crate::Error;
use crate::figures::Figures;
use crate::wakeups::{Hub, Topic};
use mainstay_core::random::Random;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;

const CHANNEL: &str = "mainstay";
/// PostgreSQL's limit is 8,000 bytes; a longer list becomes "everyone".
const MAX_PAYLOAD_BYTES: usize = 7_900;
const EVERYONE: &str = "*";
/// How long a store that closes tries to get its last wake-ups out; consumers have their fallback anyway.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// Sends and receives wake-ups for as long as it lives.
pub(super) struct Notifier {
    waker: Waker,
    task: JoinHandle<()>,
}

/// Wakes listeners on this node at once and on the others soon.
#[derive(Clone)]
pub(super) struct Waker(Arc<Outbox>);

struct Outbox {
    hub: Arc<Hub>,
    figures: Arc<Figures>,
    unsent: watch::Sender<Unsent>,
    /// Tells our own messages from those of other nodes.
    node: String,
}

/// Wake-ups that the other nodes have not been told of.
#[derive(Debug, Default)]
struct Unsent {
    waiting: BTreeSet<Topic>,
    is_sending: bool,
}

impl Notifier {
    pub(super) fn start(
        server: &Server,
        hub: Arc<Hub>,
        figures: Arc<Figures>,
        random: Arc<dyn Random>,
    ) -> Self {
        let node = format!("{:016x}", random.next_u64());
        let outbox = Arc::new(Outbox { hub, figures, unsent: watch::Sender::default(), node });
        let task = tokio::spawn(keep_linked(server.clone(), outbox.clone(), random));
        Self { waker: Waker(outbox), task }
    }

    pub(super) fn wake(&self, topics: BTreeSet<Topic>) {
        self.waker.wake(topics);
    }

    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Waits until the other nodes have been told of everything so far, or patience ends.
    pub(super) async fn flush(&self) {
        let mut unsent = self.waker.0.unsent.subscribe();
        let told = unsent.wait_for(|unsent| unsent.waiting.is_empty() && !unsent.is_sending);
        drop(tokio::time::timeout(LAST_PATIENCE, told).await);
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Waker {
    pub(super) fn wake(&self, topics: BTreeSet<Topic>) {
        if topics.is_empty() {
            return;
        }
        self.0.figures.wakeups.add(topics.len() as u64);
        self.0.hub.wake(topics.iter().map(Topic::as_str));
        self.0.unsent.send_modify(|unsent| unsent.waiting.extend(topics));
    }
}

impl Outbox {
    /// Waits for something to send.
    async fn next(&self) -> Sending<'_> {
        let mut unsent = self.unsent.subscribe();
        // Fails only without a sender, and that is `self`.
        drop(unsent.wait_for(|unsent| !unsent.waiting.is_empty()).await);
        let mut topics = BTreeSet::new();
        self.unsent.send_modify(|unsent| {
            topics = std::mem::take(&mut unsent.waiting);
            unsent.is_sending = true;
        });
        Sending { outbox: self, topics }
    }

    fn payload(&self, topics: &BTreeSet<Topic>) -> String {
        let names: Vec<&str> = topics.iter().map(Topic::as_str).collect();
        let payload = format!("{} {}", self.node, names.join(","));
        if payload.len() <= MAX_PAYLOAD_BYTES { payload } else { format!("{} {EVERYONE}", self.node) }
    }

    fn received(&self, payload: &str) {
        match payload.split_once(' ') {
            Some((node, _)) if node == self.node => {}
            Some((_, EVERYONE)) | None => self.hub.wake_all(),
            Some((_, topics)) => self.hub.wake(topics.split(',')),
        }
    }
}

/// Topics on their way. Those that do not arrive, because the link broke, go back.
struct Sending<'a> {
    outbox: &'a Outbox,
    topics: BTreeSet<Topic>,
}

impl Sending<'_> {
    fn arrived(mut self) {
        self.topics.clear();
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        let topics = std::mem::take(&mut self.topics);
        self.outbox.unsent.send_modify(|unsent| {
            unsent.waiting.extend(topics);
            unsent.is_sending = false;
        });
    }
}

/// Talking ends only by failing.
enum Never {}

async fn keep_linked(server: Server, outbox: Arc<Outbox>, random: Arc<dyn Random>) {
    let mut failures = 0;
    loop {
        let reason = link(&server, &outbox, &mut failures).await;
        tracing::debug!(reason, "the link for wake-ups broke");
        outbox.figures.wakeup_reconnects.increment();
        let wait = super::outage_backoff().jittered_ms(failures, &*random);
        failures = (failures + 1).min(16);
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
}

/// Links this node to the others until the link breaks, and says why it did.
async fn link(server: &Server, outbox: &Outbox, failures: &mut u32) -> String {
    let (client, mut connection) = match server.connect().await {
        Ok(connected) => connected,
        Err(error) => return error.to_string(),
    };
    let (sender, mut messages) = mpsc::unbounded_channel();
    // The connection moves only while it is polled, and messages come out of it there.
    let mut driving = std::pin::pin!(std::future::poll_fn(move |context| {
        loop {
            match std::task::ready!(connection.poll_message(context)) {
                Some(Ok(AsyncMessage::Notification(message))) => {
                    drop(sender.send(message.payload().to_owned()));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return std::task::Poll::Ready(error.to_string()),
                None => return std::task::Poll::Ready("the server closed it".to_owned()),
            }
        }
    }));
    let mut talking = std::pin::pin!(async {
        server.answer(client.batch_execute(&format!("LISTEN {CHANNEL}"))).await?;
        *failures = 0;
        // What was committed elsewhere while nobody listened here.
        outbox.hub.wake_all();
        loop {
            let sending = outbox.next().await;
            let payload = outbox.payload(&sending.topics);
            server.answer(client.execute("SELECT pg_notify($1, $2)", &[&CHANNEL, &payload])).await?;
            sending.arrived();
        }
    });
    loop {
        tokio::select! {
            reason = &mut driving => return reason,
            Err::<Never, Error>(error) = &mut talking => return error.to_string(),
            Some(payload) = messages.recv() => outbox.received(&payload),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wakeups::Topic;

    fn outbox() -> Outbox {
        Outbox {
            hub: Arc::default(),
            figures: Arc::default(),
            unsent: watch::Sender::default(),
            node: "00ff".to_owned(),
        }
    }

    #[tokio::test]
    async fn hears_others_and_not_itself() {
        let outbox = outbox();
        let mut listener = outbox.hub.listen(Topic::new("b").unwrap());
        outbox.received("00ff a,b");
        assert!(!listener.woken(Duration::ZERO).await);
        outbox.received("0001 a,b");
        assert!(listener.woken(Duration::ZERO).await);
        outbox.received("0001 *");
        assert!(listener.woken(Duration::ZERO).await);
        outbox.received("nonsense");
        assert!(listener.woken(Duration::ZERO).await, "when in doubt, look");
    }

    #[test]
    fn a_list_too_long_for_one_message_becomes_everyone() {
        let few = (0..3).map(|n| Topic::new(&format!("t{n}")).unwrap()).collect();
        assert_eq!(outbox().payload(&few), "00ff t0,t1,t2");
        let many = (0..1_000).map(|n| Topic::new(&format!("topic:{n}")).unwrap()).collect();
        assert_eq!(outbox().payload(&many), "00ff *");
    }
}
