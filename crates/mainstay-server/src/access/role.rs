//! What tokens allow.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;

/// What a token allows; each role allows what those before it do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Looks.
    Reader,
    /// Changes what the application's data is.
    Operator,
    /// Changes who may do what, too.
    Admin,
}

impl Role {
    /// Every role, weakest first.
    pub const ALL: [Self; 3] = [Self::Reader, Self::Operator, Self::Admin];

    /// The name as it is written in JSON, in the database and on the command line.
    pub fn name(self) -> &'static str {
        match self {
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
            Self::Reader => "Reader",
            Self::Operator => "Operator",
            Self::Admin => "Admin",
        })
    }
}

/// There is no such role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a role is reader, operator or admin")]
pub struct UnknownRole;

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<Self, UnknownRole> {
        Self::ALL.into_iter().find(|role| role.name() == name).ok_or(UnknownRole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_have_one_name() {
        assert!(Role::Reader < Role::Operator && Role::Operator < Role::Admin);
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{}\"", role.name()));
        }
        assert_eq!("Admin".parse::<Role>(), Err(UnknownRole));
    }
}
