//! How a circuit is set.

use serde::{Deserialize, Serialize};

/// Most failures or successes that are counted, and most calls of a window: far beyond what is useful, and little enough
/// to keep in memory for every circuit.
const MOST_CALLS: u32 = 10_000;
/// A week: longer than anybody leaves a service alone.
const MOST_RESET_MS: u64 = 7 * 24 * 3_600_000;
/// A day: longer than any call.
const MOST_CALL_MS: u64 = 24 * 3_600_000;
/// An hour of calls.
const MOST_WINDOW_MS: u64 = 3_600_000;
/// The shortest window of time.
const LEAST_WINDOW_MS: u64 = 100;

/// How a circuit is set. Only valid ones exist.
///
/// ```
/// use mainstay_core::circuit::Settings;
///
/// let settings: Settings = serde_json::from_str(r#"{"failureThreshold":10,"resetTimeoutMs":30000}"#).unwrap();
/// assert_eq!(settings, Settings::preset("sendgrid").unwrap());
/// let none = serde_json::from_str::<Settings>(r#"{"failureThreshold":0}"#).unwrap_err();
/// assert!(none.to_string().starts_with("failureThreshold must be 1 to 10000"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Settings {
    /// What opens it.
    pub trip: Trip,
    /// How long it is open before a probe is made.
    pub reset_timeout_ms: u64,
    /// How many probes must succeed one after another before it closes.
    pub success_threshold: u32,
    /// How long a probe may be out before it counts as lost and another one may be made.
    pub probe_timeout_ms: u64,
    /// Whether it only measures: it changes its state and says so, and lets everything through.
    pub metrics_only: bool,
    /// How often a durable run behind the circuit is tried again before it counts as one failure.
    pub max_retries: u32,
    /// How long such a run waits before it is tried again first.
    pub initial_backoff_ms: u64,
}

/// What opens a circuit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trip {
    /// So many failures one after another, over all nodes.
    Consecutive {
        /// How many.
        failure_threshold: u32,
    },
    /// Too many of the last calls of a node failed or were slow.
    Rate(Rate),
}

/// How many of the last calls are too many.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Which calls are the last ones.
    pub span: Span,
    /// Fewer calls than this say nothing.
    pub minimum_calls: u32,
    /// So many of a hundred that failed open it.
    pub failure_percent: Option<f64>,
    /// So many of a hundred that were slow open it.
    pub slow: Option<Slow>,
}

/// Which calls are the last ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// The last so many.
    Calls(u32),
    /// Those of the last so many milliseconds.
    Time(u64),
}

/// Which calls are slow, and how many are too many.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slow {
    /// A call that takes longer is slow.
    pub after_ms: u64,
    /// So many of a hundred open the circuit.
    pub percent: f64,
}

/// Settings as they are written down; what is left out has its default.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Form {
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_threshold: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    success_threshold: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    metrics_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    initial_backoff_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_calls: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum_calls: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow_percent: Option<f64>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Why settings were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A number is outside of its range.
    #[error("{name} must be {least} to {most}")]
    OutOfRange {
        /// Which one.
        name: &'static str,
        /// Its smallest value.
        least: u64,
        /// Its largest value.
        most: u64,
    },
    /// A share of calls that is none.
    #[error("{0} must be more than 0 and at most 100")]
    NotAPercentage(&'static str),
    /// Two settings that exclude each other, or one that means nothing without another.
    #[error("{0}")]
    Contradiction(&'static str),
}

impl Settings {
    /// Opens after so many failures one after another; everything else as by default.
    pub fn consecutive(
        failure_threshold: u32,
        reset_timeout_ms: u64,
        success_threshold: u32,
    ) -> Result<Self, SettingsError> {
        let trip = Trip::Consecutive { failure_threshold };
        Self { trip, reset_timeout_ms, success_threshold, ..Self::default() }.checked()
    }

    /// Opens when too many of the last calls failed or were slow; everything else as by default.
    pub fn rate(rate: Rate) -> Result<Self, SettingsError> {
        Self { trip: Trip::Rate(rate), ..Self::default() }.checked()
    }

    /// The settings that a well-known service has unless somebody says otherwise.
    pub fn preset(name: &str) -> Option<Self> {
        let (failure_threshold, reset_timeout_ms, success_threshold) = match name {
            "stripe-api" => (3, 60_000, 1),
            "sendgrid" => (10, 30_000, 1),
            "webhook-delivery" => (5, 15_000, 2),
            _ => return None,
        };
        let trip = Trip::Consecutive { failure_threshold };
        Some(Self { trip, reset_timeout_ms, success_threshold, ..Self::default() })
    }

    /// The same, if every number is in its range.
    pub fn checked(self) -> Result<Self, SettingsError> {
        in_range("resetTimeoutMs", self.reset_timeout_ms, 1, MOST_RESET_MS)?;
        in_range("successThreshold", self.success_threshold.into(), 1, MOST_CALLS.into())?;
        in_range("probeTimeoutMs", self.probe_timeout_ms, 1, MOST_CALL_MS)?;
        in_range("maxRetries", self.max_retries.into(), 0, MOST_CALLS.into())?;
        in_range("initialBackoffMs", self.initial_backoff_ms, 1, MOST_CALL_MS)?;
        match self.trip {
            Trip::Consecutive { failure_threshold } => {
                in_range("failureThreshold", failure_threshold.into(), 1, MOST_CALLS.into())?;
            }
            Trip::Rate(rate) => rate.check()?,
        }
        Ok(self)
    }
}

impl Rate {
    fn check(&self) -> Result<(), SettingsError> {
        let most = match self.span {
            Span::Calls(calls) => {
                in_range("windowCalls", calls.into(), 1, MOST_CALLS.into())?;
                calls
            }
            Span::Time(ms) => {
                in_range("windowMs", ms, LEAST_WINDOW_MS, MOST_WINDOW_MS)?;
                MOST_CALLS
            }
        };
        in_range("minimumCalls", self.minimum_calls.into(), 1, most.into())?;
        if let Some(percent) = self.failure_percent {
            percentage("failurePercent", percent)?;
        }
        if let Some(slow) = self.slow {
            in_range("slowAfterMs", slow.after_ms, 1, MOST_CALL_MS)?;
            percentage("slowPercent", slow.percent)?;
        }
        if self.failure_percent.is_none() && self.slow.is_none() {
            return Err(SettingsError::Contradiction(
                "a window needs failurePercent, or slowAfterMs with slowPercent, or nothing ever opens the circuit",
            ));
        }
        Ok(())
    }
}

fn in_range(name: &'static str, value: u64, least: u64, most: u64) -> Result<(), SettingsError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(SettingsError::OutOfRange { name, least, most })
    }
}

fn percentage(name: &'static str, value: f64) -> Result<(), SettingsError> {
    if value > 0.0 && value <= 100.0 { Ok(()) } else { Err(SettingsError::NotAPercentage(name)) }
}

impl Default for Settings {
    /// Five failures one after another, 30 s, one probe that succeeds within a minute.
    fn default() -> Self {
        Self {
            trip: Trip::Consecutive { failure_threshold: 5 },
            reset_timeout_ms: 30_000,
            success_threshold: 1,
            probe_timeout_ms: 60_000,
            metrics_only: false,
            max_retries: 3,
            initial_backoff_ms: 250,
        }
    }
}

impl Default for Rate {
    /// Half of the last hundred calls, of which there must have been ten.
    fn default() -> Self {
        Self { span: Span::Calls(100), minimum_calls: 10, failure_percent: Some(50.0), slow: None }
    }
}

impl TryFrom<Form> for Settings {
    type Error = SettingsError;

    fn try_from(form: Form) -> Result<Self, SettingsError> {
        let usual = Self::default();
        let span = match (form.window_calls, form.window_ms) {
            (Some(_), Some(_)) => {
                return Err(SettingsError::Contradiction("windowCalls and windowMs exclude each other"));
            }
            (Some(calls), None) => Some(Span::Calls(calls)),
            (None, Some(ms)) => Some(Span::Time(ms)),
            (None, None) => None,
        };
        let is_rated = form.minimum_calls.is_some()
            || form.failure_percent.is_some()
            || form.slow_after_ms.is_some()
            || form.slow_percent.is_some();
        let trip = match span {
            Some(_) if form.failure_threshold.is_some() => {
                return Err(SettingsError::Contradiction("failureThreshold and a window exclude each other"));
            }
            None if is_rated => {
                return Err(SettingsError::Contradiction(
                    "minimumCalls, failurePercent, slowAfterMs and slowPercent need windowCalls or windowMs",
                ));
            }
            Some(span) => {
                let slow = match (form.slow_after_ms, form.slow_percent) {
                    (Some(after_ms), Some(percent)) => Some(Slow { after_ms, percent }),
                    (None, None) => None,
                    _ => {
                        return Err(SettingsError::Contradiction("slowAfterMs and slowPercent go together"));
                    }
                };
                let usual = Rate::default();
                let failure_percent = match slow {
                    Some(_) => form.failure_percent,
                    None => form.failure_percent.or(usual.failure_percent),
                };
                let most = if let Span::Calls(calls) = span { calls } else { usual.minimum_calls };
                let minimum_calls = form.minimum_calls.unwrap_or(usual.minimum_calls.min(most));
                Trip::Rate(Rate { span, minimum_calls, failure_percent, slow })
            }
            None => form
                .failure_threshold
                .map_or(usual.trip, |failure_threshold| Trip::Consecutive { failure_threshold }),
        };
        let settings = Self {
            trip,
            reset_timeout_ms: form.reset_timeout_ms.unwrap_or(usual.reset_timeout_ms),
            success_threshold: form.success_threshold.unwrap_or(usual.success_threshold),
            probe_timeout_ms: form.probe_timeout_ms.unwrap_or(usual.probe_timeout_ms),
            metrics_only: form.metrics_only,
            max_retries: form.max_retries.unwrap_or(usual.max_retries),
            initial_backoff_ms: form.initial_backoff_ms.unwrap_or(usual.initial_backoff_ms),
        };
        settings.checked()
    }
}

impl From<Settings> for Form {
    fn from(settings: Settings) -> Self {
        let mut form = Self {
            reset_timeout_ms: Some(settings.reset_timeout_ms),
            success_threshold: Some(settings.success_threshold),
            probe_timeout_ms: Some(settings.probe_timeout_ms),
            metrics_only: settings.metrics_only,
            max_retries: Some(settings.max_retries),
            initial_backoff_ms: Some(settings.initial_backoff_ms),
            ..Self::default()
        };
        match settings.trip {
            Trip::Consecutive { failure_threshold } => form.failure_threshold = Some(failure_threshold),
            Trip::Rate(rate) => {
                match rate.span {
                    Span::Calls(calls) => form.window_calls = Some(calls),
                    Span::Time(ms) => form.window_ms = Some(ms),
                }
                form.minimum_calls = Some(rate.minimum_calls);
                form.failure_percent = rate.failure_percent;
                form.slow_after_ms = rate.slow.map(|slow| slow.after_ms);
                form.slow_percent = rate.slow.map(|slow| slow.percent);
            }
        }
        form
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn b_114_what_is_left_out_has_its_default() {
        let settings = read("{}").unwrap();
        assert_eq!(settings, Settings::default());
        assert_eq!(settings, Settings::consecutive(5, 30_000, 1).unwrap());
    }

    #[test]
    fn b_134_well_known_services_have_settings() {
        let preset = |name| {
            let settings = Settings::preset(name).unwrap().checked().unwrap();
            let Trip::Consecutive { failure_threshold } = settings.trip else { panic!("a count") };
            (failure_threshold, settings.reset_timeout_ms, settings.success_threshold)
        };
        assert_eq!(preset("stripe-api"), (3, 60_000, 1));
        assert_eq!(preset("sendgrid"), (10, 30_000, 1));
        assert_eq!(preset("webhook-delivery"), (5, 15_000, 2));
        assert_eq!(Settings::preset("unheard-of"), None);
    }

    #[test]
    fn what_is_written_reads_back() {
        let rate = Rate {
            span: Span::Time(10_000),
            minimum_calls: 20,
            failure_percent: None,
            slow: Some(Slow { after_ms: 500, percent: 80.0 }),
        };
        let all = [
            Settings::default(),
            Settings { metrics_only: true, ..Settings::preset("stripe-api").unwrap() },
            Settings::rate(Rate::default()).unwrap(),
            Settings::rate(rate).unwrap(),
        ];
        for settings in all {
            assert_eq!(read(&serde_json::to_string(&settings).unwrap()), Ok(settings));
        }
        assert_eq!(
            read(r#"{"windowCalls":4}"#).unwrap().trip,
            Trip::Rate(Rate { span: Span::Calls(4), minimum_calls: 4, ..Rate::default() })
        );
    }

    #[test]
    fn refuses_what_makes_no_sense_and_says_which() {
        for (text, reason) in [
            (r#"{"failureThreshold":0}"#, "failureThreshold must be 1 to 10000"),
            (r#"{"resetTimeoutMs":0}"#, "resetTimeoutMs must be 1 to 604800000"),
            (r#"{"successThreshold":0}"#, "successThreshold must be 1 to 10000"),
            (r#"{"probeTimeoutMs":0}"#, "probeTimeoutMs must be 1 to 86400000"),
            (r#"{"initialBackoffMs":0}"#, "initialBackoffMs must be 1 to 86400000"),
            (r#"{"windowMs":99}"#, "windowMs must be 100 to 3600000"),
            (r#"{"windowCalls":10001}"#, "windowCalls must be 1 to 10000"),
            (r#"{"windowCalls":5,"minimumCalls":6}"#, "minimumCalls must be 1 to 5"),
            (r#"{"windowCalls":5,"failurePercent":0}"#, "failurePercent must be more than 0 and at most 100"),
            (
                r#"{"windowCalls":5,"failurePercent":101}"#,
                "failurePercent must be more than 0 and at most 100",
            ),
            (r#"{"windowCalls":5,"slowAfterMs":5}"#, "slowAfterMs and slowPercent go together"),
            (r#"{"windowCalls":5,"windowMs":500}"#, "windowCalls and windowMs exclude each other"),
            (r#"{"windowCalls":5,"failureThreshold":5}"#, "failureThreshold and a window exclude each other"),
            (r#"{"failurePercent":5}"#, "minimumCalls, failurePercent, slowAfterMs and slowPercent need"),
            (r#"{"failuresThreshold":5}"#, "unknown field `failuresThreshold`"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.starts_with(reason), "{text}: {refused}");
        }
    }
}
