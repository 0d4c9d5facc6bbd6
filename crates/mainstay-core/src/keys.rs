//! Keys that callers give: idempotency keys, and keys of scopes.

use std::fmt;
use std::str::FromStr;

/// Longest key.
pub const MAX_KEY_BYTES: usize = 512;

/// Whether a text has control characters, and so cannot be shown as it is. Bytes first, all of them: without a way out they
/// are looked at many at a time, and control characters beyond ASCII are behind a byte that makes one look again.
pub fn has_control(text: &str) -> bool {
    let is_plain = text.bytes().fold(true, |is_plain, byte| is_plain & (0x20..0x7f).contains(&byte));
    !is_plain && text.contains(char::is_control)
}

/// What makes the same append recognisable when it is sent twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

/// Why a key was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// An idempotency key, or a part of one, is empty, too long, or has control characters.
    #[error("an idempotency key has 1 to {MAX_KEY_BYTES} bytes, no empty parts and no control characters")]
    BadIdempotencyKey,
    /// A scope key is empty.
    #[error("SCOPE_KEY_EMPTY: a scope key cannot be empty")]
    ScopeKeyEmpty,
    /// A scope key has another form.
    #[error("INVALID_SCOPE_KEY_FORMAT: a scope key looks like tenant:<tenant>:<type>:<id>")]
    InvalidScopeKeyFormat,
}

impl IdempotencyKey {
    /// Takes a key as it is.
    pub fn raw(key: &str) -> Result<Self, KeyError> {
        Self::of(&[key])
    }

    /// The key of a command's event: `SubmitOrder:ord-123:cmd-456`.
    pub fn command(command_type: &str, entity_id: &str, command_id: &str) -> Result<Self, KeyError> {
        Self::of(&[command_type, entity_id, command_id])
    }

    /// The key of an action's outcome: `payment:ord-123`.
    pub fn action(action_type: &str, entity_id: &str) -> Result<Self, KeyError> {
        Self::of(&[action_type, entity_id])
    }

    /// The key of a saga's step: `OrderFulfillment:saga-789:reserveStock`.
    pub fn saga_step(saga_type: &str, saga_id: &str, step: &str) -> Result<Self, KeyError> {
        Self::of(&[saga_type, saga_id, step])
    }

    /// The key of a scheduled job's run: `expireReservations:job-001:1704067200`.
    pub fn scheduled_job(job_type: &str, schedule_id: &str, timestamp: i64) -> Result<Self, KeyError> {
        Self::of(&[job_type, schedule_id, &timestamp.to_string()])
    }

    fn of(parts: &[&str]) -> Result<Self, KeyError> {
        let key = parts.join(":");
        let fits = key.len() <= MAX_KEY_BYTES && !has_control(&key);
        if fits && parts.iter().all(|part| !part.is_empty()) {
            Ok(Self(key))
        } else {
            Err(KeyError::BadIdempotencyKey)
        }
    }

    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The name of a versioned scope: `tenant:{tenantId}:{scopeType}:{scopeId}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScopeKey {
    /// Whose scope it is.
    pub tenant_id: String,
    /// What kind of scope it is.
    pub scope_type: String,
    /// Which one it is; it alone may contain colons.
    pub scope_id: String,
}

impl ScopeKey {
    /// Makes a key of its parts.
    pub fn new(tenant_id: &str, scope_type: &str, scope_id: &str) -> Result<Self, KeyError> {
        format!("tenant:{tenant_id}:{scope_type}:{scope_id}").parse().and_then(|key: Self| {
            // A colon in the tenant or the type would have moved the parts.
            let is_same = key.tenant_id == tenant_id && key.scope_type == scope_type;
            if is_same { Ok(key) } else { Err(KeyError::InvalidScopeKeyFormat) }
        })
    }
}

impl FromStr for ScopeKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if text.trim().is_empty() {
            return Err(KeyError::ScopeKeyEmpty);
        }
        let parts: Vec<&str> = text.splitn(4, ':').collect();
        let ["tenant", tenant_id, scope_type, scope_id] = parts[..] else {
            return Err(KeyError::InvalidScopeKeyFormat);
        };
        let is_whole = [tenant_id, scope_type, scope_id].iter().all(|part| !part.is_empty());
        if !is_whole || text.len() > MAX_KEY_BYTES || has_control(text) {
            return Err(KeyError::InvalidScopeKeyFormat);
        }
        let [tenant_id, scope_type, scope_id] = [tenant_id, scope_type, scope_id].map(str::to_owned);
        Ok(Self { tenant_id, scope_type, scope_id })
    }
}

impl fmt::Display for ScopeKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "tenant:{}:{}:{}", self.tenant_id, self.scope_type, self.scope_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn control_characters_are_found_wherever_they_are(text in "(\\PC|[\u{0}-\u{9f}é€]){0,40}") {
            prop_assert_eq!(has_control(&text), text.contains(char::is_control));
        }
    }

    #[test]
    fn b_145_b_146_keys_have_the_form_of_their_kind() {
        let text = |key: Result<IdempotencyKey, KeyError>| key.unwrap().to_string();
        assert_eq!(
            text(IdempotencyKey::command("SubmitOrder", "ord-123", "cmd-456")),
            "SubmitOrder:ord-123:cmd-456"
        );
        assert_eq!(text(IdempotencyKey::action("payment", "ord-123")), "payment:ord-123");
        assert_eq!(
            text(IdempotencyKey::saga_step("OrderFulfillment", "saga-789", "reserveStock")),
            "OrderFulfillment:saga-789:reserveStock"
        );
        assert_eq!(
            text(IdempotencyKey::scheduled_job("expireReservations", "job-001", 1_704_067_200)),
            "expireReservations:job-001:1704067200"
        );
        assert_eq!(text(IdempotencyKey::raw("whatever:I want")), "whatever:I want");
    }

    #[test]
    fn b_145_a_key_with_a_hole_or_without_bounds_is_refused() {
        assert_eq!(IdempotencyKey::action("payment", ""), Err(KeyError::BadIdempotencyKey));
        for bad in ["", "a\nb", &"x".repeat(513)] {
            assert_eq!(IdempotencyKey::raw(bad), Err(KeyError::BadIdempotencyKey));
        }
    }

    #[test]
    fn b_059_scope_keys_have_one_form() {
        let key = ScopeKey::new("acme", "course", "c1:autumn").unwrap();
        assert_eq!(key.to_string(), "tenant:acme:course:c1:autumn");
        assert_eq!(key.to_string().parse(), Ok(key));
        for empty in ["", "  "] {
            assert_eq!(empty.parse::<ScopeKey>(), Err(KeyError::ScopeKeyEmpty));
        }
        for bad in ["tenant:a:b", "tenant:a::c", "tenant::b:c", "tenant:a:b:", "course:a:b:c", "x"] {
            assert_eq!(bad.parse::<ScopeKey>(), Err(KeyError::InvalidScopeKeyFormat), "{bad}");
        }
        for (tenant, kind) in [("a:b", "course"), ("a", "course:x"), ("", "course")] {
            assert_eq!(
                ScopeKey::new(tenant, kind, "c1"),
                Err(KeyError::InvalidScopeKeyFormat),
                "{tenant} {kind}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_scope_key_panic_and_what_is_read_is_written_back(text in "\\PC{0,40}|tenant:[a-c:]{0,12}") {
            if let Ok(key) = text.parse::<ScopeKey>() {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }
}
