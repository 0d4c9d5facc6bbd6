//! The bytes of one file: those on the disk, and the changes that may not be.

use std::collections::HashSet;

use super::Random;

/// What every disk writes as a whole or not at all.
const SECTOR: usize = 512;

/// A file's bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    on_disk: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { length: usize },
}

enum Fate {
    Whole,
    Torn,
    Lost,
}

impl Content {
    pub(super) fn on_disk(bytes: Vec<u8>) -> Content {
        Content { on_disk: bytes, unsynced: Vec::new() }
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.unsynced.push(Change::Write { offset: in_memory(offset), bytes: bytes.to_vec() });
    }

    pub(super) fn truncate(&mut self, length: u64) {
        self.unsynced.push(Change::Truncate { length: in_memory(length) });
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            self.settle(&change);
        }
    }

    /// The bytes that are found afterwards.
    pub(super) fn after_power_loss(mut self, random: &mut Random, eighths: usize) -> Vec<u8> {
        let mut survived = Vec::new();
        // From the last change to the first: a sector that was written back carries all earlier writes to it along.
        let mut written_back = HashSet::new();
        for change in self.unsynced.drain(..).rev() {
            match change {
                Change::Write { offset, bytes } => {
                    let fate = fate(random, eighths);
                    for (start, part) in sectors(offset, &bytes) {
                        let kept = match fate {
                            Fate::Whole => true,
                            Fate::Torn => random.chance(4),
                            Fate::Lost => false,
                        };
                        if kept || written_back.contains(&(start / SECTOR)) {
                            written_back.insert(start / SECTOR);
                            survived.push(Change::Write { offset: start, bytes: part.to_vec() });
                        }
                    }
                }
                Change::Truncate { .. } => {
                    // What was written before it is not in the sectors that were written after it.
                    written_back.clear();
                    if random.chance(eighths) {
                        survived.push(change);
                    }
                }
            }
        }
        survived.iter().rev().for_each(|change| self.settle(change));
        self.on_disk
    }

    fn settle(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => {
                let end = offset + bytes.len();
                self.on_disk.resize(self.on_disk.len().max(end), 0);
                self.on_disk[*offset..end].copy_from_slice(bytes);
            }
            Change::Truncate { length } => self.on_disk.resize(*length, 0),
        }
    }
}

fn fate(random: &mut Random, eighths: usize) -> Fate {
    // At the ends of the scale nothing is torn, or they would not be the ends.
    if (1..8).contains(&eighths) && random.chance(2) {
        Fate::Torn
    } else if random.chance(eighths) {
        Fate::Whole
    } else {
        Fate::Lost
    }
}

/// Cuts a write where sectors of the file begin.
fn sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let end = offset + bytes.len();
    (offset / SECTOR..end.div_ceil(SECTOR)).map(move |sector| {
        let start = offset.max(sector * SECTOR);
        (start, &bytes[start - offset..end.min((sector + 1) * SECTOR) - offset])
    })
}

fn in_memory(number: u64) -> usize {
    usize::try_from(number).expect("a file that was traced fits into memory")
}
