//! Fuzz targets: one plain function for each parser of untrusted input.
//!
//! A target takes any bytes and panics when a promise does not hold. It has no state, so an input can be tried alone.
//!
//! - `targets`: the targets
//! - `mutate`: inputs made from others, from a seed
//!
//! Tests replay `fuzz/corpus/TARGET` on stable Rust. `fuzz/run` lets libFuzzer look for further inputs. An input that failed
//! once is added to the corpus with its fix.

mod mutate;
mod targets;

pub use mutate::Mutator;
pub use targets::{config, cron, cursor, json, query, signature, sql, traceparent};

/// A target and its name, which is also the folder of its corpus.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name.
    pub name: &'static str,
    /// Tries an input.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: [Target; 8] = [
    Target { name: "config", run: config },
    Target { name: "cron", run: cron },
    Target { name: "cursor", run: cursor },
    Target { name: "json", run: json },
    Target { name: "query", run: query },
    Target { name: "signature", run: signature },
    Target { name: "sql", run: sql },
    Target { name: "traceparent", run: traceparent },
];
