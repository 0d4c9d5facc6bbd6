//! Between an author's events, an enum, and those of the log, a type and its data.
//!
//! A variant's name is the event's type and what the variant holds is its data. That is serde's own form of an enum, so an
//! author only derives; the log's data go into the variant as they are, without a copy of them.

use super::upcast::Upcasters;
use super::variant::{self, Shape, Written};
use crate::error::{EVENT_ERASED, FUTURE_VERSION, INVALID_EVENT, MISSING_MIGRATION, UNKNOWN_EVENT_TYPE};
use crate::{Error, Result};
use mainstay_core::codes::ErrorCode;
use mainstay_events::{Event, NewEvent};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What can happen in an application: an enum with a variant for each type of event.
///
/// ```
/// use mainstay_flows::commands::DomainEvent;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// enum OrderEvent {
///     OrderPlaced { order: String, item: String },
///     OrderCancelled { order: String },
/// }
///
/// impl DomainEvent for OrderEvent {
///     fn tags(&self) -> Vec<String> {
///         let (Self::OrderPlaced { order, .. } | Self::OrderCancelled { order }) = self;
///         vec![format!("order:{order}")]
///     }
/// }
/// ```
pub trait DomainEvent: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What it is about: what decisions find it by.
    fn tags(&self) -> Vec<String>;

    /// The stream that it goes into, type and id; none unless said.
    fn stream(&self) -> Option<(String, String)> {
        None
    }

    /// How data of older versions are brought up to date. They also tell which version is written today.
    fn upcasters() -> &'static Upcasters {
        static NONE: Upcasters = Upcasters::new();
        &NONE
    }

    /// What an event is taken for whose data were erased, of which type, tags and the rest of the header are left. Unless
    /// said, such an event cannot be read, and a decision that rests on it cannot be made.
    fn erased(_event: &Event) -> Option<Self> {
        None
    }
}

/// Why an event of the log cannot be read as one of the application's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The enum has no variant of this name.
    #[error("is of a type that the application does not know")]
    UnknownType,
    /// An upcaster is missing on the way from its version to today's.
    #[error("has data of version {version}, and there is no upcaster from version {missing}")]
    MissingMigration {
        /// The version of its data.
        version: u32,
        /// The version from which nothing leads on.
        missing: u32,
    },
    /// The data do not fit the variant, or the upcaster.
    #[error("has data that do not fit: {0}")]
    Invalid(String),
    /// A newer program wrote it.
    #[error("has data of version {version}, and this program knows {current} at most")]
    FutureVersion {
        /// The version of its data.
        version: u32,
        /// The newest version that is known.
        current: u32,
    },
    /// Its data are gone.
    #[error("was erased")]
    Erased,
}

impl Unreadable {
    pub(crate) fn entry(&self) -> &'static ErrorCode {
        match self {
            Self::UnknownType => &UNKNOWN_EVENT_TYPE,
            Self::MissingMigration { .. } => &MISSING_MIGRATION,
            Self::Invalid(_) => &INVALID_EVENT,
            Self::FutureVersion { .. } => &FUTURE_VERSION,
            Self::Erased => &EVENT_ERASED,
        }
    }
}

/// An event for the log.
pub fn encode<E: DomainEvent>(event: &E) -> Result<NewEvent> {
    let unfit = |error: serde_json::Error| Error::invalid("event", error.to_string());
    let json = serde_json::to_string(event).map_err(unfit)?;
    let Written { name, data } = serde_json::from_str(&json).map_err(unfit)?;
    let version = E::upcasters().current(&name);
    let mut new = NewEvent::new(name, &data)?.schema_version(version);
    new.tags = event.tags();
    Ok(match event.stream() {
        Some((stream_type, id)) => new.stream(stream_type, id),
        None => new,
    })
}

/// An event of the log, as one of the application's.
pub fn decode<E: DomainEvent>(event: &Event) -> Result<E> {
    let read = match event.data() {
        Some(data) => decode_data(event.event_type(), event.schema_version(), data),
        None => E::erased(event).ok_or(Unreadable::Erased),
    };
    read.map_err(|reason| Error::Unreadable {
        position: event.position(),
        event_type: event.event_type().to_owned(),
        reason,
    })
}

/// The data of an event of this type and version, as one of the application's events.
pub(crate) fn decode_data<E: DomainEvent>(
    event_type: &str,
    version: u32,
    data: &str,
) -> std::result::Result<E, Unreadable> {
    variant::read(event_type, &E::upcasters().apply(event_type, version, data)?)
}

/// The types that an enum of events has.
pub(super) fn types<E: DomainEvent>() -> Result<&'static [&'static str]> {
    match variant::shape::<E>() {
        Shape::Enum(names) => Ok(names),
        _ => Err(Error::invalid("event", variant::PLAIN)),
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
