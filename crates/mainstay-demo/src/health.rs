//! What the server says of itself, asked for as anybody would.

use serde::Deserialize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use ureq::Agent;

/// The server is on this machine.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was heard last, and everything that was heard so far. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Health(Arc<Mutex<Vec<String>>>);

#[derive(Deserialize)]
struct Answer {
    status: String,
}

impl Health {
    /// Asks again and again, for as long as nobody drops it.
    pub(super) async fn follow(self, url: String, every: Duration) {
        let config = Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false);
        let agent = Agent::new_with_config(config.build());
        let url = format!("{url}/health");
        loop {
            let (agent, url) = (agent.clone(), url.clone());
            let ask = move || -> Option<Answer> {
                let text = agent.get(&url).call().ok()?.body_mut().read_to_string().ok()?;
                serde_json::from_str(&text).ok()
            };
            if let Ok(Some(Answer { status })) = tokio::task::spawn_blocking(ask).await {
                self.hear(status);
            }
            tokio::time::sleep(every).await;
        }
    }

    /// What it said last.
    pub(super) fn now(&self) -> Option<String> {
        self.with(|heard| heard.last().cloned())
    }

    /// What it has ever said, in the order in which it did so first.
    pub(super) fn ever(&self) -> Vec<String> {
        self.with(|heard| {
            let mut ever: Vec<String> = Vec::new();
            for one in heard.iter().filter(|one| !one.is_empty()) {
                if !ever.contains(one) {
                    ever.push(one.clone());
                }
            }
            ever
        })
    }

    /// Keeps each of the three grades once, and the last at the end.
    fn hear(&self, status: String) {
        self.with(|heard| {
            if heard.last() == Some(&status) {
                return;
            }
            if heard.len() > 1 && heard[..heard.len() - 1].contains(&heard[heard.len() - 1]) {
                heard.pop();
            }
            heard.push(status);
        });
    }

    fn with<T>(&self, look: impl FnOnce(&mut Vec<String>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_the_last_and_the_first_of_each_and_does_not_grow() {
        let health = Health::default();
        assert_eq!(health.now(), None);
        for _ in 0..100 {
            for status in ["healthy", "degraded", "degraded", "healthy"] {
                health.hear(status.to_owned());
            }
        }
        assert_eq!(health.now().as_deref(), Some("healthy"));
        assert_eq!(health.ever(), ["healthy", "degraded"]);
        assert!(health.with(|heard| heard.len()) <= 4);
    }
}
