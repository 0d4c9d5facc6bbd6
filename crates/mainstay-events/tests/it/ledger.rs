//! What the tests of "nothing lost" append, and how they look for it afterwards.
//!
//! An operation is a number. It appends one to three events that name it, each with an idempotency key, under the
//! condition that nobody has its tag. So whatever became of it can be asked again: it is in the log as a whole and once,
//! or not at all, and the index knows which.

use crate::support::event;
use mainstay_events::{Append, Appended, COMPONENT, Condition, Error, Event, IdempotencyKey, Log, Result};
use mainstay_events::{Selection, Status};
use mainstay_store::Options;
use mainstay_testkit::history::{self, Recorded};
use std::collections::BTreeMap;
use std::path::Path;

/// So many tags are shared by all operations.
const SHARED_TAGS: u64 = 7;
/// So often a question is asked again because the disk still fails.
const MOST_FAULTS: u32 = 50;
/// So many questions are under way at once, as from many callers.
const AT_ONCE: usize = 16;

/// Whether the long runs are asked for, which CI has no time for.
pub(crate) fn is_long() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1")
}

/// Runs `work` on a runtime of its own with several threads, as a server does.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(work)
}

pub(crate) fn tag_of(operation: u64) -> String {
    format!("op:{operation}")
}

fn shared_tag(number: u64) -> String {
    format!("shared:{}", number % SHARED_TAGS)
}

/// How many events an operation has.
pub(crate) fn size_of(operation: u64) -> u64 {
    1 + operation % 3
}

/// What an operation appends; the same every time.
pub(crate) fn append_of(operation: u64) -> Append {
    let events = (0..size_of(operation)).map(|part| {
        let key = IdempotencyKey::raw(&format!("key:{operation}:{part}")).unwrap();
        let event =
            event(["Opened", "Moved"][part as usize % 2], &[&tag_of(operation), &shared_tag(operation)]);
        event.idempotent(&key).metadata(&serde_json::json!({"operation": operation})).unwrap()
    });
    Append::new(events).unless(Condition::no_tag(tag_of(operation)).unwrap())
}

/// Opens the log of a store, with segments of this many events when given.
pub(crate) async fn open_log(options: Options, segment_events: Option<usize>) -> Result<Log> {
    let store = options.component(COMPONENT).open().await?;
    match segment_events {
        Some(events) => Log::open_in_segments(&store, events).await,
        None => Log::open(&store).await,
    }
}

/// Every event, in pages as large as they may be. Every checksum is looked at by that.
pub(crate) async fn read_all(log: &Log, mut selection: Selection) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    loop {
        let page = log.read(&selection, 1_000).await?;
        events.extend(page.events);
        let Some(next) = page.next else { return Ok(events) };
        selection.after = next;
    }
}

/// The operation that an event names.
pub(crate) fn operation_of(event: &Event) -> u64 {
    let metadata: serde_json::Value = serde_json::from_str(event.metadata().unwrap()).unwrap();
    metadata["operation"].as_u64().unwrap()
}

pub(crate) fn positions_of(appended: &Appended) -> Vec<u64> {
    appended.events.iter().map(|event| event.position).collect()
}

/// What a writer says of an operation: `7 12 13` for the seventh at 12 and 13.
pub(crate) fn told(operation: u64, appended: &Appended) -> String {
    let positions: Vec<String> = positions_of(appended).iter().map(u64::to_string).collect();
    format!("{operation} {}", positions.join(" "))
}

/// And what is to be read from that.
pub(crate) fn heard(told: &str) -> (u64, Vec<u64>) {
    let mut numbers = told.split(' ').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.collect())
}

/// What is wrong with a log, for people.
pub(crate) type Verdict<T = ()> = std::result::Result<T, String>;

/// The log as the checkers of the testkit want it.
pub(crate) async fn recorded(log: &Log) -> Verdict<Vec<Recorded>> {
    let events = read_all(log, Selection::all()).await.map_err(|error| format!("unreadable: {error}"))?;
    let record = |event: &Event| Recorded {
        position: event.position(),
        id: event.id().to_owned(),
        event: history::Event::new(event.event_type(), event.tags()),
        operation: operation_of(event),
    };
    Ok(events.iter().map(record).collect())
}

/// What is in a log.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The operations, and where their events are.
    pub(crate) operations: BTreeMap<u64, Vec<u64>>,
    /// All events, as the testkit wants them.
    pub(crate) recorded: Vec<Recorded>,
}

impl Found {
    /// Reads all of a log, and checks that it is dense and every operation whole.
    pub(crate) async fn load(log: &Log) -> Verdict<Self> {
        let recorded = recorded(log).await?;
        let mut operations = BTreeMap::<u64, Vec<u64>>::new();
        for (expected, Recorded { position, operation, .. }) in (1..).zip(&recorded) {
            if *position != expected {
                return Err(format!("{position} stands where {expected} should be"));
            }
            operations.entry(*operation).or_default().push(expected);
        }
        for (operation, positions) in &operations {
            let is_whole = positions.len() as u64 == size_of(*operation);
            if !is_whole || positions.windows(2).any(|pair| pair[1] != pair[0] + 1) {
                return Err(format!("operation {operation} is torn or there twice: {positions:?}"));
            }
        }
        Ok(Self { operations, recorded })
    }

    /// Everything that was acknowledged is there, where its writer was told.
    pub(crate) fn check(&self, acknowledged: &[(u64, Vec<u64>)]) -> Verdict {
        for (operation, positions) in acknowledged {
            match self.operations.get(operation) {
                None => return Err(format!("{operation} was acknowledged and is lost")),
                Some(found) if found != positions => {
                    return Err(format!("{operation} was told {positions:?} and is at {found:?}"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Whoever is told that nothing was done must be right.
    pub(crate) fn check_absent<'a>(&self, failed: impl IntoIterator<Item = &'a u64>) -> Verdict {
        match failed.into_iter().find(|operation| self.operations.contains_key(operation)) {
            Some(operation) => Err(format!("{operation} failed for certain and is there")),
            None => Ok(()),
        }
    }

    /// The index knows what is in the log and nothing else: a condition on the tag of each operation is refused for its
    /// last event, and queries find exactly the events that have a tag.
    pub(crate) async fn check_index(&self, log: &Log) -> Verdict {
        self.check_index_from(log, 0).await
    }

    /// As [`check_index`](Self::check_index), with conditions only for operations from `first` on.
    pub(crate) async fn check_index_from(&self, log: &Log, first: u64) -> Verdict {
        let questions = self.operations.range(first..).map(|(operation, positions)| {
            let (log, operation, last) = (log.clone(), *operation, *positions.last().unwrap());
            async move {
                let condition = Condition::no_tag(tag_of(operation)).unwrap();
                let intruder = Append::from(event("Intruder", &[])).unless(condition);
                let mut answer = log.append(intruder.clone()).await;
                for _ in 0..MOST_FAULTS {
                    // A fault that is still under way says nothing about the index.
                    if !matches!(&answer, Err(Error::Store(error)) if error.is_retryable()) {
                        break;
                    }
                    answer = log.append(intruder.clone()).await;
                }
                match answer {
                    Err(Error::ConditionFailed { witness, .. }) if witness.position == last => Ok(()),
                    other => Err(format!("a condition on operation {operation} at {last}: {other:?}")),
                }
            }
        });
        for answer in some_at_once(questions).await {
            answer?;
        }
        for number in 0..SHARED_TAGS {
            let selection = Selection::all().tagged(shared_tag(number)).unwrap();
            let events = read_all(log, selection).await.map_err(|error| error.to_string())?;
            let selected: Vec<u64> = events.iter().map(Event::position).collect();
            let owned = self.operations.iter().filter(|(operation, _)| *operation % SHARED_TAGS == number);
            let mut owned: Vec<u64> = owned.flat_map(|(_, positions)| positions).copied().collect();
            owned.sort_unstable();
            if selected != owned {
                return Err(format!("{} finds {selected:?} instead of {owned:?}", shared_tag(number)));
            }
        }
        Ok(())
    }

    /// Sends `operations` again, with the same idempotency keys: what is there is a duplicate, the rest is appended now,
    /// and then all of it is there once.
    pub(crate) async fn settle(self, log: &Log, operations: impl IntoIterator<Item = u64>) -> Verdict<Self> {
        let operations: Vec<u64> = operations.into_iter().collect();
        let retries = operations.iter().map(|operation| {
            let (log, operation, expected) =
                (log.clone(), *operation, self.operations.get(operation).cloned());
            async move {
                let again = log.append(append_of(operation)).await;
                let answer = again.as_ref().map(|again| (again.status, positions_of(again)));
                match (&answer, expected) {
                    (Ok((Status::Duplicate, positions)), Some(expected)) if *positions == expected => Ok(()),
                    (Ok((Status::Appended, _)), None) => Ok(()),
                    (_, expected) => Err(format!("operation {operation}, {expected:?}, again: {again:?}")),
                }
            }
        });
        for answer in some_at_once(retries).await {
            answer?;
        }
        let settled = Self::load(log).await?;
        if let Some(operation) =
            operations.iter().find(|operation| !settled.operations.contains_key(operation))
        {
            return Err(format!("operation {operation} was sent again and is not there"));
        }
        let moved = self
            .operations
            .iter()
            .find(|(operation, positions)| settled.operations.get(operation) != Some(positions));
        moved.map_or(Ok(()), |(operation, _)| Err(format!("operation {operation} has moved")))?;
        Ok(settled)
    }
}

/// Runs all of `work`, some of it at once.
async fn some_at_once<T: Send + 'static>(
    work: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let (mut running, mut answers) = (tokio::task::JoinSet::new(), Vec::new());
    for one in work {
        if running.len() >= AT_ONCE {
            answers.push(running.join_next().await.unwrap().unwrap());
        }
        running.spawn(one);
    }
    answers.extend(running.join_all().await);
    answers
}

/// Lets SQLite look for damage. Nobody may have the file open for writing.
pub(crate) fn check_integrity(file: &Path) -> Verdict {
    let check = || -> rusqlite::Result<String> {
        let db = rusqlite::Connection::open(file)?;
        db.query_row("PRAGMA integrity_check", [], |row| row.get(0))
    };
    match check() {
        Ok(said) if said == "ok" => Ok(()),
        Ok(damage) => Err(format!("the file is damaged: {damage}")),
        Err(error) => Err(format!("the file cannot be checked: {error}")),
    }
}
