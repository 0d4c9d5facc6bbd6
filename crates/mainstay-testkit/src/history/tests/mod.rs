//! The checker against planted violations, and against a search through all orders.

mod model;
mod mutations;
mod planted;
mod recorder;
mod scale;

use mainstay_core::query::{Item, Query};

use super::{Condition, Event, Operation, Outcome, Recorded};

/// A query of one item.
fn query(types: &[&str], tags: &[&str]) -> Query {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Query::new(vec![Item { types: owned(types), tags: owned(tags) }]).unwrap()
}

fn event(tags: &[&str]) -> Event {
    Event::new("T", tags.iter().copied())
}

fn recorded(position: u64, operation: u64, event: Event) -> Recorded {
    Recorded { position, id: format!("event_{position}"), event, operation }
}

/// An operation without a condition that begins at ten times its id and ends five later.
fn appended(id: u64, events: Vec<Event>, positions: &[u64]) -> Operation {
    let outcome = Outcome::Appended { positions: positions.to_vec() };
    Operation { id, began: 10 * id, ended: 10 * id + 5, condition: None, events, outcome }
}

impl Operation {
    fn when(mut self, condition: Condition) -> Self {
        self.condition = Some(condition);
        self
    }

    fn refused(mut self, witness: u64) -> Self {
        self.outcome = Outcome::Refused { witness };
        self
    }

    fn unknown(mut self) -> Self {
        self.outcome = Outcome::Unknown;
        self.ended = u64::MAX;
        self
    }
}
