//! How well a system is: what lag and depth mean, and what the parts mean together.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How well something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All is well.
    Healthy,
    /// It works, and somebody should look at it.
    Degraded,
    /// It does not work.
    Unhealthy,
}

impl Status {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// How far behind a projection is, in words (item 244, decision C15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Band {
    /// Up to 10 events.
    Healthy,
    /// Up to 100.
    Warning,
    /// Up to 1,000.
    Degraded,
    /// More.
    Critical,
}

impl Band {
    /// The band of a lag.
    pub fn of(lag: u64) -> Self {
        match lag {
            0..=10 => Self::Healthy,
            11..=100 => Self::Warning,
            101..=1_000 => Self::Degraded,
            _ => Self::Critical,
        }
    }

    /// What it means for the health of the part.
    pub fn status(self) -> Status {
        match self {
            Self::Healthy | Self::Warning => Status::Healthy,
            Self::Degraded => Status::Degraded,
            Self::Critical => Status::Unhealthy,
        }
    }
}

/// How many events are still to be looked at; all of them without a checkpoint (items 242 and 243).
pub fn lag(head: u64, checkpoint: Option<u64>) -> u64 {
    head.saturating_sub(checkpoint.unwrap_or(0))
}

/// How many items may wait in a pool before it is behind, unless somebody says otherwise (item 241).
pub fn usual_depth(max_parallelism: u32) -> u64 {
    2 * u64::from(max_parallelism)
}

/// How a part is (item 245).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentHealth {
    /// Which part.
    pub name: String,
    /// How it is.
    pub status: Status,
    /// What that was seen by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// What is wrong, as an error code or in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What somebody can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggested_action: Option<String>,
}

impl ComponentHealth {
    /// A part that is like this.
    pub fn new(name: impl Into<String>, status: Status) -> Self {
        Self { name: name.into(), status, details: None, error: None, suggested_action: None }
    }
}

/// How all parts are together (items 245 and 246).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemHealth {
    /// The worst that any part is.
    pub status: Status,
    /// When that was seen, in milliseconds since the epoch.
    pub timestamp: i64,
    /// The parts.
    pub components: Vec<ComponentHealth>,
    /// How many of them are how.
    pub summary: Summary,
    /// What somebody should know although it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// How many parts are how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Those that are well.
    pub healthy: u32,
    /// Those that somebody should look at.
    pub degraded: u32,
    /// Those that do not work.
    pub unhealthy: u32,
}

impl SystemHealth {
    /// What parts mean together.
    pub fn of(components: Vec<ComponentHealth>, timestamp: i64) -> Self {
        let mut summary = Summary::default();
        for component in &components {
            *match component.status {
                Status::Healthy => &mut summary.healthy,
                Status::Degraded => &mut summary.degraded,
                Status::Unhealthy => &mut summary.unhealthy,
            } += 1;
        }
        let status = components.iter().map(|component| component.status).max().unwrap_or(Status::Healthy);
        let named = components.iter().filter(|component| component.status == Status::Degraded);
        let named: Vec<&str> = named.map(|component| component.name.as_str()).collect();
        let warning = (status == Status::Degraded).then(|| format!("degraded: {}", named.join(", ")));
        Self { status, timestamp, components, summary, warning }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(statuses: [Status; 4]) -> SystemHealth {
        let names = ["eventStore", "projections", "workpool", "deadLetters"];
        let parts = names.into_iter().zip(statuses);
        SystemHealth::of(parts.map(|(name, status)| ComponentHealth::new(name, status)).collect(), 7)
    }

    #[test]
    fn b_242_lag_is_what_lies_between_checkpoint_and_head() {
        assert_eq!((lag(1_000, Some(950)), Band::of(50)), (50, Band::Warning));
        assert_eq!((lag(1_000, Some(1_000)), Band::of(0)), (0, Band::Healthy));
        assert_eq!(lag(1_000, Some(1_001)), 0, "never below nothing");
    }

    #[test]
    fn b_243_without_a_checkpoint_everything_is_still_to_be_looked_at() {
        assert_eq!(lag(1_000, None), 1_000);
    }

    #[test]
    fn b_244_lag_has_four_bands() {
        let bands = [
            (0, Band::Healthy),
            (10, Band::Healthy),
            (11, Band::Warning),
            (100, Band::Warning),
            (101, Band::Degraded),
            (1_000, Band::Degraded),
            (1_001, Band::Critical),
            (u64::MAX, Band::Critical),
        ];
        for (lag, band) in bands {
            assert_eq!(Band::of(lag), band, "{lag}");
        }
    }

    #[test]
    fn b_246_the_worst_part_tells_how_the_whole_is() {
        use Status::{Degraded, Healthy, Unhealthy};
        let cases = [
            ([Healthy; 4], Healthy, (4, 0, 0)),
            ([Healthy, Degraded, Healthy, Healthy], Degraded, (3, 1, 0)),
            ([Degraded, Unhealthy, Degraded, Healthy], Unhealthy, (1, 2, 1)),
        ];
        for (statuses, status, counts) in cases {
            let whole = parts(statuses);
            let Summary { healthy, degraded, unhealthy } = whole.summary;
            assert_eq!((whole.status, (healthy, degraded, unhealthy), whole.timestamp), (status, counts, 7));
            assert_eq!(whole.warning.is_some(), status == Degraded);
        }
        assert_eq!(SystemHealth::of(Vec::new(), 0).status, Healthy);
    }

    #[test]
    fn b_245_a_part_says_only_what_there_is_to_say() {
        let json = serde_json::to_value(parts([Status::Healthy; 4])).unwrap();
        assert_eq!(json["components"][0], serde_json::json!({"name": "eventStore", "status": "healthy"}));
        assert_eq!(json["summary"], serde_json::json!({"healthy": 4, "degraded": 0, "unhealthy": 0}));
    }
}
