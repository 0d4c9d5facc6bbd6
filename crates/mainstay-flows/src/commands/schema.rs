//! The tables of commands.

use super::snapshots::{CREATE_SNAPSHOTS, INDEX_SNAPSHOTS};
use mainstay_store::migrations::{Component, Script, Step};

/// What commands need; give it to [`Options::component`](mainstay_store::Options::component).
pub static COMPONENT: Component =
    Component { name: "commands", steps: &[CREATE_COMMANDS, CREATE_SNAPSHOTS, INDEX_SNAPSHOTS] };

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
