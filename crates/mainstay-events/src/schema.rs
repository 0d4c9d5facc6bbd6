//! The tables of the log.

use mainstay_store::migrations::{Component, Script, Step};

/// What the log needs; give it to [`Options::component`](mainstay_store::Options::component).
pub static COMPONENT: Component = Component { name: "events", steps: &[CREATE_LOG] };

/// - `mainstay_log`: which log this is. `term_key` seeds the hashes of the index, so that nobody can make terms
///   that collide. Up to `indexed` the table of terms is whole, where the newest are kept in memory.
/// - `mainstay_log_head`: the row whose lock orders the appends of all nodes. SQLite has one writer, and the head is
///   the last row of the events.
/// - `mainstay_events`: see `record`. A payload is never NULL: an erased one is a mark.
/// - `mainstay_event_terms`: see `index`. Derived from the events, and can be rebuilt.
const CREATE_LOG: Step = Step {
    name: "create_log",
    script: Script::Each {
        sqlite: &[
            LOG,
            "CREATE TABLE mainstay_events (
                position INTEGER NOT NULL PRIMARY KEY, header BLOB NOT NULL, payload BLOB)",
            "CREATE TABLE mainstay_event_terms (
                term BIGINT NOT NULL, position BIGINT NOT NULL, PRIMARY KEY (term, position)) WITHOUT ROWID",
            SCOPES,
            AUDITS,
            ERASURES,
        ],
        postgres: &[
            LOG,
            "CREATE TABLE mainstay_log_head (
                id BIGINT NOT NULL PRIMARY KEY, position BIGINT NOT NULL, timestamp_ms BIGINT NOT NULL)
                WITH (fillfactor = 10)",
            "INSERT INTO mainstay_log_head (id, position, timestamp_ms) VALUES (1, 0, 0)",
            "CREATE TABLE mainstay_events (
                position BIGINT NOT NULL PRIMARY KEY, header BYTEA NOT NULL, payload BYTEA)",
            "CREATE TABLE mainstay_event_terms (
                term BIGINT NOT NULL, position BIGINT NOT NULL, PRIMARY KEY (term, position))",
            SCOPES,
            AUDITS,
            ERASURES,
        ],
    },
    needs: 0,
};

const LOG: &str = "CREATE TABLE mainstay_log (
    name TEXT NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL,
    indexed BIGINT NOT NULL,
    term_key TEXT NOT NULL,
    began_at BIGINT NOT NULL)";

const SCOPES: &str = "CREATE TABLE mainstay_scopes (
    scope_key TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    updated_at BIGINT NOT NULL)";

const AUDITS: &str = "CREATE TABLE mainstay_idempotency_audits (
    audit_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    idempotency_key TEXT NOT NULL,
    tenant_id TEXT,
    reason TEXT NOT NULL,
    existing_event_id TEXT NOT NULL,
    existing_position BIGINT NOT NULL,
    attempted_type TEXT NOT NULL,
    attempted_correlation_id TEXT,
    refused_at BIGINT NOT NULL)";

const ERASURES: &str = "CREATE TABLE mainstay_erasures (
    erasure_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    selector TEXT NOT NULL,
    tenant_id TEXT,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    events BIGINT NOT NULL,
    began_at BIGINT NOT NULL,
    ended_at BIGINT)";
