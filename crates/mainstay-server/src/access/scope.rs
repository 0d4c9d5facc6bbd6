//! Scopes of tokens of workers and publishers. A request about a name outside of the scope is refused.

use super::Role;
use mainstay_core::names::is_reserved;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most names of one list.
const MAX_NAMES: usize = 64;
/// Longest name: that of an event's type.
const MAX_NAME_BYTES: usize = 512;
/// Most bytes of a scope, as JSON. Each token that was used lately is kept in memory with its scope.
const MAX_BYTES: usize = 8 << 10;

/// The names for which a token of a worker or a publisher may be used. Each name stands for itself; with `*` as its last character it stands
/// for every name that begins like it. Names of the platform are never meant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = TokenScope)]
pub struct Scope {
    /// Pools to claim from, or to enqueue into.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    /// Functions to claim, or to enqueue and to be told with `onComplete`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<String>,
    /// Types of streams to append to. Events without a stream need none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stream_types: Vec<String>,
    /// Types of events to append and to publish.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<String>,
    /// Targets to publish to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
}

/// A kind of name in a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    Pool,
    Function,
    StreamType,
    EventType,
    Target,
}

/// Why a scope cannot be given to a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidScope {
    /// The list that is wrong, in the words of the API.
    pub field: &'static str,
    /// The rule that it breaks.
    pub reason: &'static str,
}

impl Named {
    const ALL: [Self; 5] = [Self::Pool, Self::Function, Self::StreamType, Self::EventType, Self::Target];

    /// The list of a scope that holds such names.
    pub(crate) fn list(self) -> &'static str {
        match self {
            Self::Pool => "pools",
            Self::Function => "functions",
            Self::StreamType => "streamTypes",
            Self::EventType => "eventTypes",
            Self::Target => "targets",
        }
    }

    /// As a sentence has it.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Function => "function",
            Self::StreamType => "stream type",
            Self::EventType => "event type",
            Self::Target => "target",
        }
    }

    fn field(self) -> &'static str {
        match self {
            Self::Pool => "scope.pools",
            Self::Function => "scope.functions",
            Self::StreamType => "scope.streamTypes",
            Self::EventType => "scope.eventTypes",
            Self::Target => "scope.targets",
        }
    }
}

impl Scope {
    /// Whether something of this name is meant. A name of the platform never is.
    pub(crate) fn names(&self, kind: Named, name: &str) -> bool {
        let is_meant = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == pattern,
        };
        !is_reserved(name) && self.list(kind).iter().any(is_meant)
    }

    /// Whether this name is in the scope in full. A name never has a `*`, so no pattern is taken for one.
    pub(crate) fn spells(&self, kind: Named, name: &str) -> bool {
        !is_reserved(name) && self.list(kind).iter().any(|listed| listed == name)
    }

    fn list(&self, kind: Named) -> &[String] {
        match kind {
            Named::Pool => &self.pools,
            Named::Function => &self.functions,
            Named::StreamType => &self.stream_types,
            Named::EventType => &self.event_types,
            Named::Target => &self.targets,
        }
    }

    /// Checks the names, and that a token of this role can use them.
    pub(crate) fn check(&self, role: Role) -> Result<(), InvalidScope> {
        let invalid = |field, reason| Err(InvalidScope { field, reason });
        for kind in Named::ALL {
            if let Some(reason) = objection(self.list(kind)) {
                return invalid(kind.field(), reason);
            }
        }
        if serde_json::to_string(self).map_or(usize::MAX, |text| text.len()) > MAX_BYTES {
            return invalid("scope", "must have at most 8 KiB as JSON");
        }
        let has = |kind| !self.list(kind).is_empty();
        if has(Named::Pool) != has(Named::Function) {
            let reason = "pools and functions go together; the function `*` means every function";
            return invalid(Named::Function.field(), reason);
        }
        match role {
            Role::Worker if [Named::StreamType, Named::EventType, Named::Target].into_iter().any(has) => {
                invalid("scope", "a worker has pools and functions only")
            }
            Role::Worker if !has(Named::Pool) => {
                invalid(Named::Pool.field(), "a worker needs the pools that it claims from")
            }
            Role::Publisher if !has(Named::Pool) && !has(Named::EventType) => {
                invalid("scope", "a publisher needs eventTypes, or pools and functions")
            }
            Role::Publisher if (has(Named::StreamType) || has(Named::Target)) && !has(Named::EventType) => {
                invalid(Named::EventType.field(), "streamTypes and targets need eventTypes")
            }
            Role::Worker | Role::Publisher => Ok(()),
            Role::Reader | Role::Operator | Role::Admin if *self != Self::default() => {
                invalid("scope", "only workers and publishers have one")
            }
            Role::Reader | Role::Operator | Role::Admin => Ok(()),
        }
    }
}

/// The first rule that a list of names breaks.
fn objection(names: &[String]) -> Option<&'static str> {
    if names.len() > MAX_NAMES {
        return Some("must have at most 64 names");
    }
    names.iter().find_map(|name| match name.as_str() {
        name if !(1..=MAX_NAME_BYTES).contains(&name.len()) => Some("a name must have 1 to 512 bytes"),
        name if name.contains(char::is_control) || name.trim() != name => {
            Some("a name must have no control characters, and no spaces around it")
        }
        name if name.find('*').is_some_and(|at| at + 1 < name.len()) => {
            Some("`*` can only be the last character of a name")
        }
        name if is_reserved(name) => Some("names that begin with `mainstay.` belong to the platform"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(pools: &[&str]) -> Scope {
        let functions = vec!["*".to_owned()];
        Scope { pools: pools.iter().map(|&name| name.to_owned()).collect(), functions, ..Scope::default() }
    }

    #[test]
    fn a_name_means_itself_and_a_star_means_what_begins_like_it() {
        let scope = scope(&["mail", "orders.*"]);
        for (name, is_meant) in [
            ("mail", true),
            ("mailing", false),
            ("Mail", false),
            ("orders.eu", true),
            ("orders.", true),
            ("orders", false),
            ("", false),
        ] {
            assert_eq!(scope.names(Named::Pool, name), is_meant, "{name}");
        }
        assert!(!scope.names(Named::Target, "mail") && !Scope::default().names(Named::Pool, ""));
        let spelled: Vec<_> = ["mail", "orders.eu", "orders."]
            .into_iter()
            .filter(|name| scope.spells(Named::Pool, name))
            .collect();
        assert_eq!(spelled, ["mail"]);
    }

    #[test]
    fn no_pattern_means_a_name_of_the_platform() {
        for pattern in ["*", "m*", "mainstay*"] {
            let scope = scope(&[pattern]);
            scope.check(Role::Worker).unwrap();
            for name in
                ["mainstay.replay.tidy", "MAINSTAY.x", " Mainstay.x", "\0mainstay.x", "main\u{17f}tay.x"]
            {
                assert!(!scope.names(Named::Pool, name) && !scope.names(Named::Function, name), "{name}");
            }
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        let long = "x".repeat(513);
        for bad in [
            "",
            " ",
            "a\0",
            "a\nb",
            " a",
            "a ",
            "a*b",
            "**",
            "*a",
            "mainstay.x",
            "Mainstay.*",
            "main\u{17f}tay.x",
            &long,
        ] {
            assert_eq!(scope(&[bad]).check(Role::Worker).unwrap_err().field, "scope.pools", "{bad:?}");
        }
        let many: Vec<String> = (0..65).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(scope(&many).check(Role::Worker).unwrap_err().field, "scope.pools");
        scope(&many[1..]).check(Role::Worker).unwrap();
        let large: Vec<String> = (0..20).map(|number| format!("{number}{}", "x".repeat(500))).collect();
        let large: Vec<&str> = large.iter().map(String::as_str).collect();
        assert_eq!(scope(&large).check(Role::Worker).unwrap_err().field, "scope");
    }

    #[test]
    fn a_scope_must_be_of_use_to_its_role() {
        let names = || vec!["a".to_owned()];
        let work = Scope { pools: names(), functions: names(), ..Scope::default() };
        let events = Scope { event_types: names(), stream_types: names(), ..Scope::default() };
        let all = Scope { targets: names(), ..events.clone() };
        for (role, scope, field) in [
            (Role::Worker, Scope::default(), Some("scope.pools")),
            (Role::Worker, work.clone(), None),
            (Role::Worker, Scope { functions: vec![], ..work.clone() }, Some("scope.functions")),
            (Role::Worker, Scope { event_types: names(), ..work.clone() }, Some("scope")),
            (Role::Publisher, Scope::default(), Some("scope")),
            (Role::Publisher, work.clone(), None),
            (Role::Publisher, events.clone(), None),
            (Role::Publisher, all.clone(), None),
            (Role::Publisher, Scope { event_types: vec![], ..all.clone() }, Some("scope")),
            (Role::Publisher, Scope { stream_types: names(), ..work.clone() }, Some("scope.eventTypes")),
            (Role::Publisher, Scope { pools: vec![], ..work.clone() }, Some("scope.functions")),
            (Role::Reader, Scope::default(), None),
            (Role::Admin, work, Some("scope")),
        ] {
            let found = scope.check(role).err().map(|invalid| invalid.field);
            assert_eq!(found, field, "{role} with {scope:?}");
        }
    }
}
