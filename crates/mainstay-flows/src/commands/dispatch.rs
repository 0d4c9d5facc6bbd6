//! From a command to what comes of it.
//!
//! Who is known already is answered with what came of it before. Then the pipeline, outside of any transaction. Then one
//! transaction, alone or in a `batch`: the handler, the author's rows, the command's row, the work it starts, and at its very
//! end its events. When a command is rejected, what its handler wrote is rolled back: nothing but its row remains of it.

use super::batch::Batcher;
use super::command::{Command, Issued};
use super::decider::{Decision, Rejection};
use super::figures::Figures;
use super::handlers::{Commands, Handler};
use super::handling::{Handling, Reading};
use super::outcome::{CommandResult, Dispatched, Outcome};
use super::record::{self, CommandStatus, Record, State, topic};
use super::retry::{self, Overtaken};
use super::seated::Seated;
use super::span::{self, Appending};
use crate::error::{Error, Result};
use crate::service::ServiceRef;
use crate::tenants;
use mainstay_api::FlowCommand;
use mainstay_core::failpoints::Point;
use mainstay_core::ids::Ids;
use mainstay_events::{Append, AppendedEvent, Log};
use mainstay_store::{Cause, Tx};
use mainstay_work::Work;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tracing::Instrument;

/// How often a command that may be decided anew at once is, before its caller hears of the conflict.
const DECIDED_AT_ONCE: u32 = 5;
/// How long a wake-up may be missing before somebody who waits looks by itself.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Most commands of one correlation that are told.
const MAX_CORRELATED: i64 = 100;

/// Where jitter comes from: a factor for each wait.
type Jitter = Arc<dyn Fn() -> f64 + Send + Sync>;

/// Decides about commands. Clones are the same.
#[derive(Clone)]
pub struct Dispatcher {
    shared: Arc<Shared>,
    /// The tenant of the commands that this view shows; all tenants without one.
    tenant: Option<Arc<str>>,
}

pub(super) struct Shared {
    log: Log,
    work: Work,
    commands: Commands,
    ids: Ids,
    jitter: RwLock<Jitter>,
    batcher: Batcher,
    figures: Figures,
}

/// What came of one try to decide.
enum Tried {
    Decided(CommandResult, Option<Appending>),
    Overtaken(Overtaken, Error),
}

impl Dispatcher {
    /// Opens the commands of a store that was opened with [`COMPONENT`](super::COMPONENT), and registers the functions that
    /// decide commands again after a conflict. Call it before the engine starts.
    pub async fn open(log: &Log, work: &Work, commands: Commands) -> Result<Self> {
        commands.check()?;
        let random = log.store().random().clone();
        let ids = Ids::new(log.store().clock().clone(), random.clone());
        let jitter: Jitter = Arc::new(move || 0.5 + random.unit());
        let (log, work, jitter) = (log.clone(), work.clone(), RwLock::new(jitter));
        let batcher = Batcher::new(log.store().capabilities().concurrent_writers);
        let figures = Figures::of(commands.types());
        let shared = Arc::new(Shared { log, work, commands, ids, jitter, batcher, figures });
        if shared.commands.types().next().is_some() {
            let functions = retry::functions(&ServiceRef::new("commands", &shared));
            shared.work.register(functions).await?;
            retry::declare(&shared.work).await?;
        }
        Ok(Self { shared, tenant: None })
    }

    /// The commands as a tenant sees them: it dispatches its own, and those of other tenants are not there.
    pub fn for_tenant(&self, tenant: &str) -> Self {
        Self { shared: self.shared.clone(), tenant: Some(tenant.into()) }
    }

    /// Lets waits be multiplied with what `jitter` says instead of something from a half to one and a half.
    pub fn set_jitter(&self, jitter: impl Fn() -> f64 + Send + Sync + 'static) {
        *self.shared.jitter.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(jitter);
    }

    /// Decides about a command, once for its id.
    pub async fn dispatch(&self, command: Command) -> Result<Dispatched> {
        let (began, command_type) = (Instant::now(), command.command_type.clone());
        let command = Cause::current().iter().fold(command, |command, cause| command.caused_by(cause));
        // From here on the command itself is the cause.
        let answer = Cause::apart(self.decide(command)).await;
        self.shared.figures.record(&command_type, &answer, began.elapsed());
        answer
    }

    async fn decide(&self, mut command: Command) -> Result<Dispatched> {
        let shared = &self.shared;
        if let Some(tenant) = &self.tenant {
            command.tenant_id = Some(tenant.as_ref().to_owned());
        }
        if let Some(retry) = &command.retry {
            retry.check()?;
        }
        let is_new = command.command_id.is_none();
        let issued = Arc::new(command.issue(&shared.ids, &**shared.log.store().random())?);
        let span = span::span(&issued);
        let answer = self.answer(&issued, is_new).instrument(span.clone()).await;
        span::record(&span, answer.as_ref().map(|dispatched| &dispatched.outcome));
        answer
    }

    async fn answer(&self, issued: &Arc<Issued>, is_new: bool) -> Result<Dispatched> {
        let shared = &self.shared;
        let handler = shared.commands.handler(&issued.command_type)?;
        if !is_new && let Some(record) = shared.find_again(issued).await? {
            return shared.known(issued, record).await;
        }
        if let Err(reason) = (handler.check)(&issued.command_type, &issued.payload) {
            let code = "VALIDATION_ERROR".to_owned();
            let reason = format!("payload: {reason}");
            return Ok(dispatched(issued, Outcome::Rejected { code, reason, context: None }));
        }
        let pipeline = shared.commands.pipeline();
        let (passed, stopped) = pipeline.before(issued).await?;
        let answer = match stopped {
            Some(outcome) => dispatched(issued, outcome),
            None => match shared.decide(issued).await {
                Ok(outcome) => dispatched(issued, outcome),
                // Somebody else dispatched it at the same time, or nobody heard of the commit.
                Err(error) if error.may_be_decided() || !is_new && may_be_its_own(&error) => {
                    match shared.find_again(issued).await {
                        Ok(Some(record)) => shared.known(issued, record).await?,
                        // Who cannot look knows no more than before.
                        Ok(None) | Err(_) => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            },
        };
        pipeline.after(passed, issued, &answer.outcome).await;
        Ok(answer)
    }

    /// Status of a command. A view of all tenants prefers the command without a tenant, then takes the only one;
    /// an id of several tenants is refused.
    pub async fn status(&self, command_id: &str) -> Result<CommandStatus> {
        let record = self.shared.find(self.tenant.as_deref(), command_id).await?;
        self.shared.status(record.ok_or_else(|| Error::CommandNotFound(command_id.to_owned()))?).await
    }

    /// Waits until a command that was deferred has ended, for at most `patience`; how far it is then.
    pub async fn wait_for(&self, command_id: &str, patience: Duration) -> Result<CommandStatus> {
        let deadline = tokio::time::Instant::now() + patience;
        let mut listener = self.shared.log.store().listen(topic());
        loop {
            let status = self.status(command_id).await?;
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            if status.state != State::Pending || left.is_zero() {
                return Ok(status);
            }
            listener.woken(left.min(LOOK_AGAIN)).await;
        }
    }

    /// The commands of a correlation, the earliest first.
    pub async fn correlated(&self, correlation_id: &str) -> Result<Vec<CommandStatus>> {
        let read = async |tx: Tx, id: String| record::correlated(&tx, &id, MAX_CORRELATED).await;
        let mut records = self.shared.log.store().read_with(correlation_id.to_owned(), read).await?;
        records
            .retain(|one| self.tenant.is_none() || self.tenant.as_deref() == one.issued.tenant_id.as_deref());
        let mut statuses = Vec::with_capacity(records.len());
        for record in records {
            statuses.push(self.shared.status(record).await?);
        }
        Ok(statuses)
    }

    /// The same without what came of them, and so without looking for their events.
    pub(crate) async fn flow_of(&self, correlation_id: &str) -> Result<Vec<FlowCommand>> {
        let read = async |tx: Tx, id: String| record::correlated(&tx, &id, MAX_CORRELATED).await;
        let records = self.shared.log.store().read_with(correlation_id.to_owned(), read).await?;
        let command = |record: Record| FlowCommand {
            command_id: record.issued.command_id,
            command_type: record.issued.command_type,
            status: record.state.as_str().to_owned(),
            created_at: record.created_at,
            completed_at: record.executed_at,
        };
        Ok(records.into_iter().map(command).collect())
    }

    /// What this node measures about its commands.
    pub fn figures(&self) -> &Figures {
        &self.shared.figures
    }

    /// The types of command that are known here.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.shared.commands.types()
    }
}

impl Shared {
    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    pub(super) fn work(&self) -> &Work {
        &self.work
    }

    pub(super) fn batcher(&self) -> &Batcher {
        &self.batcher
    }

    pub(super) fn jitter(&self) -> f64 {
        let jitter = self.jitter.read().unwrap_or_else(PoisonError::into_inner).clone();
        jitter()
    }

    /// A command of a tenant (of none if it is empty), or the one that its id means among those of all tenants.
    pub(super) async fn find(&self, tenant: Option<&str>, command_id: &str) -> Result<Option<Record>> {
        let find = async |tx: Tx, (tenant, id): (Option<String>, String)| match tenant {
            Some(tenant) => record::find(&tx, &tenant, &id).await,
            None => record::find_any(&tx, &id).await,
        };
        let which = (tenant.map(str::to_owned), command_id.to_owned());
        Ok(self.log.store().read_with(which, find).await?)
    }

    /// The command that has this one's id within its tenant.
    async fn find_again(&self, issued: &Issued) -> Result<Option<Record>> {
        self.find(Some(tenants::column(issued.tenant_id.as_deref())), &issued.command_id).await
    }

    /// What came of a command that is known.
    async fn known(&self, issued: &Issued, record: Record) -> Result<Dispatched> {
        if !is_same(issued, &record.issued) {
            return Err(Error::CommandIdTaken(issued.command_id.clone()));
        }
        let status = self.status(record).await?;
        Ok(Dispatched {
            command_id: status.command_id,
            correlation_id: status.correlation_id,
            is_duplicate: true,
            outcome: status.outcome,
        })
    }

    async fn status(&self, record: Record) -> Result<CommandStatus> {
        let mut events = Vec::with_capacity(record.result.event_ids.len());
        let log = self.log_of(&record.issued);
        for event_id in &record.result.event_ids {
            let found = match log.find(event_id).await {
                // A handler without a tenant may append events of tenants, and those may share an id.
                Err(mainstay_events::Error::SeveralTenants { .. }) => None,
                found => found?,
            };
            if let Some(event) = found {
                let version = event.stream().map(|stream| stream.version);
                events.push(AppendedEvent {
                    event_id: event_id.clone(),
                    position: event.position(),
                    version,
                });
            }
        }
        Ok(CommandStatus {
            command_id: record.issued.command_id,
            command_type: record.issued.command_type,
            correlation_id: record.issued.correlation_id,
            tenant_id: record.issued.tenant_id,
            state: record.state,
            attempt: record.attempt,
            created_at: record.created_at,
            executed_at: record.executed_at,
            outcome: record.result.outcome(events),
        })
    }

    /// The log as a command's tenant sees it.
    fn log_of(&self, issued: &Issued) -> Log {
        match &issued.tenant_id {
            Some(tenant) => self.log.for_tenant(tenant),
            None => self.log.clone(),
        }
    }

    /// Decides, with others if there are any; alone at once as often as that helps, and later if it does not.
    pub(super) async fn decide(self: &Arc<Self>, issued: &Arc<Issued>) -> Result<Outcome> {
        let handler = self.commands.handler(&issued.command_type)?;
        let _here = self.batcher.enter();
        let mut left = DECIDED_AT_ONCE;
        loop {
            left -= 1;
            let tried = match self.decide_in_batch(handler, issued).await? {
                Some((result, receipt)) => Tried::Decided(result, receipt),
                None => {
                    let _turn = self.batcher.turn_of(handler).await;
                    self.attempt(handler, issued).await?
                }
            };
            match tried {
                Tried::Decided(result, appending) => {
                    let heard = self.log.store().failpoints().hit(Point::DispatchCommitted);
                    heard.map_err(|hit| mainstay_store::Error::CommitUnknown(hit.to_string()))?;
                    appending.iter().for_each(|appending| appending.tell(issued));
                    return Ok(outcome(result, appending));
                }
                Tried::Overtaken(overtaken, _) if issued.retry.is_some() => {
                    self.pass(Point::DispatchOvertaken)?;
                    let result = self.defer(issued, overtaken).await?.ok_or(Error::Late)?;
                    return Ok(result.outcome(Vec::new()));
                }
                // The version that a scope must have is its caller's: deciding anew would not change it.
                Tried::Overtaken(_, error) if issued.scope.is_some() || left == 0 => return Err(error),
                Tried::Overtaken(..) => {}
            }
        }
    }

    async fn attempt(self: &Arc<Self>, handler: &Handler, issued: &Arc<Issued>) -> Result<Tried> {
        let boundary = Arc::new(OnceLock::new());
        let context = (self.clone(), handler.clone(), issued.clone(), boundary.clone());
        let run =
            async |tx: Tx, (shared, handler, issued, boundary): (Arc<Self>, Handler, Arc<Issued>, _)| {
                shared.attempt_in(tx, &handler, issued, boundary).await
            };
        let error = match self.log.store().transact_with(context, run).await {
            Ok((result, receipt)) => return Ok(Tried::Decided(result, receipt)),
            Err(error) => error,
        };
        let error = match Rejection::try_from(error) {
            Ok(rejection) => {
                let result = self.conclude(issued, rejection.into_result()).await?.ok_or(Error::Late)?;
                return Ok(Tried::Decided(result, None));
            }
            Err(error) => error,
        };
        let error = Error::from_handler(error);
        let Some(current) = overtaken_at(&error) else { return Err(error) };
        let boundary = match (&issued.scope, boundary.get()) {
            (Some(scope), _) => scope.key.clone(),
            (None, Some(boundary)) => boundary.clone(),
            (None, None) => issued.command_type.clone(),
        };
        Ok(Tried::Overtaken(Overtaken { boundary, current }, error))
    }

    async fn attempt_in(
        &self,
        tx: Tx,
        handler: &Handler,
        issued: Arc<Issued>,
        boundary: Arc<OnceLock<String>>,
    ) -> mainstay_store::Result<(CommandResult, Option<Appending>)> {
        let now_ms = tx.now_ms().await?;
        let marks = tx.marks();
        let handled = self.handle_in(tx.clone(), handler, issued.clone(), boundary, now_ms).await;
        let (state, (result, receipt)) = match handled {
            Ok(decided) => (State::Executed, decided),
            // There is nothing to take back, so it is written down here and now.
            Err(error) if tx.marks() == marks && tx.intact().is_ok() => {
                (State::Rejected, (Rejection::try_from(error)?.into_result(), None))
            }
            Err(error) => return Err(error),
        };
        self.end_in(&tx, &issued, state, &result).await?;
        Ok((result, receipt))
    }

    /// Runs the handler, and leaves its events for the end of the transaction.
    pub(super) async fn handle_in(
        &self,
        tx: Tx,
        handler: &Handler,
        issued: Arc<Issued>,
        boundary: Arc<OnceLock<String>>,
        now_ms: i64,
    ) -> mainstay_store::Result<(CommandResult, Option<Appending>)> {
        let log = self.log_of(&issued);
        if let Some(scope) = &issued.scope {
            log.expect_scope_in(&tx, scope).await?;
        }
        self.pass(Point::DispatchDeciding)?;
        let work = self.work.clone();
        let handling = Handling { tx, log, work, issued, now_ms, boundary, noted: Arc::default() };
        let began = Instant::now();
        let deciding = (handler.decide)(handling.clone());
        let decision = handling.issued.cause().scope(deciding).await;
        handler.pace.note(began.elapsed());
        let reading = handling.reading();
        if reading == Reading::Bare && decision.is_ok() {
            handler.reads_log.store(true, Ordering::Relaxed);
        }
        // The events of those before it are not in the log yet, and no condition tells: it is decided after them.
        let is_told =
            reading == Reading::Conditional && decision.as_ref().is_ok_and(|made| !made.events().is_empty());
        if reading != Reading::None && !is_told && Seated::is_any(&handling.tx) {
            return Err(Error::Late.into());
        }
        let decision = decision?;
        self.pass(Point::DispatchDecided)?;
        let (data, reason, events) = match decision {
            Decision::Success { data, events } => (Some(data), String::new(), events),
            Decision::Failed { reason, events } => (None, reason, events),
        };
        let events: Vec<_> = events.into_iter().map(|event| handling.stamp(event)).collect();
        let append = Append { condition: handling.condition(), ..Append::new(events) };
        let Handling { tx, log, .. } = handling;
        let appending = match append.events.is_empty() {
            true => None,
            false => {
                Seated::note(&tx, &append.events);
                let steps = Appending::steps(&append.events);
                Some(Appending::new(log.append_in(&tx, append)?, steps))
            }
        };
        let event_ids = appending.as_ref().map(|one| one.receipt.event_ids().to_vec()).unwrap_or_default();
        self.pass(Point::DispatchAppending)?;
        let result = match data {
            Some(data) => CommandResult::success(data, event_ids),
            None => CommandResult::failed(reason, event_ids),
        };
        Ok((result, appending))
    }

    /// Ends a command that changes nothing else; nothing when somebody else was first.
    pub(super) async fn conclude(
        self: &Arc<Self>,
        issued: &Arc<Issued>,
        result: CommandResult,
    ) -> Result<Option<CommandResult>> {
        let context = (self.clone(), issued.clone(), result.clone());
        let end = async |tx: Tx, (shared, issued, result): (Arc<Self>, Arc<Issued>, CommandResult)| {
            shared.end_in(&tx, &issued, State::Rejected, &result).await
        };
        match self.log.store().transact_with(context, end).await.map_err(Error::from) {
            Ok(()) => Ok(Some(result)),
            Err(Error::Late) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes down what came of a command, once: who comes second takes all of its transaction back.
    async fn end_in(
        &self,
        tx: &Tx,
        issued: &Issued,
        state: State,
        result: &CommandResult,
    ) -> mainstay_store::Result<()> {
        let is_first = match issued.attempt {
            0 => record::insert(tx, issued, state, result).await?,
            _ => record::end(tx, issued, state, result).await?,
        };
        if !is_first {
            return Err(Error::Late.into());
        }
        self.tell(tx, issued, result)?;
        self.pass(Point::DispatchRecorded)
    }

    /// Passes a failpoint.
    fn pass(&self, point: Point) -> mainstay_store::Result<()> {
        Ok(self.log.store().failpoints().hit(point)?)
    }
}

/// Whether a command may have met nothing but itself, dispatched at the same time: what moved its scope, or took its key.
fn may_be_its_own(error: &Error) -> bool {
    matches!(error, Error::Handler { .. }) || overtaken_at(error).is_some()
}

/// Where something is now that a decision rested on, if that is what is wrong.
fn overtaken_at(error: &Error) -> Option<u64> {
    let Error::Events(events) = error else { return None };
    match &**events {
        mainstay_events::Error::VersionConflict { current, .. } => Some(*current),
        mainstay_events::Error::ConditionFailed { witness, .. } => Some(witness.position),
        _ => None,
    }
}

fn outcome(result: CommandResult, appending: Option<Appending>) -> Outcome {
    let appended = appending.as_ref().and_then(|one| one.receipt.get());
    result.outcome(appended.map(|appended| appended.events.clone()).unwrap_or_default())
}

fn dispatched(issued: &Issued, outcome: Outcome) -> Dispatched {
    Dispatched {
        command_id: issued.command_id.clone(),
        correlation_id: issued.correlation_id.clone(),
        is_duplicate: false,
        outcome,
    }
}

/// Whether both ask for the same.
fn is_same(one: &Issued, other: &Issued) -> bool {
    let value = |issued: &Issued| serde_json::from_str::<serde_json::Value>(issued.payload.get()).ok();
    one.command_type == other.command_type
        && one.tenant_id == other.tenant_id
        && (one.payload.get() == other.payload.get() || value(one) == value(other))
}
