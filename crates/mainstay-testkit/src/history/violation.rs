//! Everything that can be wrong with a history, in words.

/// What no correct log could have done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Positions are not 1, 2, 3 and so on, in the order in which the log was read.
    #[error("position {found} stands where {expected} should be")]
    NotDense {
        /// What should have followed.
        expected: u64,
        /// What followed.
        found: u64,
    },
    /// Two events have one id.
    #[error("event {id} is at position {first} and again at {again}")]
    SameId {
        /// The id.
        id: String,
        /// Where it is first.
        first: u64,
        /// Where it is again.
        again: u64,
    },
    /// Two operations have one id: a mistake of whoever recorded them.
    #[error("operation {operation} was recorded twice; ids of operations must differ")]
    SameOperation {
        /// The id.
        operation: u64,
    },
    /// An operation ended before it began: a mistake of whoever recorded it.
    #[error("operation {operation} ended before it began; all writers must use one clock")]
    EndedBeforeItBegan {
        /// The operation.
        operation: u64,
    },
    /// An event that nobody is known to have appended.
    #[error("the event at {position} is of operation {operation}, which nobody began")]
    OfNobody {
        /// Where it is.
        position: u64,
        /// Whose it claims to be.
        operation: u64,
    },
    /// An event of an operation that was refused.
    #[error("the event at {position} is of operation {operation}, which was refused")]
    OfRefused {
        /// Where it is.
        position: u64,
        /// Whose it is.
        operation: u64,
    },
    /// Events of an acknowledged operation are not in the log.
    #[error("operation {operation} was acknowledged; of its {events} events only {found:?} are in the log")]
    Missing {
        /// The operation.
        operation: u64,
        /// How many events it has.
        events: usize,
        /// Where some of them are.
        found: Vec<u64>,
    },
    /// Some but not all events of an operation with an unknown outcome are in the log.
    #[error("operation {operation} was torn: of its {events} events only {found:?} are in the log")]
    Torn {
        /// The operation.
        operation: u64,
        /// How many events it has.
        events: usize,
        /// Where some of them are.
        found: Vec<u64>,
    },
    /// More events of an operation are in the log than it has.
    #[error("operation {operation} was applied more than once: its {events} events are at {found:?}")]
    Twice {
        /// The operation.
        operation: u64,
        /// How many events it has.
        events: usize,
        /// Where they are.
        found: Vec<u64>,
    },
    /// The events of an operation are not side by side.
    #[error("the events of operation {operation} are at {found:?}, with others in between")]
    NotContiguous {
        /// The operation.
        operation: u64,
        /// Where they are.
        found: Vec<u64>,
    },
    /// The events of an operation are not where its writer was told.
    #[error("operation {operation} was told positions {told:?}; its events are at {found:?}")]
    Elsewhere {
        /// The operation.
        operation: u64,
        /// What its writer was told.
        told: Vec<u64>,
        /// Where they are.
        found: Vec<u64>,
    },
    /// An event has another type or other tags than its operation gave it, or stands in another's place.
    #[error("the event at {position} is not the one that operation {operation} has appended there")]
    Different {
        /// The operation.
        operation: u64,
        /// Where the event is.
        position: u64,
    },
    /// An operation was applied although an event was in its way.
    #[error("operation {operation} was appended at {position} in spite of the event at {conflict}")]
    Conflict {
        /// The operation.
        operation: u64,
        /// Where its first event is.
        position: u64,
        /// The last event before it that its condition forbids.
        conflict: u64,
    },
    /// A refusal of an operation that had no condition.
    #[error("operation {operation} was refused, and had no condition")]
    RefusedWithoutCondition {
        /// The operation.
        operation: u64,
    },
    /// The event that a refusal names is not in the log.
    #[error("operation {operation} was refused because of the event at {witness}, which does not exist")]
    WitnessMissing {
        /// The operation.
        operation: u64,
        /// The named event.
        witness: u64,
    },
    /// The event that a refusal names was not in the way: not meant by the query, or not after its position.
    #[error(
        "operation {operation} was refused because of the event at {witness}, which its condition allows"
    )]
    WitnessAllowed {
        /// The operation.
        operation: u64,
        /// The named event.
        witness: u64,
    },
    /// When the refusal was given, the event that it names could not yet have been in the log.
    #[error(
        "operation {operation} was refused because of the event at {witness}; \
         it had its answer before operation {later} began, whose events are not behind that one"
    )]
    WitnessTooLate {
        /// The operation.
        operation: u64,
        /// The named event.
        witness: u64,
        /// An operation at or before the witness that began after the refusal; often the witness's own.
        later: u64,
    },
    /// An operation stands before one that had ended before it began.
    #[error("operation {later} began after operation {earlier} had ended, and stands before it in the log")]
    OutOfOrder {
        /// The operation that ended first.
        earlier: u64,
        /// The operation that began afterwards.
        later: u64,
    },
}
