//! What an author writes: how a command is decided, and what events mean.

use super::boundary::Boundary;
use super::codec::DomainEvent;
use super::outcome::CommandResult;
use super::snapshots::Snapshots;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Decides commands. All of it is pure: the same state, command and moment give the same decision, so it can be made again
/// when somebody else was faster, and tested without a store.
///
/// ```
/// use mainstay_flows::commands::{Boundary, Decided, Decider, Decision, DomainEvent, Moment, Rejection};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize)]
/// struct PlaceOrder {
///     order: String,
///     item: String,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// enum OrderEvent {
///     OrderPlaced { order: String, item: String },
/// }
///
/// impl DomainEvent for OrderEvent {
///     fn tags(&self) -> Vec<String> {
///         let Self::OrderPlaced { order, .. } = self;
///         vec![format!("order:{order}")]
///     }
/// }
///
/// struct Orders;
///
/// impl Decider for Orders {
///     type Command = PlaceOrder;
///     type Event = OrderEvent;
///     type State = bool; // whether it was placed
///     type Data = ();
///
///     fn boundary(&self, command: &PlaceOrder) -> Boundary {
///         Boundary::tag(format!("order:{}", command.order))
///     }
///
///     fn evolve(&self, is_placed: &mut bool, _: OrderEvent) {
///         *is_placed = true;
///     }
///
///     fn decide(&self, is_placed: &bool, command: &PlaceOrder, _: &Moment) -> Decided<OrderEvent, ()> {
///         if *is_placed {
///             return Err(Rejection::new("ALREADY_PLACED", "this order was placed before"));
///         }
///         let PlaceOrder { order, item } = command;
///         Ok(Decision::success((), [OrderEvent::OrderPlaced { order: order.clone(), item: item.clone() }]))
///     }
/// }
/// ```
pub trait Decider: Send + Sync + 'static {
    /// What is wanted.
    type Command: DeserializeOwned + Send + Sync + 'static;
    /// What can happen.
    type Event: DomainEvent;
    /// What a decision must know of the past; its default is before anything happened.
    type State: Default + Send + Sync + 'static;
    /// What whoever sent the command is told.
    type Data: Serialize + Send + 'static;

    /// The events that the decision rests on. If another one of them comes meanwhile, it is made again.
    fn boundary(&self, command: &Self::Command) -> Boundary;

    /// What an event means for the state.
    fn evolve(&self, state: &mut Self::State, event: Self::Event);

    /// Decides.
    fn decide(
        &self,
        state: &Self::State,
        command: &Self::Command,
        moment: &Moment,
    ) -> Decided<Self::Event, Self::Data>;

    /// How states are kept, where histories are long; not at all unless said.
    fn snapshots(&self) -> Option<Snapshots<Self::State>> {
        None
    }
}

/// When a decision is made, and on whose behalf.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moment {
    /// The database's time, in milliseconds since the epoch.
    pub now_ms: i64,
    /// The command.
    pub command_id: String,
    /// What it belongs together with.
    pub correlation_id: String,
}

/// A decision, or that there is none: the command is rejected and leaves no trace.
pub type Decided<E, T> = Result<Decision<E, T>, Rejection>;

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<E, T> {
    /// What was wanted. Nothing needs to happen for it.
    Success {
        /// For whoever sent the command.
        data: T,
        /// What happens.
        events: Vec<E>,
    },
    /// Something else, which is worth an event.
    Failed {
        /// Why.
        reason: String,
        /// What happens instead.
        events: Vec<E>,
    },
}

impl<E, T> Decision<E, T> {
    /// What was wanted happens.
    pub fn success(data: T, events: impl IntoIterator<Item = E>) -> Self {
        Self::Success { data, events: events.into_iter().collect() }
    }

    /// Something else happens.
    pub fn failed(reason: impl Into<String>, events: impl IntoIterator<Item = E>) -> Self {
        Self::Failed { reason: reason.into(), events: events.into_iter().collect() }
    }

    /// What happens.
    pub fn events(&self) -> &[E] {
        let (Self::Success { events, .. } | Self::Failed { events, .. }) = self;
        events
    }

    /// The same with other events.
    pub(crate) fn try_map<F, X>(self, map: impl Fn(&E) -> Result<F, X>) -> Result<Decision<F, T>, X> {
        let all = |events: Vec<E>| events.iter().map(map).collect::<Result<Vec<F>, X>>();
        Ok(match self {
            Self::Success { data, events } => Decision::Success { data, events: all(events)? },
            Self::Failed { reason, events } => Decision::Failed { reason, events: all(events)? },
        })
    }
}

/// Why a command is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct Rejection {
    /// For programs: `ORDER_NOT_FOUND`.
    pub code: String,
    /// For people.
    pub reason: String,
    /// What else there is to know.
    pub context: Option<Value>,
}

impl From<Rejection> for mainstay_store::Error {
    /// Takes the transaction of a handler back: nothing that it wrote on the way may stay.
    fn from(rejection: Rejection) -> Self {
        Self::application(rejection)
    }
}

impl TryFrom<mainstay_store::Error> for Rejection {
    type Error = mainstay_store::Error;

    /// The rejection that a handler failed with, if it was one.
    fn try_from(error: mainstay_store::Error) -> Result<Self, mainstay_store::Error> {
        let mainstay_store::Error::Application(reason) = error else { return Err(error) };
        reason.downcast().map(|rejection| *rejection).map_err(mainstay_store::Error::Application)
    }
}

impl Rejection {
    pub(super) fn into_result(self) -> CommandResult {
        CommandResult::rejected(self.code, self.reason, self.context)
    }

    /// A rejection without context.
    pub fn new(code: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { code: code.into(), reason: reason.into(), context: None }
    }

    /// With what else there is to know.
    pub fn with(self, context: Value) -> Self {
        Self { context: Some(context), ..self }
    }
}
