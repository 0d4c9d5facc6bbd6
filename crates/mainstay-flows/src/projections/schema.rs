//! The tables of projections.

use mainstay_store::migrations::{Component, Script, Step};

/// What projections need; give it to [`Options::component`](mainstay_store::Options::component).
pub static COMPONENT: Component = Component {
    name: "projections",
    steps: &[
        CREATE_PROJECTIONS,
        ONE_REPLAY_EACH,
        FIND_BY_CORRELATION,
        CREATE_MARKS,
        KEEP_ATTEMPTS,
        NAME_ITEMS,
    ],
};

/// - `mainstay_projections`: one row each. `generation` is the one that readers see, `shape` what its managed tables are
///   made of; `catch_up_to` is where a rebuilt projection is active again; `version` grows with every change.
/// - `mainstay_projection_lanes`: the checkpoints, and all that a chunk must know, in the one row that it holds. `state`
///   is 0 for a lane that follows, 1 for one that is held, 2 for one that catches up after a rebuild.
/// - `mainstay_projection_failures`: events that a handler has failed for, see `failures`.
/// - `mainstay_replays`: see `replay`.
const CREATE_PROJECTIONS: Step = Step {
    name: "create_projections",
    script: Script::Both(&[
        PROJECTIONS,
        LANES,
        FAILURES,
        BY_POSITION,
        BY_STATUS,
        BY_RUN,
        REPLAYS,
        REPLAYS_OF,
        REPLAYS_BY,
    ]),
    needs: 0,
};

/// `history`: the attempts of an event that became a dead letter, or may, see `attempts`.
const KEEP_ATTEMPTS: Step = Step {
    name: "keep_attempts",
    script: Script::Both(&["ALTER TABLE mainstay_projection_failures ADD COLUMN history TEXT"]),
    needs: 0,
};

/// `item`: the item of work that goes on with a replay, with its step, see `completion`.
const NAME_ITEMS: Step = Step {
    name: "name_items",
    script: Script::Both(&["ALTER TABLE mainstay_replays ADD COLUMN item TEXT"]),
    needs: 0,
};

const PROJECTIONS: &str = "CREATE TABLE mainstay_projections (
    name TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    status TEXT NOT NULL,
    generation BIGINT NOT NULL,
    shape TEXT NOT NULL,
    catch_up_to BIGINT,
    error_message TEXT,
    version BIGINT NOT NULL,
    updated_at BIGINT NOT NULL)";

const LANES: &str = "CREATE TABLE mainstay_projection_lanes (
    projection TEXT COLLATE \"binary\" NOT NULL,
    lane BIGINT NOT NULL,
    lanes BIGINT NOT NULL,
    position BIGINT NOT NULL,
    event_id TEXT,
    generation BIGINT NOT NULL,
    state BIGINT NOT NULL,
    events_processed BIGINT NOT NULL,
    events_failed BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (projection, lane))";

const FAILURES: &str = "CREATE TABLE mainstay_projection_failures (
    projection TEXT COLLATE \"binary\" NOT NULL,
    event_id TEXT COLLATE \"binary\" NOT NULL,
    generation BIGINT NOT NULL,
    position BIGINT NOT NULL,
    event_type TEXT NOT NULL,
    correlation_id TEXT COLLATE \"binary\" NOT NULL,
    is_poison BIGINT NOT NULL,
    status TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    error TEXT NOT NULL,
    failed_at BIGINT NOT NULL,
    retry_started_at BIGINT,
    retry_run_id TEXT,
    last_retry_at BIGINT,
    retry_count BIGINT NOT NULL,
    last_error TEXT,
    resolved_at BIGINT,
    trace TEXT,
    PRIMARY KEY (projection, event_id, generation))";

const BY_POSITION: &str = "CREATE INDEX mainstay_projection_failures_by_position \
     ON mainstay_projection_failures (projection, position)";
const BY_STATUS: &str = "CREATE INDEX mainstay_projection_failures_by_status \
     ON mainstay_projection_failures (status, projection, position)";
const BY_RUN: &str = "CREATE INDEX mainstay_projection_failures_by_run \
     ON mainstay_projection_failures (retry_run_id)";

const REPLAYS: &str = "CREATE TABLE mainstay_replays (
    replay_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    projection TEXT COLLATE \"binary\" NOT NULL,
    status TEXT NOT NULL,
    generation BIGINT,
    shape TEXT NOT NULL,
    start_position BIGINT NOT NULL,
    last_position BIGINT NOT NULL,
    target_position BIGINT NOT NULL,
    chunk_size BIGINT NOT NULL,
    total_events BIGINT NOT NULL,
    events_processed BIGINT NOT NULL,
    chunks_completed BIGINT NOT NULL,
    step BIGINT NOT NULL,
    error TEXT,
    started_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    completed_at BIGINT)";

const REPLAYS_OF: &str =
    "CREATE INDEX mainstay_replays_of ON mainstay_replays (projection, started_at, replay_id)";
const REPLAYS_BY: &str = "CREATE INDEX mainstay_replays_by_status ON mainstay_replays (status)";

/// At most one replay of a projection runs, whatever the clock says about which is the latest. What the clock has let by
/// before is put right first: a replay that another one has followed is over.
const ONE_REPLAY_EACH: Step =
    Step { name: "one_replay_each", script: Script::Both(&[END_FOLLOWED, END_BESIDE, ONE_RUNS]), needs: 0 };

const END_FOLLOWED: &str = "UPDATE mainstay_replays SET status = 'cancelled' WHERE status IN ('failed', 'paused') \
     AND EXISTS (SELECT 1 FROM mainstay_replays later WHERE later.projection = mainstay_replays.projection \
     AND (later.started_at > mainstay_replays.started_at OR (later.started_at = mainstay_replays.started_at \
     AND later.replay_id > mainstay_replays.replay_id)))";
const END_BESIDE: &str = "UPDATE mainstay_replays SET status = 'cancelled', completed_at = updated_at \
     WHERE status = 'running' AND EXISTS (SELECT 1 FROM mainstay_replays other \
     WHERE other.projection = mainstay_replays.projection AND other.status = 'running' \
     AND other.replay_id > mainstay_replays.replay_id)";
const ONE_RUNS: &str =
    "CREATE UNIQUE INDEX mainstay_replays_one_runs ON mainstay_replays (projection) WHERE status = 'running'";

/// Whoever follows a request finds what failed of it without looking at all that ever failed.
const FIND_BY_CORRELATION: Step =
    Step { name: "find_by_correlation", script: Script::Both(&[BY_CORRELATION]), needs: 0 };

const BY_CORRELATION: &str = "CREATE INDEX mainstay_projection_failures_by_correlation \
     ON mainstay_projection_failures (correlation_id, position)";

/// See `marks`. `skipped_after` is where an operator has taken a lane from that was put forward to here.
const CREATE_MARKS: Step = Step { name: "create_marks", script: Script::Both(&[MARKS]), needs: 0 };

const MARKS: &str = "CREATE TABLE mainstay_projection_marks (
    projection TEXT COLLATE \"binary\" NOT NULL,
    lane BIGINT NOT NULL,
    position BIGINT NOT NULL,
    reached_at BIGINT NOT NULL,
    skipped_after BIGINT,
    PRIMARY KEY (projection, lane, position))";
