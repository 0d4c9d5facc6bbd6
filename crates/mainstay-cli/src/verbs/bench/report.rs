//! What is said of a measurement, to programs and to people.

use super::callers::Measurement;
use super::events::Read;
use super::operate::Operated;
use super::publications::Delivered;
use super::replay::Replayed;
use super::work::Worked;
use super::{events, limits, operate, publications, replay, work};
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) durability: String,
    pub(super) disk_sync_ms: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) measurements: Vec<Measurement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reading: Option<Read>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) work: Option<Worked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) in_memory_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replay: Option<Replayed>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) publications: Vec<Delivered>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) operate: Option<Operated>,
}

pub(super) fn headline(report: &Report) -> String {
    match report.disk_sync_ms {
        Some(sync) => format!("{}; this disk syncs a page in {sync:.3} ms", report.durability),
        None => report.durability.clone(),
    }
}

pub(super) fn told(report: &Report) -> String {
    if let Some(worked) = &report.work {
        return work::told(worked);
    }
    if let Some(replayed) = &report.replay {
        return replay::told(replayed);
    }
    if let Some(operated) = &report.operate {
        return operate::told(operated);
    }
    if !report.publications.is_empty() {
        return report.publications.iter().map(publications::told).collect();
    }
    if let Some(per_second) = report.in_memory_per_second {
        return limits::told(per_second);
    }
    report.reading.as_ref().map_or(String::new(), events::told)
}
