//! What is decided: a seat of a hall is sold once. Every hall is a boundary of its own.

use mainstay_events::NewEvent;
use mainstay_flows::commands::{Boundary, Decided, Decider, Decision, DomainEvent, Moment, encode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum HallEvent {
    SeatSold { hall: u64, seat: u64 },
}

impl DomainEvent for HallEvent {
    fn tags(&self) -> Vec<String> {
        let Self::SeatSold { hall, .. } = self;
        vec![format!("hall:{hall}")]
    }
}

#[derive(Debug, Deserialize)]
pub enum HallCommand {
    SellSeat { hall: u64, seat: u64 },
}

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Hall {
    sold: BTreeSet<u64>,
}

pub struct Halls;

impl Decider for Halls {
    type Command = HallCommand;
    type Event = HallEvent;
    type State = Hall;
    type Data = ();

    fn boundary(&self, command: &HallCommand) -> Boundary {
        let HallCommand::SellSeat { hall, .. } = command;
        Boundary::tag(format!("hall:{hall}"))
    }

    fn evolve(&self, state: &mut Hall, event: HallEvent) {
        let HallEvent::SeatSold { seat, .. } = event;
        state.sold.insert(seat);
    }

    fn decide(&self, state: &Hall, command: &HallCommand, _: &Moment) -> Decided<HallEvent, ()> {
        let HallCommand::SellSeat { hall, seat } = *command;
        Ok(match state.sold.contains(&seat) {
            true => Decision::failed("the seat is sold", []),
            false => Decision::success((), [HallEvent::SeatSold { hall, seat }]),
        })
    }
}

/// As many seats of each hall, sold.
pub fn sold(halls: u64, seats: u64) -> impl Iterator<Item = mainstay_flows::Result<NewEvent>> {
    (0..halls).flat_map(move |hall| (0..seats).map(move |seat| encode(&HallEvent::SeatSold { hall, seat })))
}
