//! What is known of a circuit here.
//!
//! A copy of what the database has, with what was heard here since: the machine is applied here first and in the database
//! soon after, and whatever the database answers replaces what was thought here.

use mainstay_core::circuit::window::{Outcome, Window};
use mainstay_core::circuit::{Answer, Event, Gate, Hook, Settings, Standing, State, Trip, next};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::record::Record;

/// Most reports that wait for the database. What is dropped beyond is the oldest, which a later one has outdated.
const MAX_PENDING: usize = 1_000;
/// More failures in a row than any threshold are no more.
const MAX_TIMES: u32 = 10_000;

/// What a call must do, in one byte that is read without a lock.
pub(super) mod word {
    /// Nothing at all.
    pub(in crate::circuits) const FREE: u8 = 0;
    /// Tell how it ended: failures have been counted.
    pub(in crate::circuits) const TOLD: u8 = 1;
    /// Tell how it ended and how long it took.
    pub(in crate::circuits) const TIMED: u8 = 2;
    /// Ask first.
    pub(in crate::circuits) const ASK: u8 = 3;
}

/// One circuit on this node.
pub(super) struct Core {
    pub(super) name: Arc<str>,
    /// Whether this program names it, and not a caller of the program.
    is_own: AtomicBool,
    word: AtomicU8,
    local: Mutex<Local>,
    hooks: Mutex<Vec<Hook>>,
}

/// The part behind the lock.
pub(super) struct Local {
    pub(super) settings: Settings,
    /// Whether this program says how it is set, and not the database.
    is_declared: bool,
    pub(super) standing: Standing,
    version: i64,
    /// Number of looks in a row at which the database had no row of it.
    misses: u8,
    window: Option<Window>,
    pending: VecDeque<Report>,
    /// What whoever wants to know was told last.
    shown: Option<(Gate, State)>,
    /// Whether a call asks for the probe at this moment.
    pub(super) is_claiming: bool,
}

/// What the database is to be told: an event, so many times over.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub(super) event: Event,
    pub(super) times: u32,
}

impl Report {
    /// The events one by one.
    pub(super) fn events(&self) -> impl Iterator<Item = Event> + '_ {
        (0..self.times.min(MAX_TIMES)).map(|_| self.event.clone())
    }
}

/// What has come of something that was heard.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Heard {
    /// Whether the database is to be told, and nobody was about to.
    pub(super) is_news: bool,
    /// Whether calls are treated differently from now on.
    pub(super) is_turned: bool,
}

impl Core {
    pub(super) fn new(name: Arc<str>) -> Self {
        let settings = Settings::preset(&name).unwrap_or_default();
        let local = Local {
            window: window(&settings),
            settings,
            is_declared: false,
            standing: Standing::default(),
            version: 0,
            misses: 0,
            pending: VecDeque::new(),
            shown: Some((Gate::Open, State::Closed)),
            is_claiming: false,
        };
        let word = AtomicU8::new(local.word(0));
        Self { name, is_own: AtomicBool::new(false), word, local: Mutex::new(local), hooks: Mutex::default() }
    }

    /// This program names it.
    pub(super) fn own(&self) {
        self.is_own.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }

    /// What a call must do.
    #[inline]
    pub(super) fn word(&self) -> u8 {
        self.word.load(Ordering::Acquire)
    }

    pub(super) fn local(&self) -> MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings that this program gave it.
    pub(super) fn declared(&self) -> Option<Settings> {
        let local = self.local();
        local.is_declared.then_some(local.settings)
    }

    /// The settings that a new row gets.
    pub(super) fn settings(&self) -> Settings {
        self.local().settings
    }

    pub(super) fn declare(&self, settings: Settings, now_ms: i64) {
        self.own();
        self.turn(now_ms, |local| {
            local.is_declared = true;
            local.set(settings);
        });
    }

    /// Takes what the database has, unless something newer is known.
    pub(super) fn adopt(&self, record: &Record, now_ms: i64) {
        self.turn(now_ms, |local| {
            if record.version < local.version {
                return;
            }
            local.version = record.version;
            if record.version > 0 {
                local.misses = 0;
            }
            local.standing = record.standing.clone();
            if !local.is_declared {
                local.set(record.settings);
            }
            local.catch_up(now_ms);
        });
    }

    /// The time went on.
    pub(super) fn look(&self, now_ms: i64) {
        self.turn(now_ms, |_| {});
    }

    /// The database had no row of it when it was looked at. A row may have been made since, so one that is known is believed
    /// to be deleted the second time only.
    pub(super) fn miss(&self, now_ms: i64) {
        let is_deleted = {
            let mut local = self.local();
            local.misses = local.misses.saturating_add(1);
            local.version > 0 && local.misses > 1 && local.pending.is_empty()
        };
        match is_deleted {
            true => self.forget(now_ms),
            false => self.adopt_nothing(now_ms),
        }
    }

    /// It was deleted: nothing was ever counted.
    pub(super) fn forget(&self, now_ms: i64) {
        self.turn(now_ms, |local| {
            let settings = match local.is_declared {
                true => local.settings,
                false => Settings::preset(&self.name).unwrap_or_default(),
            };
            (local.version, local.misses, local.standing) = (0, 0, Standing::default());
            local.pending.clear();
            local.set(settings);
        });
    }

    /// The database has no row of it.
    pub(super) fn adopt_nothing(&self, now_ms: i64) {
        self.adopt(&Record::unheard_of(&self.name, self.settings()), now_ms);
    }

    pub(super) fn gate(&self, now_ms: i64) -> Gate {
        self.local().gate(now_ms)
    }

    /// A call ended that was no probe.
    pub(super) fn hear(&self, outcome: Outcome, now_ms: i64, measured_ms: i64) -> Heard {
        let mut is_news = false;
        let is_turned = self.turn(now_ms, |local| {
            if let Some(event) = local.hear(outcome, now_ms, measured_ms) {
                is_news = local.pending.is_empty();
                local.note(event);
            }
        });
        Heard { is_news, is_turned }
    }

    /// The database is to be told of an event that is not judged here. True when nobody was about to.
    pub(super) fn note(&self, event: Event) -> bool {
        let mut local = self.local();
        let is_news = local.pending.is_empty();
        local.note(event);
        is_news
    }

    /// Takes what the database is to be told.
    pub(super) fn take_pending(&self) -> Vec<Report> {
        self.local().pending.drain(..).collect()
    }

    /// The database could not be told.
    pub(super) fn put_back(&self, reports: Vec<Report>) {
        let mut local = self.local();
        for report in reports.into_iter().rev() {
            local.pending.push_front(report);
        }
        local.shed();
    }

    pub(super) fn on_change(&self, hook: Hook) {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner).push(hook);
    }

    /// Changes what is known, and tells whoever wants to know when that makes a difference to calls.
    fn turn(&self, now_ms: i64, change: impl FnOnce(&mut Local)) -> bool {
        let is_turned = {
            let mut local = self.local();
            change(&mut local);
            let word = local.word(now_ms);
            self.word.store(word, Ordering::Release);
            let shows = Some((local.gate(now_ms), local.standing.state));
            std::mem::replace(&mut local.shown, shows) != shows
        };
        if is_turned {
            let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
            hooks.retain(|hook| hook());
        }
        is_turned
    }
}

impl Local {
    /// Whether the database has a row of it, or is about to have one.
    pub(super) fn has_counted(&self) -> bool {
        self.version > 0 || self.standing != Standing::default()
    }

    fn set(&mut self, settings: Settings) {
        if self.settings.trip != settings.trip {
            self.window = window(&settings);
        }
        self.settings = settings;
    }

    pub(super) fn answer(&self, now_ms: i64) -> Answer {
        self.standing.answer(&self.settings, now_ms)
    }

    fn gate(&self, now_ms: i64) -> Gate {
        match self.answer(now_ms) {
            Answer::Admit => Gate::Open,
            Answer::Probe => Gate::OneProbe,
            Answer::Refuse { .. } => Gate::Shut,
        }
    }

    fn word(&self, now_ms: i64) -> u8 {
        if self.answer(now_ms) != Answer::Admit {
            return word::ASK;
        }
        let standing = &self.standing;
        match (&self.window, standing.state) {
            _ if standing.forced.is_some() => word::FREE,
            (Some(_), State::Closed) => word::TIMED,
            (None, State::Closed) if standing.failure_count == 0 => word::FREE,
            _ => word::TOLD,
        }
    }

    /// What a call that ended means, if it changes anything.
    fn hear(&mut self, outcome: Outcome, now_ms: i64, measured_ms: i64) -> Option<Event> {
        let event = match &mut self.window {
            Some(window) if self.standing.state == State::Closed && self.standing.forced.is_none() => {
                if !window.record(outcome, measured_ms) {
                    return None;
                }
                Event::Tripped
            }
            _ if outcome.is_failure => Event::Failure,
            _ => Event::Success,
        };
        let after = next(&self.standing, event.clone(), &self.settings, now_ms).standing;
        if after == self.standing {
            return None;
        }
        self.stand(after);
        Some(event)
    }

    fn stand(&mut self, standing: Standing) {
        self.standing = standing;
        if self.standing.state != State::Closed
            && let Some(window) = &mut self.window
        {
            window.clear();
        }
    }

    /// Applies what the database has not been told. What a probe said is not believed before it is committed.
    fn catch_up(&mut self, now_ms: i64) {
        let mut standing = self.standing.clone();
        let calls =
            |report: &&Report| matches!(report.event, Event::Success | Event::Failure | Event::Tripped);
        for event in self.pending.iter().filter(calls).flat_map(Report::events) {
            standing = next(&standing, event, &self.settings, now_ms).standing;
        }
        self.stand(standing);
    }

    fn note(&mut self, event: Event) {
        match self.pending.back_mut() {
            Some(last) if last.event == event => last.times = last.times.saturating_add(1),
            _ => self.pending.push_back(Report { event, times: 1 }),
        }
        self.shed();
    }

    fn shed(&mut self) {
        while self.pending.len() > MAX_PENDING {
            self.pending.pop_front();
        }
    }
}

fn window(settings: &Settings) -> Option<Window> {
    match settings.trip {
        Trip::Rate(rate) => Some(Window::new(rate)),
        Trip::Consecutive { .. } => None,
    }
}
