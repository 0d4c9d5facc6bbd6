//! The store's own schema: the history of migrations, and the one function that tells the time in SQL.

use super::{Component, Script, Step};

/// Applied before every other component.
pub(super) static GROUND: Component = Component {
    name: "store",
    steps: &[Step {
        name: "tell_the_time",
        // On SQLite the function is registered on each connection. statement_timestamp() is stable within a
        // statement, so `run_at <= mainstay_now()` can use an index, and moves on within a transaction.
        script: Script::Each {
            sqlite: &[],
            postgres: &[
                "CREATE FUNCTION mainstay_now() RETURNS BIGINT LANGUAGE sql STABLE PARALLEL SAFE AS \
                 $$ SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint $$",
            ],
        },
        needs: 0,
    }],
};

/// Where the history is kept. Its shape can never change: every version must be able to read it.
pub(super) const CREATE_HISTORY: &str = "CREATE TABLE IF NOT EXISTS mainstay_migrations (
    component TEXT NOT NULL,
    number BIGINT NOT NULL,
    name TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    needs BIGINT NOT NULL,
    applied_at BIGINT NOT NULL,
    program TEXT NOT NULL,
    PRIMARY KEY (component, number))";
