//! Wake-ups: "something changed under this topic, look again".
//!
//! A wake-up carries no data and may be merged with others, but one that was sent after a commit is never
//! missed by a [`Listener`] that existed before it: the listener compares counts, it does not race for signals.
//! Consumers poll as a fallback, because a node may die between its commit and its wake-up.

use crate::{Error, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Longest name of a topic.
const MAX_TOPIC_BYTES: usize = 128;

/// What a wake-up is about: `work:emailPool`, `events`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(Arc<str>);

impl Topic {
    /// Checks a name: 1 to 128 letters, digits or `: . _ - /`.
    pub fn new(name: &str) -> Result<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b":._-/".contains(&byte);
        if (1..=MAX_TOPIC_BYTES).contains(&name.len()) && name.bytes().all(plain) {
            Ok(Self(name.into()))
        } else {
            Err(Error::Parameters(format!("topic {name:?} must be 1 to 128 letters, digits or : . _ - /")))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Lets the hub look a topic up by its name.
impl std::borrow::Borrow<str> for Topic {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Where listeners of one store are woken.
#[derive(Debug, Default)]
pub(crate) struct Hub(Mutex<HashMap<Topic, watch::Sender<u64>>>);

impl Hub {
    pub(crate) fn listen(&self, topic: Topic) -> Listener {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Topics nobody listens to any more make room; the map stays as large as what is in use.
        senders.retain(|known, sender| *known == topic || sender.receiver_count() > 0);
        let sender = senders.entry(topic).or_insert_with(|| watch::Sender::new(0));
        Listener(sender.subscribe())
    }

    pub(crate) fn wake<'a>(&self, topics: impl IntoIterator<Item = &'a str>) {
        let senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for topic in topics {
            if let Some(sender) = senders.get(topic) {
                sender.send_modify(|count| *count += 1);
            }
        }
    }

    /// Wakes everyone, because something may have been missed.
    #[cfg(any(feature = "postgres", test))]
    pub(crate) fn wake_all(&self) {
        let senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for sender in senders.values() {
            sender.send_modify(|count| *count += 1);
        }
    }
}

/// Waits for wake-ups of one topic.
#[derive(Debug)]
pub struct Listener(watch::Receiver<u64>);

impl Listener {
    /// Waits for a wake-up that came after the previous call, at most `fallback`; true when there was one.
    pub async fn woken(&mut self, fallback: Duration) -> bool {
        match tokio::time::timeout(fallback, self.0.changed()).await {
            Ok(Ok(())) => true,
            // The store is gone: nothing will ever change; let the caller's next access say so, unhurriedly.
            Ok(Err(_)) => {
                tokio::time::sleep(fallback).await;
                false
            }
            Err(_elapsed) => false,
        }
    }

    /// Whether there was a wake-up after the previous call, without waiting for one.
    pub fn is_woken(&mut self) -> bool {
        let is_woken = self.0.has_changed().unwrap_or(false);
        // Not otherwise: one that comes at this moment would be missed.
        if is_woken {
            self.0.mark_unchanged();
        }
        is_woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wake_up_before_the_wait_is_not_missed_and_several_are_one() {
        let hub = Hub::default();
        let mut listener = hub.listen(Topic::new("events").unwrap());
        hub.wake(["events", "unknown"]);
        hub.wake(["events"]);
        assert!(listener.woken(Duration::ZERO).await);
        assert!(!listener.woken(Duration::ZERO).await);
        assert!(!listener.is_woken());
        hub.wake_all();
        assert!(listener.woken(Duration::ZERO).await);
        hub.wake(["events"]);
        assert!(listener.is_woken());
        assert!(!listener.is_woken());
    }

    #[test]
    fn topics_without_listeners_are_forgotten() {
        let hub = Hub::default();
        for number in 0..100 {
            hub.listen(Topic::new(&format!("t:{number}")).unwrap());
        }
        let kept = hub.0.lock().unwrap().len();
        assert!(kept <= 1, "{kept}");
    }

    #[test]
    fn topic_names_are_plain() {
        assert!(Topic::new("work:emailPool/a.b_c-d").is_ok());
        for bad in ["", "a b", "a,b", "ü", &"x".repeat(129)] {
            assert!(Topic::new(bad).is_err(), "{bad}");
        }
    }
}
