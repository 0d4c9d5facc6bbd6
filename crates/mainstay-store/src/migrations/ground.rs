//! The store's own schema: the history of migrations, and what SQL needs to be alike on both databases.

use super::{Component, Script, Step};

/// Applied before every other component.
pub(super) static GROUND: Component =
    Component { name: "store", steps: &[TELL_THE_TIME, ORDER_TEXT_BY_BYTES] };

/// On SQLite the function is registered on each connection. statement_timestamp() is stable within a statement, so
/// `run_at <= mainstay_now()` can use an index, and moves on within a transaction.
const TELL_THE_TIME: Step = Step {
    name: "tell_the_time",
    script: Script::Each {
        sqlite: &[],
        postgres: &["CREATE FUNCTION mainstay_now() RETURNS BIGINT LANGUAGE sql STABLE PARALLEL SAFE AS \
             $$ SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint $$"],
    },
    needs: 0,
};

/// SQLite has this collation by itself; with it, `COLLATE "binary"` is how to ask for one order on both.
const ORDER_TEXT_BY_BYTES: Step = Step {
    name: "order_text_by_bytes",
    script: Script::Each { sqlite: &[], postgres: &["CREATE COLLATION \"binary\" FROM \"C\""] },
    needs: 0,
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
