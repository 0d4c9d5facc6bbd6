//! The steps that come with Mainstay.

use super::command::Issued;
use super::outcome::Outcome;
use super::pipeline::{Flow, Middleware, Step, order};
use mainstay_guards::limits::{RateLimitChecker, keys};
use serde_json::json;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

type Judge = dyn Fn(&Issued) -> Result<(), String> + Send + Sync;
type Choose = dyn Fn(&Issued) -> RateLimitChecker + Send + Sync;
type Ask = dyn Fn(Issued) -> Step<'static, Result<(), String>> + Send + Sync;

/// Whether a command has the right shape (10). Payloads that do not fit their handler's type are refused without it.
pub struct Structure(Arc<Judge>);

impl Structure {
    /// A check that says what is wrong.
    pub fn new(check: impl Fn(&Issued) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }
}

impl Middleware for Structure {
    fn name(&self) -> &str {
        "structure"
    }

    fn order(&self) -> u16 {
        order::STRUCTURE
    }

    fn before<'a>(&'a self, issued: &'a Issued) -> Step<'a, Flow> {
        Box::pin(async { Ok(judged(self.0(issued), "VALIDATION_ERROR")) })
    }
}

/// Whether a command makes sense (20): a check that may ask elsewhere.
pub struct Domain(Arc<Ask>);

impl Domain {
    /// A check that says what is wrong. An outer error is one of the check itself.
    pub fn new<F, Fut>(check: F) -> Self
    where
        F: Fn(Issued) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Result<(), String>, String>> + Send + 'static,
    {
        Self(Arc::new(move |issued| Box::pin(check(issued))))
    }
}

impl Middleware for Domain {
    fn name(&self) -> &str {
        "domain"
    }

    fn order(&self) -> u16 {
        order::DOMAIN
    }

    fn before<'a>(&'a self, issued: &'a Issued) -> Step<'a, Flow> {
        Box::pin(async { Ok(judged(self.0(issued.clone()).await?, "DOMAIN_VALIDATION_ERROR")) })
    }
}

/// Whether the user may (30).
pub struct Authorisation(Arc<Judge>);

impl Authorisation {
    /// A check that says why not.
    pub fn new(check: impl Fn(&Issued) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    /// The user must have this role.
    pub fn role(role: impl Into<String>) -> Self {
        let role = role.into();
        Self::new(move |issued| match issued.roles.contains(&role) {
            true => Ok(()),
            false => Err(format!("needs the role {role}")),
        })
    }

    /// The user must be the one that `owner` reads from the command.
    pub fn owner(owner: impl Fn(&Issued) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::new(move |issued| match (owner(issued), &issued.user_id) {
            (Some(owner), Some(user)) if owner == *user => Ok(()),
            _ => Err("is somebody else's".to_owned()),
        })
    }

    /// All must agree.
    pub fn all_of(checks: impl IntoIterator<Item = Self>) -> Self {
        let checks: Vec<Self> = checks.into_iter().collect();
        Self::new(move |issued| checks.iter().try_for_each(|check| check.0(issued)))
    }

    /// One must agree.
    pub fn any_of(checks: impl IntoIterator<Item = Self>) -> Self {
        let checks: Vec<Self> = checks.into_iter().collect();
        Self::new(move |issued| {
            let mut reasons = Vec::new();
            for check in &checks {
                match check.0(issued) {
                    Ok(()) => return Ok(()),
                    Err(reason) => reasons.push(reason),
                }
            }
            Err(reasons.join(", and "))
        })
    }
}

impl Middleware for Authorisation {
    fn name(&self) -> &str {
        "authorisation"
    }

    fn order(&self) -> u16 {
        order::AUTHORISATION
    }

    fn before<'a>(&'a self, issued: &'a Issued) -> Step<'a, Flow> {
        Box::pin(async { Ok(judged(self.0(issued), "UNAUTHORIZED")) })
    }
}

/// Writes down who wants what, and what came of it (40).
pub struct Logging;

impl Middleware for Logging {
    fn name(&self) -> &str {
        "logging"
    }

    fn order(&self) -> u16 {
        order::LOGGING
    }

    fn before<'a>(&'a self, issued: &'a Issued) -> Step<'a, Flow> {
        Box::pin(async move {
            tracing::info!(
                command_id = issued.command_id,
                command_type = issued.command_type,
                correlation_id = issued.correlation_id,
                trace_id = issued.trace.trace_id,
                span_id = issued.trace.span_id,
                parent_span_id = issued.trace.parent_span_id,
                user_id = issued.user_id,
                "command issued"
            );
            Ok(Flow::Continue)
        })
    }

    fn after<'a>(&'a self, issued: &'a Issued, outcome: &'a Outcome) -> Step<'a, ()> {
        Box::pin(async move {
            let code = if let Outcome::Rejected { code, .. } = outcome { Some(code) } else { None };
            tracing::info!(
                command_id = issued.command_id,
                command_type = issued.command_type,
                correlation_id = issued.correlation_id,
                trace_id = issued.trace.trace_id,
                status = outcome.status(),
                code,
                "command ended"
            );
            Ok(())
        })
    }
}

/// Whether it is not too much (50).
pub struct RateLimit {
    checker: Arc<Choose>,
    key: Arc<dyn Fn(&Issued) -> String + Send + Sync>,
    skipped: BTreeSet<String>,
}

impl RateLimit {
    /// One token for each command, of the budget of its user and type.
    pub fn new(checker: RateLimitChecker) -> Self {
        Self::choosing(move |_| checker.clone())
    }

    /// As [`new`](Self::new), of a limit that is chosen for each command: by the plan of its user, or by its tenant.
    pub fn choosing(choose: impl Fn(&Issued) -> RateLimitChecker + Send + Sync + 'static) -> Self {
        Self { checker: Arc::new(choose), key: Arc::new(by_user_and_command), skipped: BTreeSet::new() }
    }

    /// Another budget.
    pub fn key(self, key: impl Fn(&Issued) -> String + Send + Sync + 'static) -> Self {
        Self { key: Arc::new(key), ..self }
    }

    /// These commands are never too much.
    pub fn skip_for(mut self, types: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.skipped.extend(types.into_iter().map(Into::into));
        self
    }
}

/// The budget of a user and a type of command: `user:alice:SubmitOrder`.
pub fn by_user_and_command(issued: &Issued) -> String {
    keys::user_and_command(issued.user_id.as_deref(), &issued.command_type)
}

impl Middleware for RateLimit {
    fn name(&self) -> &str {
        "rate limit"
    }

    fn order(&self) -> u16 {
        order::RATE_LIMIT
    }

    fn before<'a>(&'a self, issued: &'a Issued) -> Step<'a, Flow> {
        Box::pin(async {
            if self.skipped.contains(&issued.command_type) {
                return Ok(Flow::Continue);
            }
            let (checker, key) = ((self.checker)(issued), (self.key)(issued));
            let result = checker.check(&key).await.map_err(|error| error.to_string())?;
            if result.allowed {
                return Ok(Flow::Continue);
            }
            Ok(Flow::Stop(Outcome::Rejected {
                code: "RATE_LIMITED".into(),
                reason: "too many commands".into(),
                context: Some(json!({ "retryAfterMs": result.retry_after_ms })),
            }))
        })
    }
}

fn judged(judgement: Result<(), String>, code: &str) -> Flow {
    match judgement {
        Ok(()) => Flow::Continue,
        Err(reason) => Flow::reject(code, reason),
    }
}
