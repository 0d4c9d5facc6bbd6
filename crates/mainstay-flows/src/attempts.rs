//! What has failed before, as it is kept beside a letter of a projection or a publication.
//!
//! Each attempt is a line of JSON, so that a statement adds to what is there without reading it.

pub(crate) use mainstay_work::inbox::Attempt;

/// Most characters that are kept beside a letter: hundreds of attempts, or the newest dozen if all of them say much.
const MOST: usize = 1 << 16;

/// The column that has another text at its end, and the oldest of it cut off when it grows too long.
pub(crate) fn appended(column: &str, text: &str) -> String {
    let whole = format!("coalesce({column}, '') || {text}");
    format!(
        "CASE WHEN length({whole}) > {MOST} THEN substr({whole}, length({whole}) - {MOST} + 1) ELSE {whole} END"
    )
}

/// Attempts as they are kept.
pub(crate) fn write(attempts: impl IntoIterator<Item = Attempt>) -> mainstay_store::Result<String> {
    let mut lines = String::new();
    for attempt in attempts {
        lines.push_str(&serde_json::to_string(&attempt).map_err(mainstay_store::Error::application)?);
        lines.push('\n');
    }
    Ok(lines)
}

/// Attempts that were kept, the oldest first. Of one that was cut off there is nothing left to tell.
pub(crate) fn read(kept: Option<&str>) -> Vec<Attempt> {
    let lines = kept.unwrap_or_default().lines();
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_core::failure::Failure;

    fn attempt(number: u32) -> Attempt {
        let failure = Failure::retryable("no\nanswer");
        Attempt { work_id: (number > 1).then(|| "work_1".to_owned()), attempt: number, at_ms: 7, failure }
    }

    #[test]
    fn what_is_written_is_read_and_what_was_cut_off_is_passed_over() {
        let kept = write([attempt(1), attempt(2)]).unwrap() + &write([attempt(3)]).unwrap();
        assert_eq!(read(Some(&kept)), [attempt(1), attempt(2), attempt(3)]);
        assert_eq!(read(Some(&kept[5..])), [attempt(2), attempt(3)]);
        assert!(read(None).is_empty() && read(Some("")).is_empty());
    }
}
