//! The style, the script, and htmx, all in the binary.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

struct Asset {
    name: &'static str,
    media_type: &'static str,
    text: &'static str,
}

const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

const ALL: [Asset; 5] = [
    Asset { name: "console.css", media_type: CSS, text: include_str!("assets/console.css") },
    Asset { name: "console.js", media_type: JAVASCRIPT, text: include_str!("assets/console.js") },
    Asset { name: "htmx.js", media_type: JAVASCRIPT, text: include_str!("assets/htmx-4.0.0.min.js") },
    Asset { name: "htmx-sse.js", media_type: JAVASCRIPT, text: include_str!("assets/htmx-sse-4.0.0.min.js") },
    Asset { name: "icon.svg", media_type: "image/svg+xml", text: include_str!("assets/icon.svg") },
];

/// Changes whenever an asset does, so that browsers may keep them for ever.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let all = ALL.iter().fold(Sha256::new(), |hash, asset| hash.chain_update(asset.text));
    crate::tokens::hex(&all.finalize()[..6])
});

/// Where an asset is.
pub(super) fn address(name: &str) -> String {
    format!("/console/assets/{name}?{}", *VERSION)
}

pub(super) async fn serve(Path(name): Path<String>) -> Response {
    let Some(asset) = ALL.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    ([(CONTENT_TYPE, asset.media_type), (CACHE_CONTROL, "public, max-age=31536000, immutable")], asset.text)
        .into_response()
}
