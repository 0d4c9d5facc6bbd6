//! Periods as people write them.

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads `500ms`, `1s`, `5m`, `1h` or `30d` as milliseconds.
pub fn parse_period(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*unit_ms)
}

/// Writes milliseconds in the largest unit that they are a whole number of.
pub fn show_period(period_ms: u64) -> String {
    let fits = |unit_ms: u64| period_ms > 0 && period_ms.is_multiple_of(unit_ms);
    let (name, unit_ms) = UNITS.iter().rfind(|(_, unit_ms)| fits(*unit_ms)).unwrap_or(&UNITS[0]);
    format!("{}{name}", period_ms / unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_periods() {
        for (text, ms) in
            [("500ms", 500), ("1s", 1_000), ("5m", 300_000), ("1h", 3_600_000), ("30d", 2_592_000_000)]
        {
            assert_eq!(parse_period(text), Some(ms));
            assert_eq!(show_period(ms), text);
        }
        assert_eq!((show_period(0), show_period(90_000)), ("0ms".to_owned(), "90s".to_owned()));
        for bad in ["", "1", "m", "-1s", "1.5s", "1 s", "1S", "99999999999999999999d", "300000000000000d"] {
            assert_eq!(parse_period(bad), None, "{bad}");
        }
    }
}
