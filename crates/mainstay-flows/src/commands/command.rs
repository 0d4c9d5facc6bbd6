//! A command, as it is given and as it is issued.

use super::retry::ConflictRetry;
use super::variant::Written;
use super::{MAX_ID_BYTES, MAX_NAME_BYTES, MAX_VALUE_BYTES};
use crate::error::{Error, Result};
use mainstay_core::ids::{Ids, Kind};
use mainstay_core::json::{self, Bounds};
use mainstay_core::keys::has_control;
use mainstay_core::random::Random;
use mainstay_core::trace::TraceContext;
use mainstay_events::{ScopeClaim, ScopeKey};
use mainstay_store::{Cause, Inherited};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// What somebody wants to happen. Only the type and the payload must be given.
#[derive(Debug, Clone)]
pub struct Command {
    /// What is wanted.
    pub command_type: String,
    /// What there is to know about it.
    pub payload: Box<RawValue>,
    /// What makes it recognisable when it is sent again; one is made when there is none.
    pub command_id: Option<String>,
    /// What it belongs together with; one is made when there is none.
    pub correlation_id: Option<String>,
    /// The command or event that caused it.
    pub causation_id: Option<String>,
    /// Who wants it.
    pub user_id: Option<String>,
    /// What that user may be.
    pub roles: Vec<String>,
    /// Whose events it may read and append.
    pub tenant_id: Option<String>,
    /// Where it stands in a trace; one is begun when there is none.
    pub trace: Option<TraceContext>,
    /// The scope that it is decided in, and the version that the decision rests on.
    pub scope: Option<ScopeClaim>,
    /// What becomes of it when somebody else decides first.
    pub retry: Option<ConflictRetry>,
}

impl Command {
    /// A command of this type.
    pub fn new(command_type: impl Into<String>, payload: &(impl Serialize + ?Sized)) -> Result<Self> {
        let payload = to_raw_value(payload).map_err(|error| Error::invalid("payload", error.to_string()))?;
        Ok(Self::raw(command_type, payload))
    }

    /// A variant of an enum of commands, such as a [decider](super::Decider) takes: its name is the type, what it holds the
    /// payload.
    ///
    /// ```
    /// #[derive(serde::Serialize)]
    /// enum OrderCommand {
    ///     CancelOrder { order: u32 },
    /// }
    ///
    /// let command = mainstay_flows::commands::Command::of(&OrderCommand::CancelOrder { order: 7 })?;
    /// assert_eq!((&*command.command_type, command.payload.get()), ("CancelOrder", r#"{"order":7}"#));
    /// assert_eq!(mainstay_flows::commands::Command::of(&7).unwrap_err().code(), "FLOW_INVALID");
    /// # Ok::<_, mainstay_flows::Error>(())
    /// ```
    pub fn of(command: &impl Serialize) -> Result<Self> {
        let json = serde_json::to_string(command);
        let json = json.map_err(|error| Error::invalid("command", error.to_string()))?;
        let plain =
            "must be a variant of an enum that derives Serialize, without serde's tag, content or untagged";
        let Written { name, data } =
            serde_json::from_str(&json).map_err(|_| Error::invalid("command", plain))?;
        Ok(Self::raw(name, data))
    }

    /// A command whose payload is JSON already.
    pub fn raw(command_type: impl Into<String>, payload: Box<RawValue>) -> Self {
        Self {
            command_type: command_type.into(),
            payload,
            command_id: None,
            correlation_id: None,
            causation_id: None,
            user_id: None,
            roles: Vec::new(),
            tenant_id: None,
            trace: None,
            scope: None,
            retry: None,
        }
    }

    /// A second command of the same id is answered with what came of the first.
    pub fn id(self, id: impl Into<String>) -> Self {
        Self { command_id: Some(id.into()), ..self }
    }

    /// What it belongs together with.
    pub fn correlation(self, id: impl Into<String>) -> Self {
        Self { correlation_id: Some(id.into()), ..self }
    }

    /// The command or event that caused it.
    pub fn causation(self, id: impl Into<String>) -> Self {
        Self { causation_id: Some(id.into()), ..self }
    }

    /// Who wants it.
    pub fn user(self, id: impl Into<String>) -> Self {
        Self { user_id: Some(id.into()), ..self }
    }

    /// What that user may be.
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.roles.push(role.into());
        self
    }

    /// Whose events it may read and append.
    pub fn tenant(self, id: impl Into<String>) -> Self {
        Self { tenant_id: Some(id.into()), ..self }
    }

    /// Where it stands in a trace.
    pub fn trace(self, trace: TraceContext) -> Self {
        Self { trace: Some(trace), ..self }
    }

    /// It is decided in a scope that must have this version; its events move the scope on.
    pub fn within(self, scope: impl ToString, expected_version: u64) -> Self {
        Self { scope: Some(ScopeClaim { key: scope.to_string(), expected_version }), ..self }
    }

    /// When somebody else decides first, it is decided again later, durably.
    pub fn retrying(self, retry: ConflictRetry) -> Self {
        Self { retry: Some(retry), ..self }
    }

    /// Takes from `cause` what the command does not say: correlation, causation, tenant and trace.
    pub fn caused_by(mut self, cause: &Cause) -> Self {
        cause.fill(Inherited {
            correlation_id: &mut self.correlation_id,
            causation_id: &mut self.causation_id,
            tenant_id: &mut self.tenant_id,
            trace: &mut self.trace,
        });
        self
    }

    /// Checks it, and gives it the ids that it lacks.
    pub(super) fn issue(self, ids: &Ids, random: &dyn Random) -> Result<Issued> {
        name("commandType", &self.command_type)?;
        check_value("payload", &self.payload)?;
        let given = [
            ("commandId", &self.command_id),
            ("correlationId", &self.correlation_id),
            ("causationId", &self.causation_id),
            ("userId", &self.user_id),
            ("tenantId", &self.tenant_id),
        ];
        for (field, id) in given {
            id.as_deref().map_or(Ok(()), |id| plain(field, id, MAX_ID_BYTES))?;
        }
        if let Some(scope) = &self.scope {
            let key = scope.key.parse::<ScopeKey>();
            let key = key.map_err(|error| Error::invalid("scope.key", error.to_string()))?;
            if self.tenant_id.as_ref().is_some_and(|tenant| *tenant != key.tenant_id) {
                return Err(mainstay_events::Error::Tenant { field: "scope.key".to_owned() }.into());
            }
        }
        if let Some(trace) = &self.trace {
            trace.validate().map_err(|error| Error::invalid("trace", error.to_string()))?;
        }
        let make = |kind| ids.make(kind).to_string();
        Ok(Issued {
            command_type: self.command_type,
            payload: self.payload,
            command_id: self.command_id.unwrap_or_else(|| make(Kind::Command)),
            correlation_id: self.correlation_id.unwrap_or_else(|| make(Kind::Correlation)),
            causation_id: self.causation_id,
            user_id: self.user_id,
            roles: self.roles,
            tenant_id: self.tenant_id,
            // What is caused by the caller's step is a step of its own.
            trace: self.trace.map_or_else(|| TraceContext::root(random), |trace| trace.child(random)),
            scope: self.scope,
            retry: self.retry,
            attempt: 0,
        })
    }
}

/// A command with all its ids. This is also how it is kept, beside what has a column of its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Issued {
    /// What is wanted.
    #[serde(default, skip_serializing)]
    pub command_type: String,
    /// What there is to know about it.
    pub payload: Box<RawValue>,
    /// What makes it recognisable when it is sent again.
    #[serde(default, skip_serializing)]
    pub command_id: String,
    /// What it belongs together with.
    #[serde(default, skip_serializing)]
    pub correlation_id: String,
    /// The command or event that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// Who wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// What that user may be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// Whose events it may read and append.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Where it stands in its trace.
    pub trace: TraceContext,
    /// The scope that it is decided in, and the version that the decision rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeClaim>,
    /// What becomes of it when somebody else decides first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<ConflictRetry>,
    /// Which retry this is; 0 for the first try.
    #[serde(default, skip_serializing)]
    pub attempt: u32,
}

impl Issued {
    /// The cause of all records that this command's decision makes.
    pub(super) fn cause(&self) -> Cause {
        Cause {
            correlation_id: Some(self.correlation_id.clone()),
            causation_id: Some(self.command_id.clone()),
            tenant_id: self.tenant_id.clone(),
            trace: Some(self.trace.clone()),
        }
    }
}

pub(super) fn name(field: &str, name: &str) -> Result<()> {
    plain(field, name, MAX_NAME_BYTES)
}

/// Checks a value that is kept as it was given.
pub(super) fn check_value(field: &str, value: &RawValue) -> Result<()> {
    json::check(value.get().as_bytes(), Bounds::bytes(MAX_VALUE_BYTES)).map_err(|error| match error {
        json::Error::TooLarge { bytes, .. } => Error::TooLarge { field: field.to_owned(), bytes },
        error => Error::invalid(field, error.to_string()),
    })
}

fn plain(field: &str, text: &str, most: usize) -> Result<()> {
    if text.is_empty() || text.len() > most || has_control(text) {
        return Err(Error::invalid(field, format!("must have 1 to {most} bytes and no control characters")));
    }
    Ok(())
}
