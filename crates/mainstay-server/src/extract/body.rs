//! Reads a body that may be too large, too slow or never end.

use crate::access::Rule;
use crate::options::BATCH_FACTOR;
use crate::{Answer, Options, Problem, error};
use axum::body::{Body, HttpBody};
use axum::http::Extensions;
use http_body_util::BodyExt;
use std::time::Duration;

/// The whole body, if it is small enough and arrives in time.
pub(crate) async fn read(body: Body, extensions: &Extensions, options: &Options) -> Answer<Vec<u8>> {
    let is_batch = extensions.get::<Rule>().is_some_and(|rule| rule.is_batch);
    let most = options.max_body_bytes.saturating_mul(if is_batch { BATCH_FACTOR } else { 1 });
    read_at_most(most, body, options).await
}

/// The whole body, if it has at most so many bytes and arrives in time.
pub(crate) async fn read_at_most(most: usize, body: Body, options: &Options) -> Answer<Vec<u8>> {
    read_within(options.body_timeout, most, body).await
}

/// The whole body, if it has at most so many bytes and arrives within this time.
pub(crate) async fn read_within(limit: Duration, most: usize, mut body: Body) -> Answer<Vec<u8>> {
    // What the client announces is enough to refuse it; then it need not be read at all.
    if body.size_hint().lower() > most as u64 {
        return Err(too_large(most));
    }
    let reading = async {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Problem::new(&error::BODY_INVALID, format!("The body broke off: {error}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > most {
                return Err(too_large(most));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    };
    tokio::time::timeout(limit, reading).await.unwrap_or_else(|_| {
        let detail = format!("The body did not arrive within {} ms.", limit.as_millis());
        Err(Problem::new(&error::BODY_TIMEOUT, detail))
    })
}

fn too_large(most: usize) -> Problem {
    Problem::new(&error::BODY_TOO_LARGE, format!("This route takes at most {most} bytes."))
        .with("maxBytes", most)
}
