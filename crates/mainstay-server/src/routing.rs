//! The table of routes. There is one way to add one, and it takes a permission.

use crate::access::guard::{Post, guard, note};
use crate::access::{Oversight, Permission, Role, Rule, reserve};
use crate::app::App;
use crate::listen::host;
use crate::options::BATCH_FACTOR;
use crate::{Problem, console, error, leftover, observe};
use axum::Router;
use axum::body::Body;
use axum::http::{Method, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use mainstay_guards::http::Key;
use mainstay_guards::once::{Answers, OnceLayer};
use std::fmt;
use tower_http::catch_panic::{CatchPanicLayer, ResponseForPanic};
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Deprecated, OpenApi, PathItem};
use utoipa_axum::router::UtoipaMethodRouter;

/// Below this, requests need no token while the server listens on this machine alone and no token was ever made.
const OPEN: &str = "/v1/";

/// What is done below this is written down and counted, unless its rule says otherwise.
const AUDITED: &str = "/admin/";

/// Whoever asks these must be answered however much is asked: they tell whether the server is well.
const UNLIMITED: [&str; 6] = ["/health", "/health/live", "/health/ready", "/livez", "/readyz", "/metrics"];

/// Routes, each with its permission and its description.
///
/// ```
/// use mainstay_server::{Answer, Json, Permission, Principal, Routes};
/// use utoipa_axum::routes;
///
/// /// Who asks
/// #[utoipa::path(get, path = "/v1/me", responses((status = 200, body = String)))]
/// async fn me(principal: Principal) -> Answer<Json<String>> {
///     Ok(Json(principal.role.to_string()))
/// }
///
/// let routes = Routes::default().add(Permission::Reader, routes!(me));
/// assert_eq!(routes.table()[0].to_string(), "GET /v1/me: reader");
/// ```
#[derive(Default)]
pub struct Routes {
    entries: Vec<Entry>,
}

struct Entry {
    rule: Rule,
    path: String,
    described: UtoipaMethodRouter<App>,
}

/// One route of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, with its parameters in braces.
    pub path: String,
    /// What it needs.
    pub permission: Permission,
    /// The scoped role that is let in too.
    pub scoped: Option<Role>,
    /// How closely its calls are watched.
    pub oversight: Oversight,
}

impl fmt::Display for Route {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}: {}", self.method, self.path, self.permission.name())?;
        self.scoped.map_or(Ok(()), |role| write!(out, " or {}", role.name()))
    }
}

impl Routes {
    /// Adds the handlers of one path that share a permission: `.add(Permission::Reader, routes!(get, list))`. A
    /// [`Rule`] in its place says more: `Permission::Operator.batch()`, `Permission::Reader.streaming()`.
    ///
    /// # Panics
    /// When the handlers have several paths: each would then answer on all of them.
    #[must_use]
    pub fn add(mut self, rule: impl Into<Rule>, described: UtoipaMethodRouter<App>) -> Self {
        let paths: Vec<_> = described.1.paths.keys().cloned().collect();
        let [path] = <[String; 1]>::try_from(paths)
            .unwrap_or_else(|paths| panic!("handlers that are added together share one path, not {paths:?}"));
        let mut rule = rule.into();
        if path.starts_with(AUDITED) && rule.oversight == Oversight::Usual {
            rule.oversight = Oversight::Counted;
        }
        self.entries.push(Entry { rule, path, described });
        self
    }

    /// These routes and others.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.entries.extend(others.entries);
        self
    }

    /// Every method of every path, with what it needs.
    pub fn table(&self) -> Vec<Route> {
        let rows = self.entries.iter().flat_map(|entry| {
            let item = &entry.described.1.paths[&entry.path];
            operations(item).map(|(method, _)| Route {
                method,
                path: entry.path.clone(),
                permission: entry.rule.permission,
                scoped: entry.rule.scoped,
                oversight: entry.rule.oversight,
            })
        });
        rows.collect()
    }

    /// The description of all routes, in which each operation tells its permission.
    pub(crate) fn describe(&self, mut api: OpenApi) -> OpenApi {
        for entry in &self.entries {
            let (schemas, paths, _) = &entry.described;
            let known = &mut api.components.get_or_insert_default().schemas;
            for (name, schema) in schemas {
                let is_same = known.get(name).is_none_or(|known| known == schema);
                assert!(is_same, "two things are called {name} in the description of the API");
                known.insert(name.clone(), schema.clone());
            }
            let mut item = paths.paths[&entry.path].clone();
            for operation in operations_mut(&mut item) {
                crate::openapi::complete(operation, entry.rule);
                operation.deprecated = entry.rule.successor.map(|_| Deprecated::True);
            }
            match api.paths.paths.get_mut(&entry.path) {
                Some(known) => known.merge_operations(item),
                None => drop(api.paths.paths.insert(entry.path.clone(), item)),
            }
        }
        api
    }

    /// The service that answers requests: each route behind its guard, everything inside of a span, nothing but
    /// problem documents when something is wrong.
    pub(crate) fn build(self, app: &App) -> Router {
        let (mut limited, unlimited) = self.guarded(app);
        // The console asks as everybody does, behind the same guards.
        let inside = inside(unlimited.clone(), limited.clone(), app);
        limited = limited.merge(console::router(app, inside));
        if let Some(limits) = &app.options().rate_limits {
            limited = limited.layer(limits.clone());
        }
        unlimited
            .merge(limited)
            .with_state(app.clone())
            .layer(from_fn_with_state(app.clone(), reserve::admit))
            .layer(from_fn(host::require))
            .layer(caught(app))
            .layer(from_fn_with_state(app.clone(), observe::observe))
            .layer(from_fn(leftover::read_leftover))
    }

    /// The service that answers callers inside of this process.
    pub(crate) fn build_inside(self, app: &App) -> Router {
        let (limited, unlimited) = self.guarded(app);
        inside(unlimited, limited, app)
    }

    /// Routes behind their guards: those that rate limits count, and those that they do not.
    fn guarded(self, app: &App) -> (Router<App>, Router<App>) {
        let (mut limited, mut unlimited) = (Router::new(), Router::new());
        let most_bytes = app.options().max_body_bytes.saturating_mul(BATCH_FACTOR);
        let once = OnceLayer::new(Answers::new(app.store().clone()), Key::user()).max_body_bytes(most_bytes);
        for Entry { rule, path, described: (_, _, handlers) } in self.entries {
            let is_audited = rule.oversight != Oversight::Usual;
            let audited = is_audited.then(|| path.as_str().into());
            let is_change = path.starts_with(OPEN) && rule.permission.role() > Some(Role::Reader);
            let is_noted = app.options().audits_v1 && is_change && !is_audited;
            let noted = is_noted.then(|| path.as_str().into());
            let post = Post { app: app.clone(), rule, is_open: path.starts_with(OPEN), audited, noted };
            let handlers =
                if is_noted { handlers.layer(from_fn_with_state(post.clone(), note)) } else { handlers };
            // Whoever repeats a request with its key is answered as the first time. Answers that stream are not kept; nor are
            // those of what is written down, which comes to the same when it is done again, and whose entry belongs to the
            // transaction of the action, not to that of the key.
            let is_kept = path.starts_with(OPEN) && !rule.is_streaming && !is_audited;
            let handlers = if is_kept { handlers.layer(once.clone()) } else { handlers };
            let is_limited = !rule.is_revoking && !UNLIMITED.contains(&path.as_str());
            let router = if is_limited { &mut limited } else { &mut unlimited };
            *router =
                std::mem::take(router).route(&path, handlers.route_layer(from_fn_with_state(post, guard)));
        }
        limited = limited.fallback(not_found).method_not_allowed_fallback(method_not_allowed);
        unlimited = unlimited.method_not_allowed_fallback(method_not_allowed);
        (limited, unlimited)
    }
}

fn inside(unlimited: Router<App>, limited: Router<App>, app: &App) -> Router {
    unlimited.merge(limited).with_state(app.clone()).layer(caught(app))
}

/// Layer that answers for a handler that panicked.
fn caught(app: &App) -> CatchPanicLayer<impl ResponseForPanic<ResponseBody = Body> + Send + Sync + 'static> {
    let app = app.clone();
    CatchPanicLayer::custom(move |panic: Box<dyn std::any::Any + Send>| observe::panicked(&app, &*panic))
}

async fn not_found(uri: Uri) -> Problem {
    Problem::new(&error::ROUTE_NOT_FOUND, format!("There is nothing at {}.", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(&error::METHOD_NOT_ALLOWED, format!("{} does not take {method}.", uri.path()))
}

fn operations(item: &PathItem) -> impl Iterator<Item = (Method, &Operation)> {
    let all = [
        (Method::GET, &item.get),
        (Method::PUT, &item.put),
        (Method::POST, &item.post),
        (Method::DELETE, &item.delete),
        (Method::OPTIONS, &item.options),
        (Method::HEAD, &item.head),
        (Method::PATCH, &item.patch),
        (Method::TRACE, &item.trace),
    ];
    all.into_iter().filter_map(|(method, operation)| operation.as_ref().map(|operation| (method, operation)))
}

fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.delete,
        &mut item.options,
        &mut item.head,
        &mut item.patch,
        &mut item.trace,
    ];
    all.into_iter().filter_map(Option::as_mut)
}
