//! The Host header: every request names the server once. Proxies, caches and the server would otherwise take one request
//! for requests to different names.

use crate::{Answer, Problem, error};
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Refuses a request when its Host header is missing, given twice or not a name.
pub(crate) async fn require(request: Request, next: Next) -> Response {
    match check(request.headers(), request.version()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check(headers: &HeaderMap, version: Version) -> Answer<()> {
    let mut hosts = headers.get_all(HOST).iter();
    let reason = match (hosts.next(), hosts.next()) {
        // Older clients need not name it, and some probes are such.
        (None, _) if version < Version::HTTP_11 => return Ok(()),
        (None, _) => "The request has no Host header.",
        (Some(_), Some(_)) => "The request has several Host headers.",
        (Some(host), None) => match Authority::try_from(host.as_bytes()) {
            Ok(name) if !name.as_str().contains('@') => return Ok(()),
            _ => "The Host header is not a name with an optional port.",
        },
    };
    Err(Problem::new(&error::HOST_INVALID, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_its_server_once() {
        let is_taken = |hosts: &[&str], version| {
            let headers = hosts.iter().map(|host| (HOST, host.parse().unwrap()));
            check(
                &headers.fold(HeaderMap::new(), |mut all, (name, value)| {
                    all.append(name, value);
                    all
                }),
                version,
            )
            .is_ok()
        };
        for host in ["localhost", "a.example:7420", "127.0.0.1:1", "[::1]:7420"] {
            assert!(is_taken(&[host], Version::HTTP_11), "{host}");
        }
        for hosts in [&[][..], &["a", "a"], &["a", "b"], &[""], &["a b"], &["user@a"], &["a/b"], &["a,b c"]] {
            assert!(!is_taken(hosts, Version::HTTP_11), "{hosts:?}");
            assert_eq!(is_taken(hosts, Version::HTTP_10), hosts.is_empty(), "{hosts:?}");
        }
    }
}
