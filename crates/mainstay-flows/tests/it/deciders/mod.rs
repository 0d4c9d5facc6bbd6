//! Deciders, on a hall with numbered seats: a seat is sold once, and a hall that is closed sells none.

mod bench;
mod folding;
mod given;
mod snapshots;

use mainstay_events::{Append, Event, Log};
use mainstay_flows::commands::{
    Boundary, COMPONENT, Decided, Decider, Decision, DomainEvent, Moment, Rejection, decide_in, encode,
};
use mainstay_store::Tx;
use mainstay_testkit::stores::Place;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum HallEvent {
    SeatSold { hall: u32, seat: u32 },
    SeatRefused { hall: u32, seat: u32 },
    HallClosed { hall: u32 },
}

impl DomainEvent for HallEvent {
    fn tags(&self) -> Vec<String> {
        let (Self::SeatSold { hall, .. } | Self::SeatRefused { hall, .. } | Self::HallClosed { hall }) = self;
        vec![format!("hall:{hall}")]
    }

    fn stream(&self) -> Option<(String, String)> {
        let Self::HallClosed { hall } = self else { return None };
        Some(("hall".to_owned(), hall.to_string()))
    }

    fn erased(event: &Event) -> Option<Self> {
        (event.event_type() == "SeatRefused").then_some(Self::SeatRefused { hall: 0, seat: 0 })
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) enum HallCommand {
    SellSeat { hall: u32, seat: u32 },
    CloseHall { hall: u32 },
}

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hall {
    pub(crate) sold: BTreeSet<u32>,
    pub(crate) refused: u32,
    pub(crate) is_closed: bool,
}

pub(crate) struct Halls;

impl Decider for Halls {
    type Command = HallCommand;
    type Event = HallEvent;
    type State = Hall;
    type Data = usize;

    fn boundary(&self, command: &HallCommand) -> Boundary {
        let (HallCommand::SellSeat { hall, .. } | HallCommand::CloseHall { hall }) = command;
        Boundary::tag(format!("hall:{hall}"))
    }

    fn evolve(&self, hall: &mut Hall, event: HallEvent) {
        match event {
            HallEvent::SeatSold { seat, .. } => drop(hall.sold.insert(seat)),
            HallEvent::SeatRefused { .. } => hall.refused += 1,
            HallEvent::HallClosed { .. } => hall.is_closed = true,
        }
    }

    fn decide(&self, state: &Hall, command: &HallCommand, moment: &Moment) -> Decided<HallEvent, usize> {
        if state.is_closed {
            let context = serde_json::json!({"at": moment.now_ms});
            return Err(Rejection::new("HALL_CLOSED", "nothing is sold any more").with(context));
        }
        Ok(match *command {
            HallCommand::SellSeat { hall, seat } if state.sold.contains(&seat) => {
                Decision::failed("the seat is sold", [HallEvent::SeatRefused { hall, seat }])
            }
            HallCommand::SellSeat { hall, seat } => {
                Decision::success(state.sold.len() + 1, [HallEvent::SeatSold { hall, seat }])
            }
            HallCommand::CloseHall { hall } => {
                Decision::success(state.sold.len(), [HallEvent::HallClosed { hall }])
            }
        })
    }
}

/// The log of a fresh store.
async fn open(place: &Place) -> Log {
    let options = place.options().component(mainstay_events::COMPONENT).component(COMPONENT);
    let store = options.open().await.unwrap();
    Log::open(&store).await.unwrap()
}

async fn append(log: &Log, events: impl IntoIterator<Item = HallEvent>) {
    for event in events {
        log.append(encode(&event).unwrap()).await.unwrap();
    }
}

/// Decides and appends, in one transaction.
async fn run<D>(log: &Log, decider: D, command: HallCommand) -> mainstay_store::Result<Option<u64>>
where
    D: Decider<Command = HallCommand>,
{
    let context = (log.clone(), Arc::new(decider), Arc::new(command));
    let work = async |tx: Tx, (log, decider, command): (Log, Arc<D>, Arc<HallCommand>)| {
        let considered = decide_in(&tx, &log, &*decider, &command, &Moment::default()).await?;
        if let Ok(Decision::Success { events, .. } | Decision::Failed { events, .. }) = considered.decided {
            let receipt = log.append_in(&tx, Append::new(events).unless(considered.condition))?;
            return Ok(Some(receipt));
        }
        Ok(None)
    };
    let receipt = log.store().transact_with(context, work).await?;
    Ok(receipt.and_then(|receipt| Some(receipt.get()?.events[0].position)))
}
