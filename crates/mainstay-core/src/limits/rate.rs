//! A rate as a fraction of whole numbers.

/// How close a fraction must be to the number it stands for. A double has about sixteen digits, and the division that
/// gave us the number cost it a few.
const PRECISION: f64 = 1e-12;

/// `tokens` in `per_ms` milliseconds, in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Rate {
    pub(super) tokens: u64,
    pub(super) per_ms: u64,
}

impl Rate {
    pub(super) fn new(tokens: u64, per_ms: u64) -> Self {
        let divisor = greatest_common_divisor(tokens, per_ms).max(1);
        Self { tokens: tokens / divisor, per_ms: per_ms / divisor }
    }

    /// The simplest fraction that is as good as `tokens_per_ms`: the convergents of its continued fraction, until one
    /// is precise or the next would have terms beyond `most`. What was 1/86,400 of a second before it became a
    /// double is that again.
    pub(super) fn nearest(tokens_per_ms: f64, most: u64) -> Self {
        let (mut before, mut last) = ((0_u64, 1_u64), (1_u64, 0_u64));
        let mut rest = tokens_per_ms;
        loop {
            let near = rest.round();
            let whole = if (rest - near).abs() <= near * PRECISION { near } else { rest.floor() };
            let next = (
                (whole as u64).saturating_mul(last.0).saturating_add(before.0),
                (whole as u64).saturating_mul(last.1).saturating_add(before.1),
            );
            if next.0 > most || next.1 > most {
                return Self::new(last.0, last.1);
            }
            (before, last) = (last, next);
            let reached = last.0 as f64 / last.1 as f64;
            if last.0 > 0 && (reached - tokens_per_ms).abs() <= tokens_per_ms * PRECISION {
                return Self::new(last.0, last.1);
            }
            rest = 1.0 / (rest - whole);
        }
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: u64 = 1 << 36;

    #[test]
    fn what_was_a_simple_fraction_is_one_again() {
        for (per_second, tokens, per_ms) in [
            (1.0, 1, 1_000),
            (0.1, 1, 10_000),
            (1.0 / 3.0, 1, 3_000),
            (2.5, 1, 400),
            (33.3, 333, 10_000),
            (100.0 / 60.0, 1, 600),
            (1.0 / 86_400.0, 1, 86_400_000),
            (7.0 / 86_400.0, 7, 86_400_000),
            (1_000_000.0, 1_000, 1),
        ] {
            assert_eq!(Rate::nearest(per_second / 1_000.0, MOST), Rate { tokens, per_ms }, "{per_second}");
        }
    }

    proptest! {
        #[test]
        fn any_rate_is_met_closely(tokens in 1_u64..1_000_000, per_ms in 1_u64..86_400_000) {
            let (number, exact) = (tokens as f64 / per_ms as f64, Rate::new(tokens, per_ms));
            let rate = Rate::nearest(number, MOST);
            prop_assert!(rate.per_ms <= exact.per_ms, "{rate:?} is no simpler than {exact:?}");
            prop_assert!((rate.tokens as f64 / rate.per_ms as f64 - number).abs() <= number * 1e-12);
        }

        #[test]
        fn any_number_ends_in_a_fraction(number in 1e-11_f64..1_000.0) {
            let rate = Rate::nearest(number, MOST);
            let off = (rate.tokens as f64 / rate.per_ms as f64 - number).abs() / number;
            prop_assert!(off < 1e-9, "{number} became {rate:?}, off by {off}");
        }
    }
}
