//! Routes that do what a test needs done.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::response::Response;
use hyper::body::Frame;
use mainstay_server::{Answer, App, Json, Path, Permission, Principal, Query, Routes, Trace};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::sync::{Semaphore, mpsc};
use utoipa::ToSchema;
use utoipa_axum::routes;

pub(crate) fn all() -> Routes {
    Routes::default()
        .add(Permission::Reader, routes!(who))
        .add(Permission::Operator, routes!(echo))
        .add(Permission::Operator.batch(), routes!(batch))
        .add(Permission::Reader, routes!(page))
        .add(Permission::Reader, routes!(item))
        .add(Permission::Reader, routes!(panics))
        .add(Permission::Reader, routes!(wait))
        .add(Permission::Operator, routes!(never))
        .add(Permission::Operator, routes!(panics_for_admins))
        .add(Permission::Reader, routes!(large))
        .add(Permission::Reader.streaming(), routes!(stream))
        .add(Permission::Reader.replaced_by("/v1/test/who"), routes!(renamed))
}

/// A route that was renamed
#[utoipa::path(get, path = "/admin/test/renamed")]
async fn renamed() -> Json<()> {
    Json(())
}

/// Who asks
#[utoipa::path(get, path = "/v1/test/who")]
async fn who(principal: Principal, Trace(trace): Trace) -> Json<Value> {
    let Principal { role, tenant, token, .. } = principal;
    Json(json!({ "role": role, "tenant": tenant, "token": token, "trace": trace }))
}

#[derive(Serialize, Deserialize, ToSchema)]
struct Text {
    text: String,
    times: Option<u32>,
}

#[utoipa::path(post, path = "/v1/test/echo", request_body = Text)]
async fn echo(Json(text): Json<Text>) -> Answer<Json<Text>> {
    Ok(Json(text))
}

#[utoipa::path(post, path = "/v1/test/batch", request_body = Text)]
async fn batch(Json(text): Json<Text>) -> Json<usize> {
    Json(text.text.len())
}

#[derive(Serialize, Deserialize)]
struct Page {
    after: Option<u64>,
    #[serde(default, rename = "type")]
    types: Vec<String>,
}

#[utoipa::path(get, path = "/v1/test/page")]
async fn page(Query(page): Query<Page>) -> Json<Page> {
    Json(page)
}

#[utoipa::path(get, path = "/v1/test/items/{number}", params(("number" = u32, Path)))]
async fn item(Path(number): Path<u32>) -> Json<u32> {
    Json(number)
}

#[utoipa::path(get, path = "/v1/test/panics")]
async fn panics() {
    panic!("the secret ingredient is missing");
}

#[utoipa::path(post, path = "/admin/test/panics")]
async fn panics_for_admins() {
    panic!("the secret ingredient is missing");
}

/// A handler that tells when it was entered and goes on when it is told to.
pub(crate) struct Gate {
    pub(crate) entered: Semaphore,
    pub(crate) leave: Semaphore,
}

/// The gate of this name; tests run beside each other, so each has a name of its own.
pub(crate) fn gate(name: &str) -> Arc<Gate> {
    static GATES: Mutex<Option<HashMap<String, Arc<Gate>>>> = Mutex::new(None);
    let mut gates = GATES.lock().unwrap();
    let gate = || Arc::new(Gate { entered: Semaphore::new(0), leave: Semaphore::new(0) });
    gates.get_or_insert_default().entry(name.to_owned()).or_insert_with(gate).clone()
}

#[utoipa::path(get, path = "/v1/test/wait/{gate}", params(("gate" = String, Path)))]
async fn wait(Path(name): Path<String>) -> Json<&'static str> {
    let gate = gate(&name);
    gate.entered.add_permits(1);
    gate.leave.acquire().await.unwrap().forget();
    Json("done")
}

/// More than any system keeps for a client that does not read
#[utoipa::path(post, path = "/admin/test/never")]
async fn never() -> Json<()> {
    std::future::pending().await
}

#[utoipa::path(get, path = "/v1/test/large")]
async fn large() -> Vec<u8> {
    vec![b'x'; 64 << 20]
}

/// Streams until the server stops
#[utoipa::path(get, path = "/v1/test/stream/{gate}", params(("gate" = String, Path)))]
async fn stream(State(app): State<App>, Path(name): Path<String>) -> Response {
    let shutdown = app.shutdown().clone();
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        sender.send(Bytes::from_static(b"hello ")).await.unwrap();
        gate(&name).entered.add_permits(1);
        shutdown.requested().await;
        sender.send(Bytes::from_static(b"goodbye")).await
    });
    Response::new(Body::new(Channel(receiver)))
}

/// A body that is what a channel brings.
struct Channel(mpsc::Receiver<Bytes>);

impl HttpBody for Channel {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
