//! What tokens allow.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;

/// Role of a token. Reader, operator and admin are a ladder: each allows what the one before it does. Worker and publisher
/// stand below the ladder: they allow only what the [scope](super::Scope) of the token names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Claims and ends work, of named pools and functions.
    Worker,
    /// Appends, enqueues and publishes, of named types and pools.
    Publisher,
    /// Looks.
    Reader,
    /// Changes what the application's data is.
    Operator,
    /// Changes who may do what, too.
    Admin,
}

impl Role {
    /// The roles of the ladder, weakest first.
    pub const ALL: [Self; 3] = [Self::Reader, Self::Operator, Self::Admin];
    /// The roles that need a scope.
    pub const SCOPED: [Self; 2] = [Self::Worker, Self::Publisher];

    /// Whether tokens of this role may do only what their scope names.
    pub fn is_scoped(self) -> bool {
        Self::SCOPED.contains(&self)
    }

    /// The name as it is written in JSON, in the database and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Publisher => "publisher",
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// As it begins a sentence.
impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Worker => "Worker",
            Self::Publisher => "Publisher",
            Self::Reader => "Reader",
            Self::Operator => "Operator",
            Self::Admin => "Admin",
        })
    }
}

/// There is no such role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a role is worker, publisher, reader, operator or admin")]
pub struct UnknownRole;

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<Self, UnknownRole> {
        Self::SCOPED.into_iter().chain(Self::ALL).find(|role| role.name() == name).ok_or(UnknownRole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_have_one_name() {
        assert!(Role::Reader < Role::Operator && Role::Operator < Role::Admin);
        for role in Role::SCOPED {
            assert!(role < Role::Reader && role.is_scoped(), "{role} is below every role of the ladder");
        }
        for role in Role::SCOPED.into_iter().chain(Role::ALL) {
            assert_eq!(role.name().parse(), Ok(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{}\"", role.name()));
        }
        assert_eq!("Admin".parse::<Role>(), Err(UnknownRole));
    }
}
