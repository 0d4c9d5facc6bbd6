//! Randomness that is the same for a seed on every machine and in every version.

/// SplitMix64, by Vigna: <https://prng.di.unimi.it/splitmix64.c>.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..end`. The bias of the remainder does not matter for ends as small as ours.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True in `eighths` of eight cases.
    pub(super) fn chance(&mut self, eighths: usize) -> bool {
        self.below(8) < eighths
    }
}
