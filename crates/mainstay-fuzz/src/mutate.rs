//! Inputs made from others, from a seed: the same seed makes the same inputs.

use mainstay_core::random::{Random, SeededRandom};

/// Longest input that is made; parsers with a length limit of their own have a lower one.
const MAX_BYTES: usize = 4_096;
/// Bytes at which parsers decide.
const BYTES: &[u8] = b"\0\n\r\t\"'`\\/*-$?;,.:%&=+#@[]{}()<>0179aefEtx \x7f\x80\xc3\xff";

/// Makes inputs from a corpus.
#[derive(Debug)]
pub struct Mutator {
    corpus: Vec<Vec<u8>>,
    random: SeededRandom,
}

impl Mutator {
    /// From a corpus, which must not be empty.
    pub fn new(corpus: Vec<Vec<u8>>, seed: u64) -> Self {
        assert!(!corpus.is_empty(), "there is nothing to make inputs from");
        Self { corpus, random: SeededRandom::new(seed) }
    }

    /// The next input: one of the corpus with one to eight changes.
    pub fn input(&mut self) -> Vec<u8> {
        let mut input = self.pick().to_vec();
        for _ in 0..=self.below(8) {
            self.change(&mut input);
        }
        input.truncate(MAX_BYTES);
        input
    }

    fn change(&self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let end = at + self.below(input.len() - at + 1).min(16);
        match self.below(7) {
            0 => input.insert(at, BYTES[self.below(BYTES.len())]),
            1 => input.insert(at, self.below(256) as u8),
            2 => drop(input.drain(at..end)),
            3 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            // A part again, sometimes many times: what nests, repeats.
            4 => {
                let times = if self.below(8) == 0 { 64 } else { 1 };
                let part = input[at..end].repeat(times);
                input.splice(at..at, part);
            }
            // The end of another input of the corpus.
            5 => {
                let other = self.pick();
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            // A part of another one.
            _ => {
                let other = self.pick();
                let from = self.below(other.len() + 1);
                let to = (from + self.below(32)).min(other.len());
                input.splice(at..end, other[from..to].iter().copied());
            }
        }
    }

    fn pick(&self) -> &[u8] {
        &self.corpus[self.below(self.corpus.len())]
    }

    fn below(&self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }
}
