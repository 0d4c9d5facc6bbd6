//! What routes ask for.

use super::Role;

/// What a request needs to be let in.
///
/// Below `/v1`, a server that listens on this machine alone and whose store never had a token lets requests in
/// without one. Everywhere else a role means a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Permission {
    /// Nothing.
    Public,
    /// To come from this machine, or a token of any role.
    Local,
    /// A token of any role.
    Reader,
    /// A token of an operator or an admin.
    Operator,
    /// A token of an admin.
    Admin,
}

impl Permission {
    /// The role that a token must have, if one is looked at.
    pub fn role(self) -> Option<Role> {
        match self {
            Self::Public => None,
            Self::Local | Self::Reader => Some(Role::Reader),
            Self::Operator => Some(Role::Operator),
            Self::Admin => Some(Role::Admin),
        }
    }

    /// The name by which the API's description calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Local => "local",
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// A rule that lets in a token of a scoped role too. The handler checks what the token's scope names.
    pub fn or(self, scoped: Role) -> Rule {
        Rule::from(self).or(scoped)
    }

    /// A rule whose bodies may be eight times as large as usual.
    pub fn batch(self) -> Rule {
        Rule { is_batch: true, ..self.into() }
    }

    /// A rule that gives a minute more, for answers that wait until there is something to tell.
    pub fn waiting(self) -> Rule {
        Rule { is_waiting: true, ..self.into() }
    }

    /// A rule of a route that is going away: whoever calls it is told which one takes its place (item 223).
    pub fn replaced_by(self, successor: &'static str) -> Rule {
        Rule { successor: Some(successor), ..self.into() }
    }

    /// A rule of which every call is written down, and none counted: what programs declare when they start, and what must
    /// go on when nothing else may.
    pub fn written(self) -> Rule {
        Rule { oversight: Oversight::Written, ..self.into() }
    }

    /// A rule of a route that takes access or work away. Every call is written down; `adminOperations`, rate limits and quotas never
    /// refuse one, so that a caller that uses them up cannot be kept from taking it away.
    pub fn revoking(self) -> Rule {
        Rule { is_revoking: true, ..self.written() }
    }

    /// A rule of which every call is written down and counted, as below `/admin` (item 234).
    pub fn counted(self) -> Rule {
        Rule { oversight: Oversight::Counted, ..self.into() }
    }

    /// A rule without a time limit, for answers that stream until the server stops.
    pub fn streaming(self) -> Rule {
        Rule { is_streaming: true, ..self.into() }
    }
}

/// How closely the calls of a route are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oversight {
    /// As its path says: below `/admin` they are counted, elsewhere they are what an application does all day.
    Usual,
    /// They are written down.
    Written,
    /// They are written down, and those that change something count against `adminOperations`.
    Counted,
}

/// What holds for the requests of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// What it needs.
    pub permission: Permission,
    /// The scoped role that is let in too; its handler checks what the token's scope names.
    pub scoped: Option<Role>,
    /// Whether its bodies may be larger than usual.
    pub is_batch: bool,
    /// Whether its answers go on beyond the time limit.
    pub is_streaming: bool,
    /// Whether its answers may be waited for.
    pub is_waiting: bool,
    /// Whether rate limits and quotas let its calls through.
    pub is_revoking: bool,
    /// The route that takes its place, if it is going away.
    pub successor: Option<&'static str>,
    /// How closely its calls are watched.
    pub oversight: Oversight,
}

impl Rule {
    /// The same rule, which lets in a token of a scoped role too.
    pub fn or(self, scoped: Role) -> Self {
        Self { scoped: Some(scoped), ..self }
    }

    /// Whether a token of this role is let in.
    pub fn admits(&self, role: Role) -> bool {
        self.permission.role().is_none_or(|needed| role >= needed) || self.scoped == Some(role)
    }
}

impl From<Permission> for Rule {
    fn from(permission: Permission) -> Self {
        Self {
            permission,
            scoped: None,
            is_batch: false,
            is_streaming: false,
            is_waiting: false,
            is_revoking: false,
            successor: None,
            oversight: Oversight::Usual,
        }
    }
}
