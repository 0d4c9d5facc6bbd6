//! Tokens of every kind.

use crate::everybody::House;
use crate::matrix::description::Described;
use mainstay_server::tokens::New;
use mainstay_server::{Role, Scope, Tokens};
use serde_json::{Value, json};
use std::time::Duration;

/// A tenant that nothing in the house belongs to.
pub(super) const STRANGER: &str = "acme";

/// A caller, and what it may do at most.
pub(super) struct Caller {
    pub(super) name: &'static str,
    pub(super) token: Option<String>,
    /// Its role; none for a caller that must be turned away.
    pub(super) role: Option<Role>,
    pub(super) tenant: Option<&'static str>,
}

impl Caller {
    /// The status with which an operation must turn this caller away, whatever it asks for.
    pub(super) fn is_refused_by(&self, operation: &Described) -> Option<u16> {
        let needed: Role = match operation.permission.as_str() {
            "public" => return None,
            // Its figures and grades are for the ladder of roles.
            "local" if self.role.is_some_and(Role::is_scoped) => Role::Reader,
            // The tests are on the machine of the server; a token that is not valid is refused even there.
            "local" if self.role.is_some() || self.token.is_none() => return None,
            "local" => Role::Reader,
            name => name.parse().unwrap(),
        };
        match self.role {
            None => Some(401),
            Some(role) if role.is_scoped() && operation.scoped == Some(role) => None,
            Some(role) if role < needed => Some(403),
            Some(_) => None,
        }
    }
}

/// Each kind of caller: a name, a role and a tenant.
const KNOWN: [(&str, Role, Option<&str>); 6] = [
    ("reader", Role::Reader, None),
    ("operator", Role::Operator, None),
    ("admin", Role::Admin, None),
    ("reader of a tenant", Role::Reader, Some(STRANGER)),
    ("operator of a tenant", Role::Operator, Some(STRANGER)),
    ("admin of a tenant", Role::Admin, Some(STRANGER)),
];

/// Scoped tokens for names that are not in the house: they are let in, and must change nothing.
fn scoped() -> [(&'static str, Role, Value); 2] {
    let elsewhere = json!(["elsewhere", "elsewhere.*"]);
    [
        ("worker of another pool", Role::Worker, json!({"pools": elsewhere, "functions": elsewhere})),
        (
            "publisher of other types",
            Role::Publisher,
            json!({"pools": elsewhere, "functions": elsewhere, "streamTypes": elsewhere, "eventTypes": elsewhere}),
        ),
    ]
}

pub(super) async fn all(house: &House) -> Vec<Caller> {
    let tokens = Tokens::new(house.server.store.clone());
    let mut callers = vec![
        Caller { name: "nobody", token: None, role: None, tenant: None },
        Caller { name: "an invented token", token: Some(invented()), role: None, tenant: None },
    ];
    for (name, role, tenant) in KNOWN {
        callers.push(Caller { name, token: Some(house.token(role, tenant).await), role: Some(role), tenant });
    }
    for (name, role, scope) in scoped() {
        let scope: Scope = serde_json::from_value(scope).unwrap();
        let new = New::named(name, role).unwrap().scope(scope).unwrap();
        let (_, secret) = tokens.create(new).await.unwrap();
        let token = Some(secret.reveal().to_owned());
        callers.push(Caller { name, token, role: Some(role), tenant: None });
    }
    let (revoked, secret) = tokens.create(New::named("revoked", Role::Admin).unwrap()).await.unwrap();
    tokens.revoke(&revoked.id, None).await.unwrap().unwrap();
    let unknown = |name, token: String| Caller { name, token: Some(token), role: None, tenant: None };
    callers.push(unknown("a revoked token", secret.reveal().to_owned()));
    let short = New::named("expired", Role::Admin).unwrap().expires_in(Duration::from_millis(1)).unwrap();
    let (_, secret) = tokens.create(short).await.unwrap();
    // Its millisecond has passed when the store's clock says so.
    while tokens.authenticate(secret.reveal()).await.unwrap().is_some() {}
    callers.push(unknown("an expired token", secret.reveal().to_owned()));
    callers
}

fn invented() -> String {
    format!("mst_{}_{}", "0".repeat(16), "0".repeat(64))
}
