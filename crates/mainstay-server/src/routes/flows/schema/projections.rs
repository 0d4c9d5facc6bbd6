//! Descriptions of read models.

use utoipa::ToSchema;

#[derive(ToSchema)]
pub(in crate::routes::flows) struct Projections {
    projections: Vec<Projection>,
}

/// How a read model is doing.
#[derive(ToSchema)]
#[schema(as = Projection, rename_all = "camelCase")]
pub(in crate::routes::flows) struct Projection {
    projection: String,
    description: String,
    category: Category,
    kind: Kind,
    status: ProjectionStatus,
    /// Its lowest checkpoint.
    last_global_position: u64,
    /// How many events it has still to look at.
    lag: u64,
    /// How many lanes it has.
    partitions: u32,
    /// How many events its handler has taken.
    events_processed: u64,
    /// How many were given up.
    events_failed: u64,
    /// Why it cannot go on.
    error_message: Option<String>,
    /// Which generation readers see.
    generation: i64,
    /// Whether its managed tables have changed, so that it waits to be rebuilt.
    is_outdated: bool,
    updated_at: i64,
}

#[derive(ToSchema)]
#[schema(as = ProjectionCategory, rename_all = "lowercase")]
enum Category {
    Logic,
    View,
    Reporting,
    Integration,
}

#[derive(ToSchema)]
#[schema(as = ProjectionKind)]
enum Kind {
    #[schema(rename = "primary")]
    Primary,
    #[schema(rename = "secondary")]
    Secondary,
    #[schema(rename = "cross-context")]
    CrossContext,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum ProjectionStatus {
    Active,
    Rebuilding,
    Paused,
    Error,
}

#[derive(ToSchema)]
pub(in crate::routes::flows) struct Checkpoints {
    checkpoints: Vec<Checkpoint>,
}

/// Where a lane of a read model is.
#[derive(ToSchema)]
#[schema(as = Checkpoint, rename_all = "camelCase")]
struct Checkpoint {
    projection: String,
    /// The lane, from 0.
    partition: u32,
    /// Everything up to here is in the read model, or was given up.
    last_global_position: u64,
    last_event_id: Option<String>,
    updated_at: i64,
}
