//! The table of publications.

use crate::tenants::{CREATE_TENANT_OF, DROP_TENANT_OF};
use mainstay_store::migrations::{Component, Script, Step};

/// What publications need; give it to [`Options::component`](mainstay_store::Options::component).
pub static COMPONENT: Component =
    Component { name: "publications", steps: &[CREATE_PUBLICATIONS, KEEP_ATTEMPTS, KEY_BY_TENANT] };

/// One row for each event and target. `event` is all of the event as the target is to see it, or as it was before if it
/// could not be translated; `work_id` the item that delivers it, or did; `attempts_before` the executions of items before
/// that one. `letter` says what was done about a publication that was not delivered, and is empty for all others.
const CREATE_PUBLICATIONS: Step = Step {
    name: "create_publications",
    script: Script::Both(&[PUBLICATIONS, BY_STATUS, BY_TARGET, LETTERS, LETTERS_IN_ORDER]),
    needs: 0,
};

/// `history`: the attempts of a publication that was not delivered, see `attempts`. Before there was this column they were in
/// the letters of its work, and programs that do not know it keep them there.
const KEEP_ATTEMPTS: Step = Step {
    name: "keep_attempts",
    script: Script::Both(&["ALTER TABLE mainstay_publications ADD COLUMN history TEXT"]),
    needs: 0,
};

/// The columns of the first table, in the text of its step, which may not change.
macro_rules! columns {
    () => {
        "    id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    event_id TEXT COLLATE \"binary\" NOT NULL,
    target TEXT COLLATE \"binary\" NOT NULL,
    source_context TEXT NOT NULL,
    event_type TEXT NOT NULL,
    correlation_id TEXT,
    status TEXT COLLATE \"binary\" NOT NULL,
    work_id TEXT,
    attempts_before BIGINT NOT NULL,
    attempt_count BIGINT NOT NULL,
    error TEXT,
    created_at BIGINT NOT NULL,
    delivered_at BIGINT,
    letter TEXT COLLATE \"binary\",
    failed_at BIGINT,
    retry_count BIGINT NOT NULL,
    retried_at BIGINT,
    resolved_at BIGINT,
    is_translated BIGINT NOT NULL,
    event TEXT NOT NULL,
"
    };
}

const PUBLICATIONS: &str =
    concat!("CREATE TABLE mainstay_publications (\n", columns!(), "    UNIQUE (event_id, target))");

const BY_STATUS: &str = "CREATE INDEX mainstay_publications_by_status ON mainstay_publications (status, id)";
const BY_TARGET: &str =
    "CREATE INDEX mainstay_publications_by_target ON mainstay_publications (target, status, id)";
const LETTERS: &str = "CREATE INDEX mainstay_publications_letters ON mainstay_publications (target, letter, id) \
     WHERE letter IS NOT NULL";
const LETTERS_IN_ORDER: &str = "CREATE INDEX mainstay_publications_letters_in_order ON mainstay_publications (id) WHERE letter IS NOT NULL";

/// An event is known by its id within its tenant, which is empty for events without one. `delivery_key` is what receivers
/// recognise the event by, where that is not `pub:{eventId}:{target}`: publications from before keep theirs. SQLite cannot
/// change a UNIQUE, so the table is made anew.
const KEY_BY_TENANT: Step = Step {
    name: "key_by_tenant",
    script: Script::Each {
        sqlite: &[
            concat!(
                "CREATE TABLE mainstay_publications_by_tenant (\n",
                columns!(),
                "    history TEXT,
    tenant TEXT COLLATE \"binary\" NOT NULL DEFAULT '',
    delivery_key TEXT,
    UNIQUE (event_id, target, tenant))"
            ),
            "INSERT INTO mainstay_publications_by_tenant (id, event_id, target, source_context, event_type, \
             correlation_id, status, work_id, attempts_before, attempt_count, error, created_at, delivered_at, letter, \
             failed_at, retry_count, retried_at, resolved_at, is_translated, event, history, tenant) SELECT id, event_id, \
             target, source_context, event_type, correlation_id, status, work_id, attempts_before, attempt_count, error, \
             created_at, delivered_at, letter, failed_at, retry_count, retried_at, resolved_at, is_translated, event, \
             history, CASE WHEN event LIKE '%\"tenantId\"%' AND json_valid(event) \
             THEN coalesce(json_extract(event, '$.tenantId'), '') ELSE '' END FROM mainstay_publications",
            "DROP TABLE mainstay_publications",
            "ALTER TABLE mainstay_publications_by_tenant RENAME TO mainstay_publications",
            BY_STATUS,
            BY_TARGET,
            LETTERS,
            LETTERS_IN_ORDER,
        ],
        postgres: &[
            "ALTER TABLE mainstay_publications ADD COLUMN tenant TEXT COLLATE \"binary\" NOT NULL DEFAULT ''",
            "ALTER TABLE mainstay_publications ADD COLUMN delivery_key TEXT",
            CREATE_TENANT_OF,
            "UPDATE mainstay_publications SET tenant = mainstay_tenant_of(event) WHERE event LIKE '%\"tenantId\"%'",
            DROP_TENANT_OF,
            "ALTER TABLE mainstay_publications DROP CONSTRAINT mainstay_publications_event_id_target_key",
            "ALTER TABLE mainstay_publications ADD CONSTRAINT mainstay_publications_once \
             UNIQUE (event_id, target, tenant)",
        ],
    },
    needs: 3,
};
