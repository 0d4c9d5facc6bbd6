//! The newest events themselves, in memory.
//!
//! Who decides mostly asks for what was appended not long ago. Where one process owns the log, what it commits is kept here
//! for a while, so that a decision reads it without a statement. Events never change, except that they are erased, and then
//! they are forgotten here.

use crate::event::Event;
use crate::record;
use mainstay_store::Value;
use std::collections::VecDeque;

/// Most chunks that are kept, and the bytes of events after which one is full: 64 MiB in all, unless events are huge.
const MAX_CHUNKS: usize = 64;
const CHUNK_BYTES: usize = 1 << 20;

/// Consecutive events, in chunks; the oldest chunk goes as a whole.
pub(crate) struct Kept {
    chunks: VecDeque<Chunk>,
    chunk_bytes: usize,
}

#[derive(Default)]
struct Chunk {
    first: u64,
    /// Headers and payloads, one after another.
    bytes: Vec<u8>,
    places: Vec<Place>,
}

/// Where an event lies in its chunk.
#[derive(Clone, Copy)]
struct Place {
    at: u32,
    /// Where its payload begins and ends; an event that was forgotten has neither.
    payload: u32,
    end: u32,
}

impl Default for Kept {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), chunk_bytes: CHUNK_BYTES }
    }
}

impl Kept {
    /// Keeps the rows `(position, header, payload)` of the next events of the log.
    pub(super) fn keep(&mut self, rows: &[Value]) {
        for row in rows.chunks(3) {
            if let [Value::Int(position), Value::Blob(header), Value::Blob(payload)] = row {
                self.keep_one(*position as u64, header, payload);
            }
        }
    }

    fn keep_one(&mut self, position: u64, header: &[u8], payload: &[u8]) {
        if self.chunks.back().is_some_and(|last| last.end() != position) {
            self.chunks.clear();
        }
        let is_full = |chunk: &Chunk| chunk.bytes.len() + header.len() + payload.len() > self.chunk_bytes;
        if self.chunks.back().is_none_or(is_full) {
            let oldest = if self.chunks.len() < MAX_CHUNKS { None } else { self.chunks.pop_front() };
            self.chunks.push_back(oldest.unwrap_or_default().begun_at(position, self.chunk_bytes));
        }
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.push(header, payload);
        }
    }

    /// The event at a position, if it is kept.
    pub(super) fn get(&self, position: u64) -> Option<Event> {
        let number = self.chunks.partition_point(|chunk| chunk.first <= position).checked_sub(1)?;
        self.chunks.get(number)?.get(position)
    }

    /// Whether an event up to a position may be here.
    pub(super) fn reaches_down_to(&self, position: u64) -> bool {
        self.chunks.front().is_some_and(|oldest| oldest.first <= position)
    }

    /// Forgets events: they are about to be erased.
    pub(super) fn forget(&mut self, positions: &[u64]) {
        for position in positions {
            let after = self.chunks.partition_point(|chunk| chunk.first <= *position);
            if let Some(chunk) = after.checked_sub(1).and_then(|number| self.chunks.get_mut(number)) {
                chunk.forget(*position);
            }
        }
    }
}

impl Chunk {
    /// An empty chunk; the room of an old one is used again, unless that was one of huge events.
    fn begun_at(mut self, first: u64, usual_bytes: usize) -> Self {
        self.bytes.clear();
        self.bytes.shrink_to(usual_bytes);
        self.places.clear();
        Self { first, ..self }
    }

    /// The position after the last.
    fn end(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    fn push(&mut self, header: &[u8], payload: &[u8]) {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(header);
        let payload_at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(payload);
        self.places.push(Place { at, payload: payload_at, end: self.bytes.len() as u32 });
    }

    fn number(&self, position: u64) -> Option<usize> {
        usize::try_from(position.checked_sub(self.first)?).ok()
    }

    fn get(&self, position: u64) -> Option<Event> {
        let place = self.places.get(self.number(position)?)?;
        let bytes = self.bytes.get(place.at as usize..place.end as usize)?;
        record::decode_own(position, bytes, (place.payload - place.at) as usize).ok()
    }

    fn forget(&mut self, position: u64) {
        let Some(place) = self.number(position).and_then(|number| self.places.get_mut(number)) else {
            return;
        };
        if let Some(bytes) = self.bytes.get_mut(place.at as usize..place.end as usize) {
            bytes.fill(0);
        }
        *place = Place { payload: place.at, end: place.at, ..*place };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Head;

    fn row(position: u64, data: &str) -> Vec<Value> {
        let payload = record::encode_payload(data, None);
        let header = record::encode_header(&Head {
            position,
            timestamp_ms: 1,
            payload_checksum: record::payload_checksum(&payload),
            category: crate::Category::Domain,
            schema_version: 1,
            id: "id",
            event_type: "Kept",
            correlation_id: "c",
            context: None,
            tenant: None,
            stream: None,
            causation_id: None,
            trace: None,
            idempotency: None,
            scope: None,
            tags: &[],
        });
        vec![Value::Int(position as i64), Value::Blob(header), Value::Blob(payload)]
    }

    fn kept(some: &Kept) -> Vec<u64> {
        let is_kept = |position: &u64| some.get(*position).is_some_and(|event| event.position() == *position);
        (0..1_000).filter(is_kept).collect()
    }

    #[test]
    fn the_newest_are_kept_as_far_as_there_is_room() {
        let mut some = Kept { chunk_bytes: 100, ..Kept::default() };
        // Two of them fill a chunk.
        (5..=504).for_each(|position| some.keep(&row(position, "1")));
        let there = kept(&some);
        assert_eq!((there.len(), there.last()), (2 * MAX_CHUNKS, Some(&504)));
        assert!(there.is_sorted() && some.reaches_down_to(there[0]) && !some.reaches_down_to(there[0] - 1));
        assert_eq!(some.get(504).unwrap().data(), Some("1"));
    }

    #[test]
    fn one_that_is_larger_than_a_chunk_has_its_own() {
        let mut some = Kept { chunk_bytes: 100, ..Kept::default() };
        let large = format!("\"{}\"", "a".repeat(1_000));
        [row(1, "1"), row(2, &large), row(3, "1")].iter().for_each(|row| some.keep(row));
        assert_eq!((kept(&some), some.chunks.len()), (vec![1, 2, 3], 3));
        (4..=504).for_each(|position| some.keep(&row(position, "1")));
        assert!(some.chunks.iter().all(|chunk| chunk.bytes.capacity() < 300), "its room was given back");
    }

    #[test]
    fn of_what_is_forgotten_nothing_stays() {
        let mut some = Kept::default();
        (1..=4).for_each(|position| some.keep(&row(position, "\"secret\"")));
        some.forget(&[2, 3, 3, 0, 99]);
        assert_eq!(kept(&some), [1, 4]);
        some.forget(&[1, 4]);
        assert!(some.chunks[0].bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn positions_that_do_not_follow_begin_anew() {
        let mut some = Kept::default();
        [1, 2, 7].into_iter().for_each(|position| some.keep(&row(position, "1")));
        assert_eq!(kept(&some), [7]);
    }
}
