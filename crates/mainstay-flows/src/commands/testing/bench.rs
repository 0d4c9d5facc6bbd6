//! A store in memory whose time stands still until it is told to move.

use crate::Result;
use crate::commands::codec::{decode, decode_data, encode};
use crate::commands::{COMPONENT, Decided, Decider, Decision, DomainEvent, Moment, Rejection, decide_in};
use mainstay_core::clock::{Clock, ManualClock};
use mainstay_core::ids::{Ids, Kind};
use mainstay_core::random::SeededRandom;
use mainstay_events::{Append, Log, MAX_PAGE, NewEvent, Selection};
use mainstay_store::migrations::Component;
use mainstay_store::{Options, Store, Tx};
use std::sync::Arc;
use std::time::Duration;

/// Where time begins: 1 January 2026, 00:00 UTC.
const START_MS: i64 = 1_767_225_600_000;

/// A store in memory with a log, for tests. Its time moves only when told to, and chance is the same in every run.
#[derive(Debug)]
pub struct Bench {
    log: Log,
    clock: Arc<ManualClock>,
    ids: Ids,
}

impl Bench {
    /// A bench with an empty log.
    pub async fn open() -> Result<Self> {
        Self::open_with(&[]).await
    }

    /// As [`open`](Self::open), with tables of the application's own.
    pub async fn open_with(components: &[Component]) -> Result<Self> {
        let (clock, random) = (Arc::new(ManualClock::at(START_MS)), Arc::new(SeededRandom::new(1)));
        let options = Options::new("sqlite::memory:").clock(clock.clone()).random(random.clone());
        let all = [mainstay_events::COMPONENT, COMPONENT].into_iter().chain(components.iter().copied());
        let store = all.fold(options, Options::component).open().await?;
        let log = Log::open(&store).await?;
        let ids = Ids::new(clock.clone(), random);
        Ok(Self { log, clock, ids })
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The store.
    pub fn store(&self) -> &Store {
        self.log.store()
    }

    /// What time it is, for the program and the database alike.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(i64::try_from(by.as_millis()).unwrap_or(i64::MAX));
    }

    /// These happened.
    pub async fn given<E: DomainEvent>(&self, events: impl IntoIterator<Item = E>) -> Result<()> {
        for event in events {
            self.log.append(encode(&event)?).await?;
        }
        Ok(())
    }

    /// A command is decided on what is in the log, and its events are appended.
    pub async fn when<D: Decider>(
        &self,
        decider: D,
        command: D::Command,
    ) -> Result<Decided<D::Event, D::Data>> {
        let command_id = self.ids.make(Kind::Command).to_string();
        let correlation_id = self.ids.make(Kind::Correlation).to_string();
        let moment = Moment { now_ms: self.now_ms(), command_id, correlation_id };
        let context = (self.log.clone(), Arc::new((decider, command, moment)));
        Ok(self.store().transact_with(context, carry_out::<D>).await?)
    }

    /// Everything of this enum that happened, in order.
    pub async fn events<E: DomainEvent>(&self) -> Result<Vec<E>> {
        let query = crate::commands::Boundary::all_of([] as [&str; 0]).query::<E>()?;
        let (mut selection, mut events) = (Selection::all().matching(query), Vec::new());
        loop {
            let page = self.log.read(&selection, MAX_PAGE).await?;
            for event in &page.events {
                events.push(decode(event)?);
            }
            let Some(next) = page.next else { return Ok(events) };
            selection.after = next;
        }
    }
}

type Asked<D> = (D, <D as Decider>::Command, Moment);

async fn carry_out<D: Decider>(
    tx: Tx,
    (log, asked): (Log, Arc<Asked<D>>),
) -> mainstay_store::Result<Decided<D::Event, D::Data>> {
    let (decider, command, moment) = &*asked;
    let considered = decide_in(&tx, &log, decider, command, moment).await?;
    let decision = match considered.decided {
        Ok(decision) => decision,
        Err(rejection) => return Ok(Err::<_, Rejection>(rejection)),
    };
    let chained =
        |event: &NewEvent| event.clone().correlation(&moment.correlation_id).causation(&moment.command_id);
    if !decision.events().is_empty() {
        let events = decision.events().iter().map(chained);
        log.append_in(&tx, Append::new(events).unless(considered.condition))?;
    }
    let read = |event: &NewEvent| {
        decode_data(&event.event_type, event.schema_version, event.data.get())
            .map_err(|reason| crate::Error::invalid(&event.event_type, reason.to_string()))
    };
    Ok(Ok::<Decision<D::Event, D::Data>, _>(decision.try_map(read)?))
}
