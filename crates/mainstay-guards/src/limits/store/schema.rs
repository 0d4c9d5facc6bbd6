//! The tables of named limits.

use mainstay_store::migrations::{Component, Script, Step};

/// What named limits need; give it to [`Options::component`](mainstay_store::Options::component).
pub static COMPONENT: Component = Component { name: "limits", steps: &[CREATE_LIMITS, CREATE_HELD] };

/// - `mainstay_limits`: what each limit is now.
/// - `mainstay_limit_versions`: what it was, for budgets that were last used then.
/// - `mainstay_budgets`: what is missing from the budgets of keys. `id` is the limit's name, the shard and the key. A
///   budget that has recovered is as good as none, and is removed when others come.
const CREATE_LIMITS: Step = Step {
    name: "create_limits",
    script: Script::Each {
        sqlite: &[
            LIMITS,
            VERSIONS,
            "CREATE TABLE mainstay_budgets (
                id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY, version BIGINT NOT NULL, missing BIGINT NOT NULL,
                at_ms BIGINT NOT NULL, blocked_until BIGINT NOT NULL) WITHOUT ROWID",
        ],
        postgres: &[
            LIMITS,
            VERSIONS,
            // Room in each page lets an update stay in it, without touching the index.
            "CREATE TABLE mainstay_budgets (
                id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY, version BIGINT NOT NULL, missing BIGINT NOT NULL,
                at_ms BIGINT NOT NULL, blocked_until BIGINT NOT NULL) WITH (fillfactor = 50)",
        ],
    },
    needs: 0,
};

/// `mainstay_held`: the slots of keys that are taken. `id` is the prefix and the key, `leases` are 32 bytes each, and
/// `until_ms` is when the last one is over.
const CREATE_HELD: Step = Step {
    name: "create_held",
    script: Script::Each {
        sqlite: &["CREATE TABLE mainstay_held (
            id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY, leases BLOB NOT NULL, until_ms BIGINT NOT NULL) WITHOUT ROWID"],
        postgres: &["CREATE TABLE mainstay_held (
            id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY, leases BYTEA NOT NULL, until_ms BIGINT NOT NULL)
            WITH (fillfactor = 50)"],
    },
    needs: 0,
};

const LIMITS: &str = "CREATE TABLE mainstay_limits (
    name TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    definition TEXT NOT NULL,
    changed_at BIGINT NOT NULL)";

const VERSIONS: &str = "CREATE TABLE mainstay_limit_versions (
    name TEXT COLLATE \"binary\" NOT NULL,
    version BIGINT NOT NULL,
    definition TEXT NOT NULL,
    PRIMARY KEY (name, version))";
