//! Projections: read models that follow the log.
