//! The table of circuits.

use mainstay_store::migrations::{Component, Script, Step};

/// What circuits need; give it to [`Options::component`](mainstay_store::Options::component).
pub static COMPONENT: Component = Component { name: "circuits", steps: &[CREATE_CIRCUITS] };

/// One row for each circuit that ever counted something. `version` grows with every change, so that whoever hears of two
/// knows which is newer.
///
/// `mainstay_circuit_writers`: the last transaction of each node, so that whoever did not hear of its own commit can look.
const CREATE_CIRCUITS: Step =
    Step { name: "create_circuits", script: Script::Both(&[CIRCUITS, WRITERS]), needs: 0 };

const CIRCUITS: &str = "CREATE TABLE mainstay_circuits (
    name TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    state BIGINT NOT NULL,
    failure_count BIGINT NOT NULL,
    success_count BIGINT NOT NULL,
    last_failure_at BIGINT,
    opened_at BIGINT,
    probe_scheduled_at BIGINT,
    probe_run_id TEXT,
    probe_until BIGINT,
    forced TEXT,
    settings TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    version BIGINT NOT NULL)";

const WRITERS: &str = "CREATE TABLE mainstay_circuit_writers (
    node BIGINT NOT NULL PRIMARY KEY, mark BIGINT NOT NULL, at_ms BIGINT NOT NULL)";
