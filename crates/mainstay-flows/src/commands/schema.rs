//! The tables of commands.

use super::snapshots::{CREATE_SNAPSHOTS, INDEX_SNAPSHOTS};
use crate::tenants::{CREATE_TENANT_OF, DROP_TENANT_OF};
use mainstay_store::migrations::{Component, Script, Step};

/// What commands need; give it to [`Options::component`](mainstay_store::Options::component).
pub static COMPONENT: Component = Component {
    name: "commands",
    steps: &[CREATE_COMMANDS, CREATE_SNAPSHOTS, INDEX_SNAPSHOTS, KEY_BY_TENANT],
};

/// One row for each command that was decided, or that waits to be decided again. `attempt` is the retry that is under way:
/// whoever comes with another one is late.
const CREATE_COMMANDS: Step =
    Step { name: "create_commands", script: Script::Both(&[COMMANDS, BY_CORRELATION, BY_EXPIRY]), needs: 0 };

const COMMANDS: &str = "CREATE TABLE mainstay_commands (
    command_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    command_type TEXT NOT NULL,
    correlation_id TEXT COLLATE \"binary\" NOT NULL,
    state BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    executed_at BIGINT,
    expires_at BIGINT NOT NULL,
    command TEXT NOT NULL,
    result TEXT)";

const BY_CORRELATION: &str =
    "CREATE INDEX mainstay_commands_by_correlation ON mainstay_commands (correlation_id, created_at)";

const BY_EXPIRY: &str = "CREATE INDEX mainstay_commands_by_expiry ON mainstay_commands (expires_at)";

/// Ids are unique within a tenant. `tenant` is empty for commands without one. SQLite cannot change a primary key, so
/// the table is made anew; commands are kept for a week.
const KEY_BY_TENANT: Step = Step {
    name: "key_by_tenant",
    script: Script::Each {
        sqlite: &[
            "CREATE TABLE mainstay_commands_by_tenant (
                command_id TEXT COLLATE \"binary\" NOT NULL,
                command_type TEXT NOT NULL,
                correlation_id TEXT COLLATE \"binary\" NOT NULL,
                state BIGINT NOT NULL,
                attempt BIGINT NOT NULL,
                created_at BIGINT NOT NULL,
                executed_at BIGINT,
                expires_at BIGINT NOT NULL,
                command TEXT NOT NULL,
                result TEXT,
                tenant TEXT COLLATE \"binary\" NOT NULL DEFAULT '',
                PRIMARY KEY (command_id, tenant))",
            "INSERT INTO mainstay_commands_by_tenant (command_id, command_type, correlation_id, state, attempt, \
             created_at, executed_at, expires_at, command, result, tenant) SELECT command_id, command_type, \
             correlation_id, state, attempt, created_at, executed_at, expires_at, command, result, \
             CASE WHEN command LIKE '%\"tenantId\"%' AND json_valid(command) \
             THEN coalesce(json_extract(command, '$.tenantId'), '') ELSE '' END FROM mainstay_commands",
            "DROP TABLE mainstay_commands",
            "ALTER TABLE mainstay_commands_by_tenant RENAME TO mainstay_commands",
            BY_CORRELATION,
            BY_EXPIRY,
        ],
        postgres: &[
            "ALTER TABLE mainstay_commands ADD COLUMN tenant TEXT COLLATE \"binary\" NOT NULL DEFAULT ''",
            CREATE_TENANT_OF,
            "UPDATE mainstay_commands SET tenant = mainstay_tenant_of(command) WHERE command LIKE '%\"tenantId\"%'",
            DROP_TENANT_OF,
            "ALTER TABLE mainstay_commands DROP CONSTRAINT mainstay_commands_pkey",
            "ALTER TABLE mainstay_commands ADD PRIMARY KEY (command_id, tenant)",
        ],
    },
    needs: 4,
};
