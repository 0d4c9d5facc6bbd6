//! Answers that take a scan, for pages that ask again and again: however many people look at one, it is counted once in a while.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How old an answer may be for a page that is followed.
const AGE: Duration = Duration::from_secs(5);
/// An answer that is expensive may be older: a hundredth of a core's time is spent on it.
const SHARE: u32 = 100;
/// Most questions whose answers are kept.
const MOST: usize = 64;

/// Whether who asks is a page that is followed, which does with an answer of a moment ago. A call from outside never is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Followed(pub(crate) bool);

impl<S: Sync> FromRequestParts<S> for Followed {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().copied().unwrap_or_default())
    }
}

/// The last answers, each by its question.
pub(crate) struct Lately<T>(Mutex<HashMap<String, Arc<Slot<T>>>>);

type Slot<T> = tokio::sync::Mutex<Option<Answer<T>>>;

struct Answer<T> {
    at: Instant,
    took: Duration,
    told: T,
}

impl<T> Default for Lately<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Lately<T> {
    /// The answer to a question, as `look` finds it; for a page that is followed, as it was found a moment ago. Pages that ask
    /// at the same time wait for one look.
    pub(crate) async fn ask<E>(
        &self,
        question: &str,
        Followed(is_followed): Followed,
        look: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let slot = self.slot(question);
        let mut waited = None;
        if is_followed {
            let last = slot.lock().await;
            let fresh =
                |answer: &&Answer<T>| answer.at.elapsed() < AGE.max(answer.took.saturating_mul(SHARE));
            if let Some(answer) = last.as_ref().filter(fresh) {
                return Ok(answer.told.clone());
            }
            waited = Some(last);
        }
        let at = Instant::now();
        let told = look.await?;
        let mut last = match waited {
            Some(last) => last,
            None => slot.lock().await,
        };
        // Whoever began to look later knows better.
        if last.as_ref().is_none_or(|answer| answer.at < at) {
            *last = Some(Answer { at, took: at.elapsed(), told: told.clone() });
        }
        Ok(told)
    }

    fn slot(&self, question: &str) -> Arc<Slot<T>> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MOST && !slots.contains_key(question) {
            slots.clear();
        }
        slots.entry(question.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counter(Lately<usize>, AtomicUsize);

    impl Counter {
        fn new() -> Self {
            Self(Lately::default(), AtomicUsize::new(0))
        }

        async fn ask(&self, question: &str, is_followed: bool) -> usize {
            let look = async {
                tokio::task::yield_now().await;
                Ok::<_, ()>(self.1.fetch_add(1, Ordering::Relaxed) + 1)
            };
            self.0.ask(question, Followed(is_followed), look).await.unwrap()
        }
    }

    #[tokio::test]
    async fn many_who_follow_cost_one_look() {
        let counter = Counter::new();
        let asked = (0..100).map(|_| counter.ask("all", true));
        assert_eq!(futures_util::future::join_all(asked).await, vec![1; 100]);
        assert_eq!(counter.ask("others", true).await, 2, "another question is another look");
    }

    #[tokio::test]
    async fn who_asks_once_sees_how_it_is_and_those_who_follow_see_that_too() {
        let counter = Counter::new();
        assert_eq!(counter.ask("all", true).await, 1);
        assert_eq!(counter.ask("all", false).await, 2);
        assert_eq!(counter.ask("all", true).await, 2);
    }

    #[tokio::test]
    async fn as_many_questions_are_kept_as_people_can_ask() {
        let counter = Counter::new();
        for question in 0..1_000 {
            counter.ask(&question.to_string(), true).await;
        }
        assert!(counter.0.0.lock().unwrap().len() <= MOST);
    }
}
