//! Lists, page by page: the thousandth must cost what the first costs.

use super::POOL;
use super::visitor::Visitor;
use crate::Result;
use std::time::Duration;

/// How far a list is followed.
const FURTHEST: usize = 1_000;
/// A list, how its pages follow one another, and how many entries a page has. What is done is written down one by one, so its
/// pages are small.
const LISTS: [(&str, &str, usize); 6] = [
    ("/v1/events?order=backward", "until", 50),
    ("/admin/work", "cursor", 50),
    ("/admin/dead-letters", "cursor", 50),
    ("/admin/publications", "cursor", 10),
    ("/admin/intents", "cursor", 10),
    ("/admin/audit", "before", 1),
];

/// Two pages of a list.
#[derive(Debug)]
pub struct Pages {
    /// The list.
    pub list: &'static str,
    /// Which page the later one is: the thousandth, or the last.
    pub page: usize,
    /// How long the first took, the shortest first.
    pub first: Vec<Duration>,
    /// How long the later one took.
    pub later: Vec<Duration>,
}

/// Asks for the first and a late page of each list.
pub(super) fn ask(visitor: &Visitor, times: usize) -> Result<Vec<Pages>> {
    LISTS.into_iter().map(|list| two_of(visitor, list, times)).collect()
}

fn two_of(
    visitor: &Visitor,
    (list, name, limit): (&'static str, &str, usize),
    times: usize,
) -> Result<Pages> {
    let separator = if list.contains('?') { '&' } else { '?' };
    let first = format!("{list}{separator}limit={limit}");
    let (mut at, mut page) = (first.clone(), 1);
    while page < FURTHEST {
        let next = visitor.document(&at)?["next"].take();
        let next = next.as_str().map(str::to_owned).or_else(|| Some(next.as_u64()?.to_string()));
        let Some(next) = next else { break };
        (at, page) = (format!("{first}&{name}={next}"), page + 1);
    }
    let first = visitor.ask(&first, times)?.1;
    Ok(Pages { list, page, first, later: visitor.ask(&at, times)?.1 })
}

/// Does something again and again, for the audit to have pages: a thousand of them, unless little is measured.
pub(super) fn be_written_down(visitor: &Visitor, times: usize) -> Result<()> {
    for _ in 0..(times * 10).min(FURTHEST / 2) {
        visitor.act(&format!("/admin/pools/{POOL}/pause"))?;
        visitor.act(&format!("/admin/pools/{POOL}/resume"))?;
    }
    Ok(())
}
