//! What somebody may have meant.

/// Two slips of the finger; more would suggest words that only look alike.
const SLIPS: usize = 2;

/// The candidate nearest to what was typed, if it is near. Upper and lower case do not count.
pub(super) fn nearest<S: AsRef<str>>(typed: &str, candidates: impl IntoIterator<Item = S>) -> Option<S> {
    let typed = typed.to_lowercase();
    let distance = |candidate: &S| strsim::osa_distance(&typed, &candidate.as_ref().to_lowercase());
    let measured = candidates.into_iter().map(|candidate| (distance(&candidate), candidate));
    measured
        .filter(|(slips, _)| *slips <= SLIPS)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_what_is_near_and_nothing_else() {
        let keys = ["url", "busyTimeoutMs", "readers"];
        assert_eq!(nearest("bussyTimeoutMs", keys), Some("busyTimeoutMs"));
        assert_eq!(nearest("busytimeoutms", keys), Some("busyTimeoutMs"));
        assert_eq!(nearest("raeders", keys), Some("readers"));
        assert_eq!(nearest("listen", keys), None);
    }
}
