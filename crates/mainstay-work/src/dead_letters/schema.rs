//! The table of operations.
//!
//! Its first steps list letters of other sources that are older than the inbox, so the tables of these sources come first.

use mainstay_store::migrations::{Component, Script, Step};

/// What the inbox needs; give it to [`Options::component`](mainstay_store::Options::component), behind the components of
/// work, projections and publications.
pub static COMPONENT: Component = Component {
    name: "dead_letters",
    steps: &[
        CREATE_OPERATIONS,
        COUNT_WHAT_IS_LEFT,
        NOTE_WHO_RUNS,
        NAME_ITEMS,
        LIST_QUARANTINED_EVENTS,
        TELL_PARTIAL,
    ],
};

/// One row for everything that was done about letters, kept for those who ask later. `letter` is the only one that it is
/// about, if it is about one; `highest` the last number that it may touch, `reached` how far it is, `step` the item of work
/// that is to go on with it. Letters from before there was an inbox are listed.
const CREATE_OPERATIONS: Step = Step {
    name: "create_letter_operations",
    script: Script::Both(&[OPERATIONS, BY_CHANGE, LIST_PROJECTIONS, LIST_PUBLICATIONS, UNLIST_THEIR_WORK]),
    needs: 0,
};

/// `left_over`: letters of projections and targets that the node did not know that came to them.
const COUNT_WHAT_IS_LEFT: Step = Step {
    name: "count_what_is_left",
    script: Script::Both(&[
        "ALTER TABLE mainstay_letter_operations ADD COLUMN left_over BIGINT NOT NULL DEFAULT 0",
    ]),
    needs: 0,
};

/// `run_by`, `cancelled_by`: who let it run and who stopped it, which need not be who asked for it.
const NOTE_WHO_RUNS: Step = Step {
    name: "note_who_runs",
    script: Script::Both(&[
        "ALTER TABLE mainstay_letter_operations ADD COLUMN run_by TEXT",
        "ALTER TABLE mainstay_letter_operations ADD COLUMN cancelled_by TEXT",
    ]),
    needs: 0,
};

/// `item`: the item of work that goes on with an operation, with its step, see `completion`.
const NAME_ITEMS: Step = Step {
    name: "name_items",
    script: Script::Both(&["ALTER TABLE mainstay_letter_operations ADD COLUMN item TEXT"]),
    needs: 0,
};

/// Quarantined events from before they were dead letters are listed.
const LIST_QUARANTINED_EVENTS: Step =
    Step { name: "list_quarantined_events", script: Script::Both(&[LIST_QUARANTINED]), needs: 0 };

/// `is_partial`: the preview has not looked at all letters.
const TELL_PARTIAL: Step = Step {
    name: "tell_partial",
    script: Script::Both(&[
        "ALTER TABLE mainstay_letter_operations ADD COLUMN is_partial BIGINT NOT NULL DEFAULT 0",
    ]),
    needs: 0,
};

const OPERATIONS: &str = "CREATE TABLE mainstay_letter_operations (
    operation_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    action TEXT NOT NULL,
    filter TEXT NOT NULL,
    letter BIGINT,
    asked_by TEXT NOT NULL,
    status TEXT NOT NULL,
    preview TEXT NOT NULL,
    total BIGINT NOT NULL,
    highest BIGINT NOT NULL,
    reached BIGINT NOT NULL,
    step BIGINT NOT NULL,
    done BIGINT NOT NULL,
    skipped BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    failures TEXT NOT NULL,
    error TEXT,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    updated_at BIGINT NOT NULL,
    ended_at BIGINT)";

const BY_CHANGE: &str =
    "CREATE INDEX mainstay_letter_operations_by_change ON mainstay_letter_operations (updated_at)";

const LIST_PROJECTIONS: &str = "INSERT INTO mainstay_dead_letters \
     (kind, name, reference, status, error_group, failed_at, changed_at, retries, correlation, error) \
     SELECT 'projection', projection, event_id, CASE status WHEN 'pending' THEN 0 WHEN 'retrying' THEN 1 \
     WHEN 'resolved' THEN 2 ELSE 3 END, 0, failed_at, failed_at, retry_count, correlation_id, \
     substr(coalesce(last_error, error), 1, 500) FROM mainstay_projection_failures \
     WHERE is_poison = 0 AND status <> 'failing' \
     AND generation = (SELECT p.generation FROM mainstay_projections p WHERE p.name = projection) ORDER BY failed_at \
     ON CONFLICT (kind, name, reference) DO NOTHING";
const LIST_QUARANTINED: &str = "INSERT INTO mainstay_dead_letters \
     (kind, name, reference, status, error_group, failed_at, changed_at, retries, correlation, error) \
     SELECT 'quarantinedEvent', projection, event_id, CASE status WHEN 'quarantined' THEN 0 WHEN 'replayed' THEN 1 \
     ELSE 3 END, 0, failed_at, failed_at, retry_count, correlation_id, \
     substr(coalesce(last_error, error), 1, 500) FROM mainstay_projection_failures \
     WHERE is_poison = 1 AND status <> 'failing' \
     AND generation = (SELECT p.generation FROM mainstay_projections p WHERE p.name = projection) ORDER BY failed_at \
     ON CONFLICT (kind, name, reference) DO NOTHING";
const LIST_PUBLICATIONS: &str = "INSERT INTO mainstay_dead_letters \
     (kind, name, reference, status, error_group, failed_at, changed_at, retries, correlation, error) \
     SELECT 'publication', target, id, CASE letter WHEN 'pending' THEN 0 WHEN 'retrying' THEN 1 \
     WHEN 'resolved' THEN 2 ELSE 3 END, 0, coalesce(failed_at, created_at), coalesce(failed_at, created_at), retry_count, \
     correlation_id, substr(coalesce(error, ''), 1, 500) FROM mainstay_publications WHERE letter IS NOT NULL \
     ORDER BY id ON CONFLICT (kind, name, reference) DO NOTHING";
/// The work of projections and publications has letters too, which are theirs.
const UNLIST_THEIR_WORK: &str = "DELETE FROM mainstay_dead_letters \
     WHERE name LIKE 'mainstay.publication.deliver:%' OR name IN ('mainstay.projection.apply', 'mainstay.projection.reapply')";
