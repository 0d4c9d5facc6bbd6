//! Wire types: requests, responses, problems and cursors, each with serde and an OpenAPI schema.
//!
//! Routes, the OpenAPI document, the console and the CLI use these types. A module holds one route family. Domain crates may
//! return them; a type exists here once and has no shadow elsewhere.

pub mod metrics;
pub mod problem;
pub mod traces;

pub use metrics::{CommandLatency, MetricsReport};
pub use problem::Problem;
pub use traces::{EventFlow, FlowCommand, FlowEvent, FlowLetter, ProjectionUpdate};
