//! A view again and again, as long as somebody looks at it: server-sent events, each the changing part of the view as HTML.

use super::api::Fault;
use super::visit::Visit;
use super::{Sessions, views};
use crate::app::RoomToFollow;
use crate::lately::Followed;
use crate::{Answer, Shutdown};
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use std::convert::Infallible;
use std::time::{Duration, Instant};

/// How often a view is drawn anew.
const EVERY: Duration = Duration::from_secs(2);
/// A view that is expensive is drawn less often, so that it takes half of the hundredth of a core that following may take:
/// what its questions wake up is paid for, too.
const SHARE: u32 = 200;
/// But not less often than so. A view takes less than a tenth of a second; one that took longer has waited for others, and nobody
/// should look at an old page for minutes because of that.
const SELDOM: Duration = Duration::from_secs(10);
/// A view that is drawn again but has not changed says nothing for so long.
const HEARTBEAT: Duration = Duration::from_secs(15);

struct Following {
    _room: RoomToFollow,
    visit: Visit,
    shutdown: Shutdown,
    last: String,
    said: Instant,
    wait: Duration,
    is_over: bool,
}

/// Follows a view.
pub(super) async fn follow(mut visit: Visit) -> Answer<Response> {
    let room = visit.app.room_to_follow(&visit.principal)?;
    visit.api.followed = Followed(true);
    let shutdown = visit.app.shutdown().clone();
    // What the page was loaded with is fresh.
    let (last, said) = (String::new(), Instant::now());
    let following = Following { _room: room, visit, shutdown, last, said, wait: EVERY, is_over: false };
    let chunks = stream::unfold(following, async |mut following| {
        let chunk = following.next().await?;
        Some((Ok::<_, Infallible>(chunk), following))
    });
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        // Buffering proxies would hold it back.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, Body::from_stream(chunks)).into_response())
}

impl Following {
    /// What to send next; nothing when it is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.is_over {
                return None;
            }
            tokio::select! {
                () = tokio::time::sleep(self.wait) => {}
                () = self.shutdown.requested() => return None,
            }
            let began = Instant::now();
            if self.has_left().await {
                return self.end();
            }
            let drawn = match views::sheet(&self.visit).await {
                Ok(sheet) => sheet.live.into_string(),
                Err(Fault { status: 401, .. }) => return self.end(),
                Err(fault) => super::page::fault(&fault).into_string(),
            };
            self.wait = wait(began.elapsed());
            if drawn != self.last {
                let message = message(&drawn);
                self.last = drawn;
                self.said = Instant::now();
                return Some(message.into());
            }
            if self.said.elapsed() >= HEARTBEAT {
                self.said = Instant::now();
                return Some(Bytes::from_static(b": still here\n\n"));
            }
        }
    }

    /// Whoever has left in another window has left in this one, and so has one whose token is void. A store that cannot be
    /// asked says nothing against anybody.
    async fn has_left(&self) -> bool {
        let app = &self.visit.app;
        match Sessions::new(app).token(&self.visit.session.secret).await {
            Ok(Some(token)) => matches!(app.tokens().principal(&token).await, Ok(None)),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Whoever is not logged in any more is told to go to the login.
    fn end(&mut self) -> Option<Bytes> {
        self.is_over = true;
        Some(Bytes::from_static(b"event: over\ndata: over\n\n"))
    }
}

/// How long until a view is drawn again that took so long.
fn wait(took: Duration) -> Duration {
    took.saturating_mul(SHARE).clamp(EVERY, SELDOM)
}

/// A server-sent event: each line of it is marked as data. To a browser a carriage return alone ends a line, too.
fn message(text: &str) -> String {
    let lines = text.split(['\n', '\r']).map(|line| format!("data: {line}\n"));
    lines.collect::<String>() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_a_message_or_begins_another_field() {
        assert_eq!(message("a\nb"), "data: a\ndata: b\n\n");
        assert_eq!(message("a\r\revent: over"), "data: a\ndata: \ndata: event: over\n\n");
    }

    #[test]
    fn what_is_expensive_is_drawn_less_often_and_never_forgotten() {
        assert_eq!(wait(Duration::from_millis(3)), EVERY);
        assert_eq!(wait(Duration::from_millis(25)), Duration::from_secs(5));
        assert_eq!(wait(Duration::from_secs(3)), SELDOM);
    }
}
