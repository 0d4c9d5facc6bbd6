//! What was seen, as probes and people are told.

use super::Look;
use super::look::{Seen, SeenPool, SeenProjection};
use super::rules::HealthRules;
use mainstay_core::health::{Band, ComponentHealth, Status, SystemHealth};
use mainstay_flows::projections::Lifecycle;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What somebody can do about a pool that is behind (item 240).
const REDUCE: &str = "reduce traffic or scale";

/// Whether the server can take work (items 235 to 241, decision C51).
#[derive(Debug, Serialize)]
pub(crate) struct Readiness {
    /// Healthy, or unhealthy: a gate is open or closed.
    pub(crate) status: Status,
    pub(crate) timestamp: i64,
    /// Status of each component.
    pub(crate) components: BTreeMap<String, Status>,
    /// Code of the reason why the store does not answer.
    pub(crate) error: Option<&'static str>,
    /// Figures of each projection and pool, by name. A pool's suggested action says what helps.
    pub(crate) details: Map<String, Value>,
}

/// Whether the server can take work.
pub(crate) fn readiness(look: &Look, rules: &HealthRules, now_ms: i64) -> Readiness {
    let seen = match look {
        Ok(seen) => seen,
        Err(code) => {
            let components = [("eventStore".to_owned(), Status::Unhealthy)].into();
            let (status, details) = (Status::Unhealthy, Map::new());
            return Readiness { status, timestamp: now_ms, components, error: Some(code), details };
        }
    };
    let is_late = seen.projections.iter().any(|one| counts(one) && one.lag > rules.max_lag);
    let is_behind = behind(seen).next().is_some();
    // Texts of errors, which may quote data, are for `/health`.
    let mut parts = vec![store(seen), projections(seen, false), workpool(seen)];
    if is_behind {
        parts.push(ComponentHealth { name: "workpool_backlog".to_owned(), ..workpool(seen) });
    }
    let components = parts.iter().map(|part| (part.name.clone(), part.status)).collect();
    let mut details = Map::new();
    for part in parts.into_iter().filter(|part| part.name != "eventStore") {
        if let Some(Value::Object(named)) = part.details {
            details.extend(named);
        }
    }
    for pool in behind(seen) {
        details[&pool.name]["suggestedAction"] = json!(REDUCE);
    }
    let status = if is_late || is_behind { Status::Unhealthy } else { Status::Healthy };
    Readiness { status, timestamp: seen.timestamp, components, error: None, details }
}

/// How everything is, in grades (items 245 to 249).
pub(crate) fn system(look: &Look, rules: &HealthRules, now_ms: i64) -> SystemHealth {
    match look {
        Ok(seen) => {
            let parts = vec![store(seen), projections(seen, true), workpool(seen), letters(seen, rules)];
            SystemHealth::of(parts, seen.timestamp)
        }
        Err(code) => SystemHealth::of(vec![unreachable_store(code)], now_ms),
    }
}

/// The same for who is confined to a tenant: which read models and pools there are, how much waits, and what errors say, which
/// may be of another tenant's data, belongs to none.
pub(crate) fn without_details(mut system: SystemHealth) -> SystemHealth {
    for part in &mut system.components {
        part.details = None;
    }
    system
}

fn store(seen: &Seen) -> ComponentHealth {
    let details = json!({ "latencyMs": seen.latency_ms });
    ComponentHealth { details: Some(details), ..ComponentHealth::new("eventStore", Status::Healthy) }
}

fn unreachable_store(code: &str) -> ComponentHealth {
    ComponentHealth {
        error: Some(code.to_owned()),
        suggested_action: Some("see whether the database is there and answers".to_owned()),
        ..ComponentHealth::new("eventStore", Status::Unhealthy)
    }
}

/// Whether somebody has to worry that it is behind: one that is rebuilt will not be for long (decision C42).
fn counts(projection: &SeenProjection) -> bool {
    projection.status != Some(Lifecycle::Rebuilding)
}

/// How it is, apart from how far it is behind. One that is paused falls behind until somebody remembers it.
fn standing(projection: &SeenProjection) -> Status {
    let is_held = projection.error.is_some() || projection.status == Some(Lifecycle::Paused);
    if is_held { Status::Degraded } else { Status::Healthy }
}

fn projections(seen: &Seen, with_errors: bool) -> ComponentHealth {
    let mut status = Status::Healthy;
    let mut details = Map::new();
    for projection in &seen.projections {
        let band = Band::of(projection.lag);
        if counts(projection) {
            status = status.max(band.status()).max(standing(projection));
        }
        let mut detail = json!({ "lag": projection.lag, "band": band });
        if let Some(lifecycle) = projection.status {
            detail["status"] = json!(lifecycle.as_str());
        }
        if let Some(error) = projection.error.as_ref().filter(|_| with_errors) {
            detail["error"] = json!(error);
        }
        details.insert(projection.name.clone(), detail);
    }
    let action =
        "look at what the projection is doing: resume it if it is paused, rebuild it if it cannot go on";
    ComponentHealth {
        details: Some(Value::Object(details)),
        suggested_action: (status != Status::Healthy).then(|| action.to_owned()),
        ..ComponentHealth::new("projections", status)
    }
}

fn behind(seen: &Seen) -> impl Iterator<Item = &SeenPool> {
    seen.pools.iter().filter(|pool| pool.depth > pool.max_depth)
}

fn workpool(seen: &Seen) -> ComponentHealth {
    let details = seen
        .pools
        .iter()
        .map(|pool| (pool.name.clone(), json!({ "depth": pool.depth, "maxDepth": pool.max_depth })));
    let is_behind = behind(seen).next().is_some();
    ComponentHealth {
        details: Some(Value::Object(details.collect())),
        suggested_action: is_behind.then(|| REDUCE.to_owned()),
        ..ComponentHealth::new("workpool", if is_behind { Status::Degraded } else { Status::Healthy })
    }
}

fn letters(seen: &Seen, rules: &HealthRules) -> ComponentHealth {
    let is_many = seen.letters >= u64::from(rules.max_letters);
    let action = "look at the dead letters, and retry or ignore them";
    ComponentHealth {
        details: Some(json!({ "pending": seen.letters })),
        suggested_action: is_many.then(|| action.to_owned()),
        ..ComponentHealth::new("deadLetters", if is_many { Status::Degraded } else { Status::Healthy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn seen() -> Seen {
        Seen { timestamp: 5, latency_ms: 1, projections: Vec::new(), pools: Vec::new(), letters: 0 }
    }

    fn projection(name: &str, lag: u64) -> SeenProjection {
        SeenProjection {
            name: name.to_owned(),
            status: Some(Lifecycle::Active),
            lag,
            processed: 0,
            error: None,
        }
    }

    fn pool(name: &str, depth: u64) -> SeenPool {
        SeenPool { name: name.to_owned(), depth, max_depth: 20 }
    }

    fn ready(seen: Seen) -> (Status, Value) {
        let readiness = readiness(&Ok(Arc::new(seen)), &HealthRules::default(), 9);
        (readiness.status, serde_json::to_value(&readiness).unwrap())
    }

    fn whole(seen: Seen) -> SystemHealth {
        system(&Ok(Arc::new(seen)), &HealthRules::default(), 9)
    }

    #[test]
    fn b_237_all_fine_is_ready() {
        let fine = Seen {
            projections: vec![projection("orderSummary", 0)],
            pools: vec![pool("projectionPool", 0)],
            ..seen()
        };
        let (status, json) = ready(fine);
        assert_eq!(status, Status::Healthy);
        for part in ["eventStore", "projections", "workpool"] {
            assert_eq!(json["components"][part], "healthy", "{part}");
        }
    }

    #[test]
    fn b_238_a_projection_that_is_late_closes_the_gate_though_it_is_degraded() {
        let late = Seen { projections: vec![projection("orderSummary", 500)], ..seen() };
        let (status, json) = ready(late);
        assert_eq!(status, Status::Unhealthy);
        assert_eq!(
            (&json["components"]["projections"], &json["details"]["orderSummary"]["lag"]),
            (&json!("degraded"), &json!(500))
        );
        assert_eq!(ready(Seen { projections: vec![projection("a", 100)], ..seen() }).0, Status::Healthy);
    }

    #[test]
    fn a_projection_that_is_rebuilt_is_told_and_does_not_close_the_gate() {
        let rebuilding = Some(Lifecycle::Rebuilding);
        let one = SeenProjection { status: rebuilding, ..projection("orderSummary", 5_000) };
        let (status, json) = ready(Seen { projections: vec![one], ..seen() });
        assert_eq!(status, Status::Healthy);
        assert_eq!(json["details"]["orderSummary"]["lag"], 5_000);
    }

    #[test]
    fn a_projection_that_is_paused_is_degraded_and_closes_the_gate_when_it_is_late() {
        let paused = |lag| {
            let one = SeenProjection { status: Some(Lifecycle::Paused), ..projection("orderSummary", lag) };
            Seen { projections: vec![one], ..seen() }
        };
        assert_eq!((whole(paused(0)).status, ready(paused(0)).0), (Status::Degraded, Status::Healthy));
        assert_eq!((whole(paused(150)).status, ready(paused(150)).0), (Status::Degraded, Status::Unhealthy));
        assert_eq!(
            (whole(paused(5_000)).status, ready(paused(5_000)).0),
            (Status::Unhealthy, Status::Unhealthy)
        );
    }

    #[test]
    fn b_239_a_store_that_is_not_there_is_named() {
        let gone = readiness(&Err("STORE_UNAVAILABLE"), &HealthRules::default(), 9);
        assert_eq!((gone.status, gone.timestamp), (Status::Unhealthy, 9));
        assert_eq!(gone.components["eventStore"], Status::Unhealthy);
        assert_eq!(gone.error, Some("STORE_UNAVAILABLE"));
        assert_eq!(system(&Err("STORE_UNAVAILABLE"), &HealthRules::default(), 9).status, Status::Unhealthy);
    }

    #[test]
    fn b_240_a_pool_that_is_behind_closes_the_gate_and_says_what_helps() {
        let (status, json) = ready(Seen { pools: vec![pool("projectionPool", 25)], ..seen() });
        assert_eq!(status, Status::Unhealthy);
        let told = &json["details"]["projectionPool"];
        assert_eq!(json["components"]["workpool_backlog"], "degraded");
        assert_eq!((&told["depth"], &told["suggestedAction"]), (&json!(25), &json!(REDUCE)));
        for depth in [15, 20] {
            let (status, json) = ready(Seen { pools: vec![pool("projectionPool", depth)], ..seen() });
            assert_eq!((status, &json["components"]["workpool"]), (Status::Healthy, &json!("healthy")));
        }
    }

    #[test]
    fn who_is_confined_to_a_tenant_is_told_grades_and_nothing_of_others() {
        let broken = SeenProjection { error: Some("secret".to_owned()), ..projection("orderSummary", 500) };
        let all =
            whole(Seen { projections: vec![broken], pools: vec![pool("projectionPool", 25)], ..seen() });
        assert!(serde_json::to_string(&all).unwrap().contains("secret"));
        let told = without_details(all.clone());
        assert_eq!((told.status, told.summary), (all.status, all.summary));
        let json = serde_json::to_string(&told).unwrap();
        for hidden in ["secret", "orderSummary", "projectionPool", "500"] {
            assert!(!json.contains(hidden), "{json}");
        }
        assert!(json.contains(REDUCE), "{json}");
    }

    #[test]
    fn b_247_letters_degrade_and_never_more() {
        assert_eq!(whole(Seen { letters: 9, ..seen() }).summary.healthy, 4);
        for letters in [10, 1_000_000] {
            let degraded = whole(Seen { letters, ..seen() });
            assert_eq!((degraded.status, degraded.summary.degraded), (Status::Degraded, 1));
        }
        assert_eq!(ready(Seen { letters: 1_000, ..seen() }).0, Status::Healthy, "no business of a probe");
    }

    #[test]
    fn b_248_lag_degrades_and_in_the_end_is_unhealthy() {
        let of = |lag| whole(Seen { projections: vec![projection("orderSummary", lag)], ..seen() }).status;
        assert_eq!((of(90), of(150), of(5_000)), (Status::Healthy, Status::Degraded, Status::Unhealthy));
    }
}
