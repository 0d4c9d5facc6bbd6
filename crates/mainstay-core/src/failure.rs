//! Why a piece of work failed, in words that a retry policy understands.
//!
//! A failure crosses processes and is stored with the work it ended, so its class is a stable string and its text has
//! a bound. Whether trying again may help is a property of the class alone: nobody has to read the text.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest message of a failure. Enough for a sentence and the beginning of a stranger's reply, and little enough to
/// keep one with every dead letter.
pub const MAX_MESSAGE_BYTES: usize = 4 << 10;

/// How long a provider that throttles is left alone; it does not say itself (item 90).
const THROTTLED_MS: u64 = 60_000;

/// Writes the enum, its string codes and which of them may be tried again, as one table that cannot disagree.
macro_rules! classes {
    ($($(#[$meta:meta])* $name:ident $code:literal $retryable:literal;)*) => {
        /// What kind of failure it was. The codes are stable: they are stored and sent.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Class {
            $($(#[$meta])* #[serde(rename = $code)] $name,)*
        }

        impl Class {
            /// Every class, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The stable name: `networkTimeout`.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// Whether the same work may succeed later without anything being changed.
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$name => $retryable,)* }
            }
        }
    };
}

classes! {
    /// A service cannot answer now, and will again.
    TemporaryServiceUnavailable "temporaryServiceUnavailable" true;
    /// No answer came in time.
    NetworkTimeout "networkTimeout" true;
    /// We asked too often; the service may have said when to come back.
    RateLimitExceeded "rateLimitExceeded" true;
    /// A provider slows us down without saying for how long.
    ProviderThrottling "providerThrottling" true;
    /// A database was busy, lost its connection or asked to try again.
    TransientDatabaseError "transientDatabaseError" true;
    /// What was sent cannot be read.
    InvalidMessage "invalidMessage" false;
    /// We are not who we say we are.
    AuthenticationFailure "authenticationFailure" false;
    /// We may not do this.
    AuthorizationFailure "authorizationFailure" false;
    /// What was asked for breaks a rule.
    ValidationError "validationError" false;
    /// A service refuses for good.
    PermanentServiceError "permanentServiceError" false;

    /// Azure: Service Bus does not answer.
    ServiceBusUnavailable "serviceBusUnavailable" true;
    /// Azure: another receiver has the message now.
    MessageLockLost "messageLockLost" true;
    /// Azure: another receiver has the session now.
    SessionLockLost "sessionLockLost" true;
    /// Azure: the namespace or the queue is full.
    QuotaExceeded "quotaExceeded" true;
    /// Azure: the entity does not do this.
    InvalidOperation "invalidOperation" false;
    /// Azure: the credentials do not allow this.
    UnauthorizedAccess "unauthorizedAccess" false;

    /// AWS: SQS does not answer.
    SqsUnavailable "sqsUnavailable" true;
    /// AWS: the message went back to the queue before it was done.
    VisibilityTimeoutExpired "visibilityTimeoutExpired" true;
    /// AWS: the message is not with us.
    MessageNotInflight "messageNotInflight" true;
    /// AWS: too many requests.
    ThrottlingException "throttlingException" true;
    /// AWS: a parameter is wrong.
    InvalidParameterValue "invalidParameterValue" false;
    /// AWS: the credentials do not allow this.
    AccessDenied "accessDenied" false;
}

impl Class {
    /// Whether a failure of this class can carry the word of a service about when to come back: the two that an
    /// HTTP service answers with such a word, 429 and 503.
    const fn names_a_time(self) -> bool {
        matches!(self, Self::RateLimitExceeded | Self::TemporaryServiceUnavailable)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.code())
    }
}

/// A failure: its class, a text for people, and when to come back if the service said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase", from = "Received")]
#[error("{class}: {message}")]
pub struct Failure {
    class: Class,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

/// A failure as someone else wrote it, before its bounds are kept.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Received {
    class: Class,
    #[serde(default)]
    message: String,
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

impl Failure {
    /// A failure of a class. A message beyond [`MAX_MESSAGE_BYTES`] is cut, between two characters, and a NUL in it, which
    /// databases do not take, is shown as `\u{fffd}`: that something failed must be writable whatever it failed with.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.contains('\0') {
            message = message.replace('\0', "\u{fffd}");
        }
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        Self { class, message, retry_after_ms: None }
    }

    /// A failure that may not happen again: [`Class::TemporaryServiceUnavailable`].
    pub fn retryable(message: impl Into<String>) -> Self {
        Self::new(Class::TemporaryServiceUnavailable, message)
    }

    /// A failure that will happen again: [`Class::PermanentServiceError`].
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(Class::PermanentServiceError, message)
    }

    /// The same failure with the service's word about when to come back.
    ///
    /// Only [`Class::RateLimitExceeded`] and [`Class::TemporaryServiceUnavailable`] carry one; for others it has no
    /// meaning and is dropped.
    #[must_use]
    pub fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.retry_after_ms = self.class.names_a_time().then_some(retry_after_ms);
        self
    }

    /// What kind of failure it was.
    pub fn class(&self) -> Class {
        self.class
    }

    /// What happened, for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the same work may succeed later without anything being changed.
    pub fn is_retryable(&self) -> bool {
        self.class.is_retryable()
    }

    /// How long to wait before trying again, where it is not for the retry policy to say.
    pub fn retry_after_ms(&self) -> Option<u64> {
        if self.class == Class::ProviderThrottling { Some(THROTTLED_MS) } else { self.retry_after_ms }
    }
}

impl From<Received> for Failure {
    fn from(received: Received) -> Self {
        let failure = Self::new(received.class, received.message);
        match received.retry_after_ms {
            Some(retry_after_ms) => failure.with_retry_after_ms(retry_after_ms),
            None => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn retryable_of(classes: &[Class]) -> Vec<bool> {
        classes.iter().map(|class| Failure::new(*class, "why").is_retryable()).collect()
    }

    #[test]
    fn b_086_what_passes_may_be_tried_again() {
        use Class::*;
        let classes = [
            TemporaryServiceUnavailable,
            NetworkTimeout,
            RateLimitExceeded,
            ProviderThrottling,
            TransientDatabaseError,
        ];
        assert_eq!(retryable_of(&classes), [true; 5]);
        assert_eq!(Failure::retryable("busy").class(), TemporaryServiceUnavailable);
    }

    #[test]
    fn b_087_what_stays_wrong_may_not() {
        use Class::*;
        let classes = [
            InvalidMessage,
            AuthenticationFailure,
            AuthorizationFailure,
            ValidationError,
            PermanentServiceError,
        ];
        assert_eq!(retryable_of(&classes), [false; 5]);
        assert_eq!(Failure::permanent("gone").class(), PermanentServiceError);
    }

    #[test]
    fn b_088_azure_has_its_own() {
        use Class::*;
        let passing = [ServiceBusUnavailable, MessageLockLost, SessionLockLost, QuotaExceeded];
        assert_eq!(retryable_of(&passing), [true; 4]);
        assert_eq!(retryable_of(&[InvalidOperation, UnauthorizedAccess]), [false; 2]);
    }

    #[test]
    fn b_089_aws_has_its_own() {
        use Class::*;
        let passing = [SqsUnavailable, VisibilityTimeoutExpired, MessageNotInflight, ThrottlingException];
        assert_eq!(retryable_of(&passing), [true; 4]);
        assert_eq!(retryable_of(&[InvalidParameterValue, AccessDenied]), [false; 2]);
    }

    #[test]
    fn b_090_only_those_who_can_know_say_when_to_come_back() {
        for class in Class::ALL {
            let silent = Failure::new(*class, "why").retry_after_ms();
            let told = Failure::new(*class, "why").with_retry_after_ms(1_234).retry_after_ms();
            let expected = match class {
                Class::ProviderThrottling => (Some(60_000), Some(60_000)),
                Class::RateLimitExceeded | Class::TemporaryServiceUnavailable => (None, Some(1_234)),
                _ => (None, None),
            };
            assert_eq!((silent, told), expected, "{class}");
        }
    }

    #[test]
    fn codes_are_stable_and_read_back() {
        // Stored in other people's databases: a change here is a change of the format.
        let codes: Vec<&str> = Class::ALL.iter().map(|class| class.code()).collect();
        let expected = "temporaryServiceUnavailable networkTimeout rateLimitExceeded providerThrottling \
            transientDatabaseError invalidMessage authenticationFailure authorizationFailure validationError \
            permanentServiceError serviceBusUnavailable messageLockLost sessionLockLost quotaExceeded \
            invalidOperation unauthorizedAccess sqsUnavailable visibilityTimeoutExpired messageNotInflight \
            throttlingException invalidParameterValue accessDenied";
        assert_eq!(codes.join(" "), expected);
        for class in Class::ALL {
            let text = serde_json::to_string(class).unwrap();
            assert_eq!(text, format!("\"{}\"", class.code()));
            assert_eq!(serde_json::from_str::<Class>(&text).unwrap(), *class);
        }
    }

    #[test]
    fn reads_and_writes_the_wire_form() {
        let plain = Failure::new(Class::NetworkTimeout, "no reply within 10000 ms");
        assert_eq!(plain.to_string(), "networkTimeout: no reply within 10000 ms");
        let text = r#"{"class":"networkTimeout","message":"no reply within 10000 ms"}"#;
        assert_eq!(serde_json::to_string(&plain).unwrap(), text);
        let limited = r#"{"class":"rateLimitExceeded","message":"slow down","retryAfterMs":5}"#;
        let parsed: Failure = serde_json::from_str(limited).unwrap();
        assert_eq!(parsed.retry_after_ms(), Some(5));
        assert_eq!(serde_json::to_string(&parsed).unwrap(), limited);
        let forged = r#"{"class":"validationError","message":"no","retryAfterMs":5}"#;
        assert_eq!(serde_json::from_str::<Failure>(forged).unwrap().retry_after_ms(), None);
    }

    #[test]
    fn a_message_can_be_kept_by_any_database() {
        assert_eq!(Failure::permanent("no \0 such thing").message(), "no \u{fffd} such thing");
        let received = r#"{"class":"invalidMessage","message":"\u0000"}"#;
        assert_eq!(serde_json::from_str::<Failure>(received).unwrap().message(), "\u{fffd}");
    }

    #[test]
    fn a_message_is_cut_between_two_characters() {
        let long = format!("x{}", "é".repeat(MAX_MESSAGE_BYTES));
        let cut = Failure::retryable(long.clone());
        assert_eq!(
            cut.message().len(),
            MAX_MESSAGE_BYTES - 1,
            "two bytes a character, after one of one byte"
        );
        assert!(long.starts_with(cut.message()));
        let text =
            serde_json::to_string(&serde_json::json!({"class": "invalidMessage", "message": long})).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&text).unwrap().message(), cut.message());
    }

    proptest! {
        #[test]
        fn every_failure_survives_the_wire(index in 0..Class::ALL.len(), message in "\\PC{0,60}", wait in any::<Option<u64>>()) {
            let mut failure = Failure::new(Class::ALL[index], message);
            if let Some(wait) = wait {
                failure = failure.with_retry_after_ms(wait);
            }
            let text = serde_json::to_string(&failure).unwrap();
            prop_assert_eq!(serde_json::from_str::<Failure>(&text).unwrap(), failure);
        }
    }
}
