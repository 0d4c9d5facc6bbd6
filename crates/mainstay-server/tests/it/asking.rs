//! Somebody with a token, who asks a server.

use crate::client::{Request, get, post};
use crate::running::Running;
use mainstay_server::Role;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Asking {
    address: SocketAddr,
    pub(crate) token: String,
}

impl Asking {
    pub(crate) async fn new(server: &Running, role: Role) -> Self {
        Self { address: server.address, token: server.token(role).await }
    }

    pub(crate) async fn ask(&self, request: Request) -> (u16, Value) {
        let answer = request.token(&self.token).send(self.address).await;
        (answer.status, answer.json())
    }

    async fn good(&self, path: &str, request: Request) -> Value {
        let (status, body) = self.ask(request).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.good(path, get(path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.good(path, post(path, &body.to_string())).await
    }

    /// The status and the code of an answer that should not be a good one.
    pub(crate) async fn refusal(&self, request: Request) -> (u16, String) {
        let (status, body) = self.ask(request).await;
        (status, body["code"].as_str().unwrap_or_default().to_owned())
    }

    /// Asks for something again and again until it is so.
    pub(crate) async fn until(&self, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let asking = async {
            loop {
                let body = self.get(path).await;
                if is_so(&body) {
                    return body;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{path} does not come to it"))
    }
}
