//! The table of intents.

use crate::tenants::{CREATE_TENANT_OF, DROP_TENANT_OF};
use mainstay_store::migrations::{Component, Script, Step};

/// What intents need; give it to [`Options::component`](mainstay_store::Options::component).
pub static COMPONENT: Component =
    Component { name: "intents", steps: &[CREATE_INTENTS, FIND_BY_TENANT, FIND_OVERDUE, KEY_BY_TENANT] };

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

/// Keys are unique within a tenant, which is empty for intents without one. SQLite cannot change a primary key, so the
/// table is made anew; intents are kept for a week after their end.
const KEY_BY_TENANT: Step = Step {
    name: "key_by_tenant",
    script: Script::Each {
        sqlite: &[
            "CREATE TABLE mainstay_intents_keyed (
                intent_key TEXT COLLATE \"binary\" NOT NULL,
                operation_type TEXT COLLATE \"binary\" NOT NULL,
                correlation_id TEXT COLLATE \"binary\" NOT NULL,
                status BIGINT NOT NULL,
                started_at BIGINT NOT NULL,
                timeout_at BIGINT NOT NULL,
                timeouts BIGINT NOT NULL,
                ended_at BIGINT,
                expires_at BIGINT,
                intent TEXT NOT NULL,
                tenant TEXT COLLATE \"binary\" NOT NULL DEFAULT '',
                PRIMARY KEY (intent_key, tenant))",
            "INSERT INTO mainstay_intents_keyed (intent_key, operation_type, correlation_id, status, started_at, \
             timeout_at, timeouts, ended_at, expires_at, intent, tenant) SELECT intent_key, operation_type, \
             correlation_id, status, started_at, timeout_at, timeouts, ended_at, expires_at, intent, \
             CASE WHEN tenant IS NOT NULL THEN tenant WHEN intent LIKE '%\"tenantId\"%' AND json_valid(intent) \
             THEN coalesce(json_extract(intent, '$.tenantId'), '') ELSE '' END FROM mainstay_intents",
            "DROP TABLE mainstay_intents",
            "ALTER TABLE mainstay_intents_keyed RENAME TO mainstay_intents",
            IN_ORDER,
            OPERATIONS_IN_ORDER,
            CORRELATIONS_IN_ORDER,
            BY_EXPIRY,
            OVERDUE,
            TENANTS_IN_ORDER,
            OPERATIONS_OF_TENANTS_IN_ORDER,
        ],
        postgres: &[
            CREATE_TENANT_OF,
            "UPDATE mainstay_intents SET tenant = CASE WHEN intent LIKE '%\"tenantId\"%' \
             THEN mainstay_tenant_of(intent) ELSE '' END WHERE tenant IS NULL",
            DROP_TENANT_OF,
            "ALTER TABLE mainstay_intents ALTER COLUMN tenant SET DEFAULT ''",
            "ALTER TABLE mainstay_intents ALTER COLUMN tenant SET NOT NULL",
            "ALTER TABLE mainstay_intents DROP CONSTRAINT mainstay_intents_pkey",
            "ALTER TABLE mainstay_intents ADD PRIMARY KEY (intent_key, tenant)",
            "DROP INDEX mainstay_intents_by_status",
            "DROP INDEX mainstay_intents_by_operation",
            "DROP INDEX mainstay_intents_by_correlation",
            "DROP INDEX mainstay_intents_by_tenant",
            "DROP INDEX mainstay_intents_by_tenant_and_operation",
            IN_ORDER,
            OPERATIONS_IN_ORDER,
            CORRELATIONS_IN_ORDER,
            TENANTS_IN_ORDER,
            OPERATIONS_OF_TENANTS_IN_ORDER,
        ],
    },
    needs: 4,
};

const IN_ORDER: &str =
    "CREATE INDEX mainstay_intents_by_status ON mainstay_intents (status, started_at, intent_key, tenant)";

const OPERATIONS_IN_ORDER: &str = "CREATE INDEX mainstay_intents_by_operation ON mainstay_intents \
     (operation_type, status, started_at, intent_key, tenant)";

const CORRELATIONS_IN_ORDER: &str = "CREATE INDEX mainstay_intents_by_correlation ON mainstay_intents \
     (correlation_id, status, started_at, intent_key, tenant)";

const TENANTS_IN_ORDER: &str = "CREATE INDEX mainstay_intents_of_tenants ON mainstay_intents \
     (tenant, status, started_at, intent_key) WHERE tenant <> ''";

const OPERATIONS_OF_TENANTS_IN_ORDER: &str = "CREATE INDEX mainstay_intents_of_tenants_by_operation ON mainstay_intents \
     (tenant, operation_type, status, started_at, intent_key) WHERE tenant <> ''";
