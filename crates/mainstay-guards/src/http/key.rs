//! Whose a request is.

use super::{Caller, Head, TrustedProxies};
use http::Method;
use std::collections::HashSet;
use std::sync::Arc;

/// What something is kept under for a request: a user, a tenant, a route, an address, or several of them.
///
/// Keys are bounded by what they are made of: routes are patterns, or those of a list, and IPv6 addresses are networks.
#[derive(Clone)]
pub struct Key {
    parts: Vec<Part>,
}

/// What happens to requests that have no key: nobody has signed in, or where they come from cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WithoutKey {
    /// All of them share one: `user:anonymous`, `tenant:public`, `ip:unknown`, `route:other`.
    #[default]
    Share,
    /// They are let through.
    LetThrough,
    /// They are refused with `CALLER_UNKNOWN`.
    Refuse,
}

type Custom = Arc<dyn Fn(Head<'_>) -> Option<String> + Send + Sync>;

#[derive(Clone)]
enum Part {
    Everyone,
    User,
    Tenant,
    #[cfg(feature = "axum")]
    Route,
    Paths(Arc<HashSet<String>>),
    Address(TrustedProxies),
    UserOrAddress(TrustedProxies),
    Custom(Custom),
}

impl Key {
    /// One key for all requests.
    pub fn everyone() -> Self {
        Self::part(Part::Everyone)
    }

    /// `user:{id}`, by the [`Caller`] of the request.
    pub fn user() -> Self {
        Self::part(Part::User)
    }

    /// `tenant:{id}`, by the [`Caller`] of the request.
    pub fn tenant() -> Self {
        Self::part(Part::Tenant)
    }

    /// `route:{method} {pattern}`, by the pattern that axum's router has matched, so the layer must be inside of it.
    #[cfg(feature = "axum")]
    pub fn route() -> Self {
        Self::part(Part::Route)
    }

    /// `route:{method} {path}` for these paths; the others share one, since everybody can make up paths.
    pub fn paths<P: Into<String>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self::part(Part::Paths(Arc::new(paths.into_iter().map(Into::into).collect())))
    }

    /// `ip:{address}`: where the request comes from.
    pub fn address(proxies: TrustedProxies) -> Self {
        Self::part(Part::Address(proxies))
    }

    /// The user, or else the address.
    pub fn user_or_address(proxies: TrustedProxies) -> Self {
        Self::part(Part::UserOrAddress(proxies))
    }

    /// Whatever a function makes of the request. It should not make more keys than there are users.
    pub fn by(make: impl Fn(Head<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::part(Part::Custom(Arc::new(make)))
    }

    /// This and another, joined by `|`: each user on each route has a key of its own.
    pub fn and(mut self, mut other: Self) -> Self {
        self.parts.append(&mut other.parts);
        self
    }

    fn part(part: Part) -> Self {
        Self { parts: vec![part] }
    }

    /// Writes down the key of a request; whether all of its parts are known.
    pub(crate) fn write(&self, head: Head<'_>, into: &mut String) -> bool {
        if let [part] = &*self.parts {
            return part.write(head, into);
        }
        let mut is_known = true;
        for (number, part) in self.parts.iter().enumerate() {
            if number > 0 {
                into.push('|');
            }
            let begin = into.len();
            is_known &= part.write(head, into);
            // Nobody chooses a name that makes its key that of others.
            if into[begin..].contains(['|', '%']) {
                let escaped = into[begin..].replace('%', "%25").replace('|', "%7C");
                into.replace_range(begin.., &escaped);
            }
        }
        is_known
    }
}

impl Part {
    fn write(&self, head: Head<'_>, into: &mut String) -> bool {
        let caller = head.extensions.get::<Caller>();
        match self {
            Self::Everyone => named(into, "everyone", Some("")),
            Self::User => named(into, "user:", caller.and_then(|caller| caller.user.as_deref())),
            Self::Tenant => named(into, "tenant:", caller.and_then(|caller| caller.tenant.as_deref())),
            #[cfg(feature = "axum")]
            Self::Route => route(into, head, head.route()),
            Self::Paths(paths) => route(into, head, paths.get(head.uri.path()).map(String::as_str)),
            Self::Address(proxies) => {
                into.push_str("ip:");
                proxies.write(head, into) || unknown(into, "ip:")
            }
            Self::UserOrAddress(proxies) => match caller.and_then(|caller| caller.user.as_deref()) {
                Some(user) => named(into, "user:", Some(user)),
                None => Self::Address(proxies.clone()).write(head, into),
            },
            Self::Custom(make) => match make(head) {
                Some(key) => named(into, "", Some(&key)),
                None => unknown(into, ""),
            },
        }
    }
}

fn named(into: &mut String, kind: &str, name: Option<&str>) -> bool {
    into.push_str(kind);
    match name {
        Some(name) => into.push_str(name),
        None => return unknown(into, kind),
    }
    true
}

fn route(into: &mut String, head: Head<'_>, route: Option<&str>) -> bool {
    into.push_str("route:");
    let Some(route) = route else { return unknown(into, "route:") };
    into.push_str(method(head.method));
    into.push(' ');
    into.push_str(route);
    true
}

/// Everybody can make up methods, too.
fn method(method: &Method) -> &str {
    match *method {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::PATCH
        | Method::DELETE
        | Method::OPTIONS
        | Method::TRACE
        | Method::CONNECT => method.as_str(),
        _ => "OTHER",
    }
}

/// What stands in the place of what is not known (items 14 and 40).
fn unknown(into: &mut String, kind: &str) -> bool {
    into.push_str(match kind {
        "user:" => "anonymous",
        "tenant:" => "public",
        "route:" => "other",
        _ => "unknown",
    });
    false
}
