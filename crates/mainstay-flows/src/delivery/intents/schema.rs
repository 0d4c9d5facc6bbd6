//! The table of intents.

use mainstay_store::migrations::{Component, Script, Step};

/// What intents need; give it to [`Options::component`](mainstay_store::Options::component).
pub static COMPONENT: Component =
    Component { name: "intents", steps: &[CREATE_INTENTS, FIND_BY_TENANT, FIND_OVERDUE] };

/// One row for each intent, forgotten a while after it has ended. `status` is 0 for those that nobody has completed;
/// `timeouts` is the number of the timer that counts: others are late.
const CREATE_INTENTS: Step = Step {
    name: "create_intents",
    script: Script::Both(&[INTENTS, BY_STATUS, BY_OPERATION, BY_CORRELATION, BY_EXPIRY]),
    needs: 0,
};

/// Whose an intent is; empty for those of nobody in particular, which cost nothing here.
const FIND_BY_TENANT: Step = Step {
    name: "find_by_tenant",
    script: Script::Both(&[TENANT, BY_TENANT, BY_TENANT_AND_OPERATION]),
    needs: 0,
};

/// Those whose time is up are counted without looking at the others.
const FIND_OVERDUE: Step = Step { name: "find_overdue", script: Script::Both(&[OVERDUE]), needs: 0 };

const OVERDUE: &str =
    "CREATE INDEX mainstay_intents_overdue ON mainstay_intents (timeout_at) WHERE status = 0";

const INTENTS: &str = "CREATE TABLE mainstay_intents (
    intent_key TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    operation_type TEXT COLLATE \"binary\" NOT NULL,
    correlation_id TEXT COLLATE \"binary\" NOT NULL,
    status BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    timeout_at BIGINT NOT NULL,
    timeouts BIGINT NOT NULL,
    ended_at BIGINT,
    expires_at BIGINT,
    intent TEXT NOT NULL)";

const BY_STATUS: &str =
    "CREATE INDEX mainstay_intents_by_status ON mainstay_intents (status, started_at, intent_key)";

const BY_OPERATION: &str = "CREATE INDEX mainstay_intents_by_operation ON mainstay_intents \
     (operation_type, status, started_at, intent_key)";

const BY_CORRELATION: &str = "CREATE INDEX mainstay_intents_by_correlation ON mainstay_intents \
     (correlation_id, status, started_at, intent_key)";

const BY_EXPIRY: &str =
    "CREATE INDEX mainstay_intents_by_expiry ON mainstay_intents (expires_at) WHERE expires_at IS NOT NULL";

const TENANT: &str = "ALTER TABLE mainstay_intents ADD COLUMN tenant TEXT COLLATE \"binary\"";

const BY_TENANT: &str = "CREATE INDEX mainstay_intents_by_tenant ON mainstay_intents \
     (tenant, status, started_at, intent_key) WHERE tenant IS NOT NULL";

const BY_TENANT_AND_OPERATION: &str = "CREATE INDEX mainstay_intents_by_tenant_and_operation ON mainstay_intents \
     (tenant, operation_type, status, started_at, intent_key) WHERE tenant IS NOT NULL";
