//! Lanes: parts of a projection that follow the log beside each other.

use mainstay_core::failure::Failure;
use mainstay_events::Event;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The lane that deals with events whose key cannot be made.
pub(crate) const KEYLESS: u32 = 0;

/// What events have in common that must stay in order.
#[derive(Clone)]
pub enum By {
    /// Their stream; events without one by their correlation.
    Stream,
    /// Their correlation.
    Correlation,
    /// A text that the application makes of an event, always the same for the same event.
    Custom(Arc<dyn Fn(&Event) -> String + Send + Sync>),
}

impl By {
    /// A text that the application makes of an event.
    pub fn custom(key: impl Fn(&Event) -> String + Send + Sync + 'static) -> Self {
        Self::Custom(Arc::new(key))
    }

    /// The key of an event: `Order:1`.
    pub fn key(&self, event: &Event) -> String {
        match (self, event.stream()) {
            (Self::Custom(key), _) => key(event),
            (Self::Stream, Some(stream)) => format!("{}:{}", stream.stream_type, stream.id),
            (Self::Stream, None) | (Self::Correlation, _) => event.correlation_id().to_owned(),
        }
    }

    /// The key of an event, or why the application has none for it: a panic is a failure of that event.
    pub(crate) fn try_key(&self, event: &Event) -> Result<String, Failure> {
        let key = catch_unwind(AssertUnwindSafe(|| self.key(event)));
        key.map_err(|panic| Failure::retryable(format!("its key panicked: {}", message(&*panic))))
    }

    /// The lane of an event among so many. One without a key is [`KEYLESS`]'s to deal with.
    pub(crate) fn lane(&self, event: &Event, lanes: u32) -> Result<u32, Failure> {
        if lanes <= 1 {
            return Ok(0);
        }
        Ok((hash(self.try_key(event)?.as_bytes()) % u64::from(lanes)) as u32)
    }
}

impl std::fmt::Debug for By {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Stream => "Stream",
            Self::Correlation => "Correlation",
            Self::Custom(_) => "Custom",
        })
    }
}

/// What a panic says.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// FNV-1a with its bits stirred: an event's lane is the same on every node and in every version.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let folded = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    (folded ^ (folded >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn keys_spread_over_lanes_and_stay_where_they_are() {
        let mut lanes = [0; 4];
        for number in 0..4_000 {
            lanes[(hash(format!("Order:{number}").as_bytes()) % 4) as usize] += 1;
        }
        assert!(lanes.iter().all(|count| (800..1_200).contains(count)), "{lanes:?}");
        assert_eq!(hash(b"Order:1"), 63_391_044_982_032);
    }
}
