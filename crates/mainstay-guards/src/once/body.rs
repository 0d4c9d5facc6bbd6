//! Bodies of answers: kept ones, and those of services.

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project_lite::pin_project! {
    /// The body of an answer: what was read of it already, and the rest of the service's own.
    pub struct AnswerBody<B: Body> {
        front: VecDeque<Frame<Bytes>>,
        error: Option<B::Error>,
        #[pin]
        rest: Option<B>,
    }
}

/// A body that was read as far as it may be.
pub(super) enum Read<B: Body> {
    /// To its end.
    Whole(Bytes),
    /// Too much, or it broke off.
    Part(AnswerBody<B>),
}

impl<B: Body<Data = Bytes>> AnswerBody<B> {
    /// A body as a service has made it.
    pub(super) fn through(body: B) -> Self {
        Self { front: VecDeque::new(), error: None, rest: Some(body) }
    }

    /// A body that is there.
    pub(super) fn whole(bytes: Bytes) -> Self {
        let front = if bytes.is_empty() { VecDeque::new() } else { [Frame::data(bytes)].into() };
        Self { front, error: None, rest: None }
    }

    /// Reads a body to its end, if it has at most so many bytes.
    pub(super) async fn read(body: B, max_bytes: usize) -> Read<B>
    where
        B: Unpin,
    {
        let mut read = Self { front: VecDeque::new(), error: None, rest: None };
        let (mut body, mut length) = (body, 0);
        loop {
            match body.frame().await {
                None => break,
                Some(Ok(frame)) => {
                    length += frame.data_ref().map_or(max_bytes.saturating_add(1), Bytes::len);
                    read.front.push_back(frame);
                }
                Some(Err(error)) => {
                    read.error = Some(error);
                    return Read::Part(read);
                }
            }
            if length > max_bytes {
                read.rest = Some(body);
                return Read::Part(read);
            }
        }
        let parts: Vec<Bytes> = read.front.into_iter().filter_map(|frame| frame.into_data().ok()).collect();
        Read::Whole(match <[Bytes; 1]>::try_from(parts) {
            Ok([only]) => only,
            Err(several) => several.concat().into(),
        })
    }
}

impl<B: Body<Data = Bytes>> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        if let Some(frame) = this.front.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(error) = this.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match this.rest.as_pin_mut() {
            Some(rest) => Poll::Ready(ready!(rest.poll_frame(context))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.front.is_empty() && self.error.is_none() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let front: usize = self.front.iter().filter_map(|frame| frame.data_ref()).map(Buf::remaining).sum();
        let rest = match (&self.rest, &self.error) {
            (Some(rest), _) => rest.size_hint(),
            (None, None) => SizeHint::with_exact(0),
            (None, Some(_)) => SizeHint::default(),
        };
        let mut hint = SizeHint::new();
        hint.set_lower(front as u64 + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(front as u64 + upper);
        }
        hint
    }
}
