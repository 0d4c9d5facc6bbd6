//! The domain of `bench/src/flows/halls.rs`: a seat of a hall is sold once.

use disintegrate::{Decision, Event, StateMutate, StateQuery};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Event, Serialize, Deserialize)]
pub enum HallEvent {
    SeatSold {
        #[id]
        hall: i64,
        seat: i64,
    },
}

#[derive(Debug, Clone, StateQuery, Serialize, Deserialize)]
#[state_query(HallEvent)]
pub struct Hall {
    #[id]
    hall: i64,
    sold: BTreeSet<i64>,
}

impl StateMutate for Hall {
    fn mutate(&mut self, event: HallEvent) {
        let HallEvent::SeatSold { seat, .. } = event;
        self.sold.insert(seat);
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the seat is sold")]
pub struct Sold;

pub struct SellSeat {
    pub hall: i64,
    pub seat: i64,
}

impl Decision for SellSeat {
    type Event = HallEvent;
    type StateQuery = Hall;
    type Error = Sold;

    fn state_query(&self) -> Hall {
        Hall { hall: self.hall, sold: BTreeSet::new() }
    }

    fn process(&self, hall: &Hall) -> Result<Vec<HallEvent>, Sold> {
        let Self { hall: number, seat } = *self;
        match hall.sold.contains(&seat) {
            true => Err(Sold),
            false => Ok(vec![HallEvent::SeatSold { hall: number, seat }]),
        }
    }
}
