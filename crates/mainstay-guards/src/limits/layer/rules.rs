//! All limits of a layer, and what they say to a request.

use super::refusal::Refusal;
use super::rule::{Asks, Rule};
use crate::error::{CALLER_UNKNOWN, LIMITER_UNAVAILABLE};
use crate::http::Head;
use crate::limits::Answer;
use crate::limits::store::{Limits, Wanted};
use crate::{Error, Result};
use mainstay_core::limits::{Decision, Verb};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most rules of a layer.
pub const MAX_RULES: usize = 16;

/// How long a limiter may take before it counts as away.
const PATIENCE: Duration = Duration::from_secs(1);
/// When to try again when a limiter is away.
const AWAY_RETRY_MS: u64 = 1_000;

/// What happens to requests when a limiter does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenAway {
    /// They are answered with 503 and `LIMITER_UNAVAILABLE`.
    #[default]
    Refuse,
    /// They are let through by this limiter. The others count.
    LetThrough,
}

/// All limits of a layer.
#[derive(Clone)]
pub(super) struct Rules {
    /// Those that are asked together stand side by side.
    rules: Vec<Rule>,
    pub(super) when_away: WhenAway,
    pub(super) patience: Duration,
    /// So that a limiter's going away and coming back are told once each.
    is_away: Arc<AtomicBool>,
}

/// What a request asks: of which rules, and how much. The keys are in one text.
pub(super) struct Wants {
    keys: String,
    wants: Vec<Want>,
}

struct Want {
    rule: usize,
    key_ends: usize,
    cost: u64,
}

/// How a rule's budget stands.
pub(super) struct Standing {
    pub(super) rule: usize,
    pub(super) decision: Decision,
}

/// What was answered at once.
pub(super) struct Begun {
    /// Those that gave.
    pub(super) standings: Vec<Standing>,
    /// What the one behind them said, if it did not give.
    last: Option<Result<Decision>>,
}

impl Begun {
    /// Whether all gave.
    pub(super) fn is_done(&self, wants: &Wants) -> bool {
        self.standings.len() == wants.wants.len()
    }
}

/// What the rules say to a request.
pub(super) enum Verdict {
    /// All gave, or are away.
    Through(Vec<Standing>),
    /// Some deny.
    Denied(Vec<Standing>),
    /// It could not be decided.
    Refused(Refusal),
}

impl Rules {
    pub(super) fn new() -> Self {
        let (rules, when_away) = (Vec::new(), WhenAway::default());
        Self { rules, when_away, patience: PATIENCE, is_away: Arc::default() }
    }

    pub(super) fn add(&mut self, rule: Rule) -> Result<()> {
        if self.rules.len() == MAX_RULES {
            return Err(Error::invalid("rules", format!("are at most {MAX_RULES}")));
        }
        if self.rules.iter().any(|other| other.name == rule.name) {
            return Err(Error::invalid("name", format!("there is a rule {:?} already", rule.name)));
        }
        let beside = self.rules.iter().rposition(|other| other.is_beside(&rule));
        self.rules.insert(beside.map_or(self.rules.len(), |place| place + 1), rule);
        Ok(())
    }

    pub(super) fn get(&self, index: usize) -> &Rule {
        &self.rules[index]
    }

    /// What a request asks.
    pub(super) fn wants(&self, head: Head<'_>) -> std::result::Result<Wants, Refusal> {
        let mut wants =
            Wants { keys: String::with_capacity(64), wants: Vec::with_capacity(self.rules.len()) };
        for (rule, asked) in self.rules.iter().enumerate() {
            let begins = wants.keys.len();
            match asked.asks(head, &mut wants.keys) {
                Asks::For(cost) => {
                    wants.wants.push(Want { rule, key_ends: wants.keys.len(), cost });
                }
                Asks::Nothing => wants.keys.truncate(begins),
                Asks::Nobody => return Err(Refusal::new(&CALLER_UNKNOWN, CALLER_UNKNOWN.meaning)),
            }
        }
        Ok(wants)
    }

    /// Asks limiters one after another, for as long as they answer at once and allow.
    pub(super) fn begin(&self, wants: &Wants) -> Begun {
        let mut begun = Begun { standings: Vec::with_capacity(wants.wants.len()), last: None };
        for (index, want) in wants.wants.iter().enumerate() {
            let rule = self.get(want.rule);
            if rule.limits.is_some() {
                break;
            }
            match rule.limiter.consume(wants.key(index), want.cost).ready() {
                Ok(Ok(decision)) if decision.allowed => {
                    begun.standings.push(Standing { rule: want.rule, decision });
                }
                Ok(other) => {
                    begun.last = Some(other);
                    break;
                }
                Err(_later) => break,
            }
        }
        begun
    }

    /// Goes on where it was begun: takes from all limits or from none.
    pub(super) async fn decide(self: Arc<Self>, wants: Wants, begun: Begun) -> Verdict {
        let Begun { mut standings, mut last } = begun;
        let mut next = standings.len();
        while next < wants.wants.len() {
            let (begins, ends) = (next, self.group_end(&wants, next));
            next = ends;
            let taken = standings.len();
            let asked = match last.take() {
                Some(answer) => answer.map(|decision| {
                    standings.push(Standing { rule: wants.wants[begins].rule, decision });
                }),
                None => self.take(&wants, begins..ends, &mut standings).await,
            };
            let error = match asked {
                Ok(()) if standings[taken..].iter().all(|standing| standing.decision.allowed) => continue,
                Ok(()) => {
                    self.give_back(&wants, &mut standings[..taken]).await;
                    self.look(&wants, ends, &mut standings).await;
                    return Verdict::Denied(standings);
                }
                Err(error) => error,
            };
            let refusal = match error {
                Error::Invalid { .. } | Error::BadCost => Refusal::new(error.entry(), error.to_string()),
                error => {
                    if !self.is_away.swap(true, Ordering::Relaxed) {
                        tracing::warn!(%error, when_away = ?self.when_away, "a rate limiter is away");
                    }
                    if self.when_away == WhenAway::LetThrough {
                        continue;
                    }
                    Refusal::new(&LIMITER_UNAVAILABLE, LIMITER_UNAVAILABLE.meaning).retry_after(AWAY_RETRY_MS)
                }
            };
            self.give_back(&wants, &mut standings[..taken]).await;
            return Verdict::Refused(refusal);
        }
        Verdict::Through(standings)
    }

    /// Where those end that are asked together.
    fn group_end(&self, wants: &Wants, begins: usize) -> usize {
        let first = self.get(wants.wants[begins].rule);
        let others = wants.wants[begins + 1..].iter();
        begins + 1 + others.take_while(|want| first.is_beside(self.get(want.rule))).count()
    }

    /// Asks one limiter, or several of one store.
    async fn take(
        &self,
        wants: &Wants,
        group: std::ops::Range<usize>,
        standings: &mut Vec<Standing>,
    ) -> Result<()> {
        let first = wants.wants[group.start].rule;
        if let (Some(limits), true) = (&self.get(first).limits, group.len() > 1) {
            let wanted = group.clone().map(|index| Wanted {
                name: self.get(wants.wants[index].rule).name.to_string(),
                key: wants.key(index).to_owned(),
                cost: wants.wants[index].cost,
            });
            let wanted: Vec<Wanted> = wanted.collect();
            let decisions = self.in_time(consume_many(limits, &wanted)).await?;
            let rules = group.map(|index| wants.wants[index].rule);
            standings.extend(rules.zip(decisions).map(|(rule, decision)| Standing { rule, decision }));
        } else {
            let decision = self.act(wants, group.start, Verb::Consume(wants.wants[group.start].cost)).await?;
            standings.push(Standing { rule: first, decision });
        }
        if self.is_away.load(Ordering::Relaxed) {
            self.is_away.store(false, Ordering::Relaxed);
            tracing::info!("a rate limiter answers again");
        }
        Ok(())
    }

    async fn act(&self, wants: &Wants, index: usize, verb: Verb) -> Result<Decision> {
        let rule = self.get(wants.wants[index].rule);
        self.in_time(rule.limiter.act(wants.key(index), verb)).await
    }

    async fn in_time<T: Unpin>(&self, answer: Answer<'_, T>) -> Result<T> {
        match answer.ready() {
            Ok(result) => result,
            Err(later) => match tokio::time::timeout(self.patience, later).await {
                Ok(result) => result,
                Err(_) => Err(Error::LimiterAway(format!("no answer within {:?}", self.patience).into())),
            },
        }
    }

    /// Gives back what was taken before somebody denied.
    async fn give_back(&self, wants: &Wants, taken: &mut [Standing]) {
        for standing in taken {
            let Some(index) = wants.wants.iter().position(|want| want.rule == standing.rule) else {
                continue;
            };
            let cost = wants.wants[index].cost;
            match self.act(wants, index, Verb::Refund(cost)).await {
                Ok(decision) => standing.decision = Decision::allowed(decision.remaining),
                Err(error) => tracing::warn!(%error, "what a refused request took was not given back"),
            }
        }
    }

    /// Whether those that were not asked would deny too: whoever comes back should not be denied again.
    async fn look(&self, wants: &Wants, from: usize, standings: &mut Vec<Standing>) {
        for index in from..wants.wants.len() {
            let Want { rule, cost, .. } = wants.wants[index];
            if let Ok(decision) = self.act(wants, index, Verb::Peek(cost)).await {
                standings.push(Standing { rule, decision });
            }
        }
    }
}

impl Wants {
    fn key(&self, index: usize) -> &str {
        let begins = index.checked_sub(1).map_or(0, |before| self.wants[before].key_ends);
        &self.keys[begins..self.wants[index].key_ends]
    }
}

fn consume_many<'a>(limits: &'a Limits, wanted: &'a [Wanted]) -> Answer<'a, Vec<Decision>> {
    Answer::later(limits.consume_many(wanted))
}
