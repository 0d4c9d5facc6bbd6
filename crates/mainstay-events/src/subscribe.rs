//! Subscriptions: catch up, then follow.

use crate::error::{Error, Result};
use crate::event::Event;
use crate::events_topic;
use crate::log::{LOOK_AGAIN, Log};
use crate::read::Selection;
use mainstay_store::Listener;
use std::collections::VecDeque;

/// Events of one look. A consumer that is slow makes the log wait, not the memory grow: nothing is read ahead of it but
/// this.
const LOOK: usize = 512;

/// Follows the log. Nothing is missed, nothing comes twice or out of order.
pub struct Subscription {
    log: Log,
    selection: Selection,
    listener: Listener,
    waiting: VecDeque<Event>,
    /// Up to here everything was handed out or passed over, once `waiting` is empty.
    reached: u64,
    epoch: Option<u64>,
    is_behind: bool,
}

impl Log {
    /// Follows the events of `selection`, those that are there and those that will be.
    pub fn subscribe(&self, selection: Selection) -> Subscription {
        self.figures().subscriptions.add(1);
        Subscription {
            log: self.clone(),
            // Before the first look, so that what is appended after it is not missed.
            listener: self.store().listen(events_topic()),
            reached: selection.after,
            selection,
            waiting: VecDeque::new(),
            epoch: None,
            is_behind: true,
        }
    }
}

impl Subscription {
    /// Goes on only in this epoch of the log: a consumer that keeps positions keeps the epoch with them.
    pub fn in_epoch(mut self, epoch: u64) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// The next event; waits until there is one. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.try_next().await? {
                return Ok(event);
            }
            self.changed().await;
        }
    }

    /// The next event, if there is one now.
    pub async fn try_next(&mut self) -> Result<Option<Event>> {
        if self.waiting.is_empty() && self.is_behind {
            self.look().await?;
        }
        Ok(self.waiting.pop_front())
    }

    /// Waits until there may be more.
    pub async fn changed(&mut self) {
        if !self.is_behind && self.waiting.is_empty() {
            self.listener.woken(LOOK_AGAIN).await;
            self.is_behind = true;
        }
    }

    /// Up to here nothing that was selected is outstanding: where to go on after a restart.
    pub fn position(&self) -> u64 {
        self.waiting.front().map_or(self.reached, |event| event.position() - 1)
    }

    /// Which life of the log is followed, once something was read.
    pub fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    async fn look(&mut self) -> Result<()> {
        self.selection.after = self.reached;
        let page = self.log.read(&self.selection, LOOK).await?;
        let expected = *self.epoch.get_or_insert(page.epoch);
        if expected != page.epoch {
            return Err(Error::EpochChanged { expected, found: page.epoch });
        }
        self.is_behind = page.next.is_some();
        let last = page.events.last().map_or(self.reached, Event::position);
        self.reached = page.next.unwrap_or_else(|| last.max(page.head)).max(self.reached);
        self.waiting.extend(page.events);
        Ok(())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.log.figures().subscriptions.add(-1);
    }
}
