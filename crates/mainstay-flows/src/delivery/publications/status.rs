//! Where a publication stands (decision C20). Pure.
//!
//! | what happens | pending, retried | failed, dead_letter | delivered |
//! |---|---|---|---|
//! | an execution failed, more are left | stays | | |
//! | it came | delivered | delivered | stays |
//! | it failed, and more tries could have helped | dead_letter | dead_letter | stays |
//! | it failed for good, or was cancelled | failed | failed | stays |
//! | an operator tries it again | | retried | |
//!
//! `retried` is not kept: it is a publication that is pending although there is a letter about it.

use mainstay_core::failure::Class;
use mainstay_work::WorkResult;
use serde::{Deserialize, Serialize};

/// Where a publication stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is being delivered, for the first or the tenth time.
    Pending,
    /// It came.
    Delivered,
    /// It failed for good, or was cancelled.
    Failed,
    /// It was tried as often as it may be.
    DeadLetter,
    /// It is being delivered because an operator asked for it.
    Retried,
}

impl Status {
    /// The name, as it stands in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::DeadLetter => "dead_letter",
            Self::Retried => "retried",
        }
    }

    /// What a row says that is kept so, and has a letter or not.
    pub(super) fn of(kept: &str, has_letter: bool) -> Self {
        match kept {
            "delivered" => Self::Delivered,
            "failed" => Self::Failed,
            "dead_letter" => Self::DeadLetter,
            _ if has_letter => Self::Retried,
            _ => Self::Pending,
        }
    }
}

/// How the work of delivering ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It came.
    Delivered,
    /// It failed as often as it may, and could have come the next time.
    UsedUp,
    /// It failed in a way that stays, or was cancelled.
    ForGood,
}

impl Ended {
    /// What a result of work means for a publication.
    pub(super) fn of(result: &WorkResult) -> Self {
        match result {
            WorkResult::Success { .. } => Self::Delivered,
            WorkResult::Canceled => Self::ForGood,
            WorkResult::Failed { error } => match class(error) {
                Some(class) if !class.is_retryable() => Self::ForGood,
                _ => Self::UsedUp,
            },
        }
    }
}

/// The class that the text of a failure begins with.
fn class(error: &str) -> Option<Class> {
    let (code, _) = error.split_once(':')?;
    Class::ALL.iter().copied().find(|class| class.code() == code)
}

/// Where a publication stands after its work has ended.
pub fn next(status: Status, ended: Ended) -> Status {
    match (status, ended) {
        (Status::Delivered, _) | (_, Ended::Delivered) => Status::Delivered,
        (_, Ended::UsedUp) => Status::DeadLetter,
        (_, Ended::ForGood) => Status::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_168_what_came_stays_delivered_and_the_rest_says_whether_more_tries_could_help() {
        let all = [Status::Pending, Status::Delivered, Status::Failed, Status::DeadLetter, Status::Retried];
        for status in all {
            let is_delivered = status == Status::Delivered;
            assert_eq!(next(status, Ended::Delivered), Status::Delivered);
            let expected = if is_delivered { Status::Delivered } else { Status::DeadLetter };
            assert_eq!(next(status, Ended::UsedUp), expected);
            let expected = if is_delivered { Status::Delivered } else { Status::Failed };
            assert_eq!(next(status, Ended::ForGood), expected);
        }
    }

    #[test]
    fn the_class_of_a_failure_says_whether_it_stays() {
        for class in Class::ALL {
            let error = mainstay_core::failure::Failure::new(*class, "x: y").to_string();
            let expected = if class.is_retryable() { Ended::UsedUp } else { Ended::ForGood };
            assert_eq!(Ended::of(&WorkResult::Failed { error }), expected, "{class}");
        }
        assert_eq!(Ended::of(&WorkResult::Failed { error: "who knows".to_owned() }), Ended::UsedUp);
        assert_eq!(Ended::of(&WorkResult::Canceled), Ended::ForGood);
    }

    #[test]
    fn b_168_the_names_are_those_of_the_wire() {
        for (status, name) in [
            (Status::Pending, "pending"),
            (Status::Delivered, "delivered"),
            (Status::Failed, "failed"),
            (Status::DeadLetter, "dead_letter"),
            (Status::Retried, "retried"),
        ] {
            assert_eq!(status.as_str(), name);
            assert_eq!(serde_json::to_value(status).expect("a name"), name);
        }
    }
}
