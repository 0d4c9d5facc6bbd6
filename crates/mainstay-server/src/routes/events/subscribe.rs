//! `GET /v1/events/subscribe`: server-sent events.

use super::log_of;
use super::read::check_epoch;
use super::select::{Parameters, position};
use crate::app::RoomToFollow;
use crate::{Answer, App, Principal, Problem, Query, Shutdown};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use mainstay_events::Subscription;
use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;
use tokio::time::Instant;

/// Proxies and clients give up on a line that is silent for half a minute or more.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// What a client waits before it connects again.
const RETRY_MS: u64 = 1_000;
/// Bytes that are handed to the connection at once. A client that reads slowly is waited for; nothing else is kept.
const CHUNK: usize = 64 << 10;

/// Follow the log
///
/// Server-sent events: those that are there, then those that come. The `id` of each is its position; a client that
/// connects again with `Last-Event-ID` goes on behind it. An `id` without data says that nothing up to there was
/// selected. When the log is restored from a backup, an event named `problem` tells, and the stream ends.
#[utoipa::path(get, path = "/v1/events/subscribe", operation_id = "subscribeEvents", tag = "events",
    params(Parameters, ("Last-Event-ID" = Option<u64>, Header, description = "After this position, instead of `after`")),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(super) async fn subscribe(
    State(app): State<App>,
    principal: Principal,
    headers: HeaderMap,
    Query(parameters): Query<Parameters>,
) -> Answer<Response> {
    parameters.limit()?;
    let expected = parameters.epoch();
    let mut selection = parameters.following()?.selection()?;
    if let Some(last) = headers.get(LAST_EVENT_ID) {
        let number = last.to_str().ok().and_then(|text| text.trim().parse().ok());
        let number =
            number.ok_or_else(|| Problem::invalid_parameter("Last-Event-ID", "must be a position"))?;
        selection.after = position("Last-Event-ID", number)?;
    }
    let log = log_of(&app, &principal);
    let epoch = log.epoch().await?;
    check_epoch(expected, epoch)?;
    let following = Following {
        _room: app.room_to_follow(&principal)?,
        last_sent: selection.after,
        subscription: log.subscribe(selection).in_epoch(epoch),
        shutdown: app.shutdown().clone(),
        next_heartbeat: Instant::now() + HEARTBEAT,
        opening: Some(format!("retry: {RETRY_MS}\n: epoch {epoch}\n\n").into()),
        is_over: false,
    };
    let chunks = stream::unfold(following, async |mut following| {
        let chunk = following.next().await?;
        Some((Ok::<_, Infallible>(chunk), following))
    });
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // Buffering proxies would hold live events back.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, Body::from_stream(chunks)).into_response())
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A client that follows.
struct Following {
    _room: RoomToFollow,
    subscription: Subscription,
    shutdown: Shutdown,
    opening: Option<Bytes>,
    next_heartbeat: Instant,
    /// The last `id` the client was told.
    last_sent: u64,
    is_over: bool,
}

impl Following {
    /// What to send next; nothing when it is over.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        loop {
            if self.is_over || self.shutdown.is_requested() {
                return None;
            }
            let chunk = self.collect().await;
            if !chunk.is_empty() {
                self.next_heartbeat = Instant::now() + HEARTBEAT;
                return Some(chunk.into());
            }
            tokio::select! {
                () = self.subscription.changed() => {}
                () = self.shutdown.requested() => return None,
                () = tokio::time::sleep_until(self.next_heartbeat) => {
                    self.next_heartbeat = Instant::now() + HEARTBEAT;
                    return Some(self.heartbeat());
                }
            }
        }
    }

    async fn collect(&mut self) -> Vec<u8> {
        let mut chunk = Vec::new();
        while chunk.len() < CHUNK {
            match self.subscription.try_next().await {
                Ok(Some(event)) => {
                    self.last_sent = event.position();
                    // Writing to a Vec cannot fail.
                    let _ = write!(chunk, "id: {}\ndata: ", event.position());
                    write_line(&mut chunk, |out| event.write_json(out));
                    chunk.extend_from_slice(b"\n\n");
                }
                Ok(None) => break,
                Err(error) => {
                    let problem = Problem::from(error).document();
                    let _ = write!(chunk, "event: problem\ndata: {problem}\n\n");
                    self.is_over = true;
                    break;
                }
            }
        }
        chunk
    }

    /// A comment; with the position reached, when that is news to a client whose events are rare.
    fn heartbeat(&mut self) -> Bytes {
        let reached = self.subscription.position();
        if reached > self.last_sent {
            self.last_sent = reached;
            return format!(": heartbeat\nid: {reached}\n\n").into();
        }
        Bytes::from_static(b": heartbeat\n\n")
    }
}

/// Data is one line: JSON may be written over several, and between its texts a line break means nothing.
fn write_line(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let from = out.len();
    write(out);
    for byte in &mut out[from..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}
