//! What keeps a server from starting, and the register of every code that HTTP answers with.

use mainstay_core::codes::ErrorCode;
use std::net::SocketAddr;

/// The result of starting or running a server.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a server cannot start. What goes wrong with a request is a [`Problem`](crate::Problem).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("TLS: {what}: {reason}")]
    Tls {
        /// The file, or both.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Others could reach the server, and it lacks what keeps them out.
    #[error("{address} can be reached from elsewhere, and the server has {lacks}")]
    Unprotected {
        /// The address.
        address: SocketAddr,
        /// What is missing.
        lacks: &'static str,
    },
    /// The store says no.
    #[error(transparent)]
    Store(#[from] mainstay_store::Error),
    /// The log says no.
    #[error(transparent)]
    Log(#[from] mainstay_events::Error),
    /// The work says no.
    #[error(transparent)]
    Work(#[from] mainstay_work::Error),
    /// The limits or the circuits say no.
    #[error(transparent)]
    Guards(#[from] mainstay_guards::Error),
    /// The commands say no.
    #[error(transparent)]
    Flows(#[from] mainstay_flows::Error),
}

impl Error {
    /// The entry of this kind of failure in the register of codes.
    pub fn entry(&self) -> &'static ErrorCode {
        match self {
            Self::Listen { .. } => &LISTEN_FAILED,
            Self::Tls { .. } => &TLS_INVALID,
            Self::Unprotected { .. } => &UNPROTECTED,
            Self::Store(error) => error.entry(),
            Self::Log(error) => error.entry(),
            Self::Work(error) => error.entry(),
            Self::Guards(error) => error.entry(),
            Self::Flows(error) => error.entry(),
        }
    }

    /// The stable name of this kind of failure.
    pub fn code(&self) -> &'static str {
        self.entry().code
    }

    /// Whether the same start may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.entry().retryable
    }
}

mainstay_core::codes! {
    /// Every code of the server's own. Routes answer with the codes of the part they speak for, too.
    pub static CODES:
    LISTEN_FAILED "SERVER_LISTEN_FAILED" 500 false
        "The server cannot listen on its address."
        "Stop whatever listens there, or choose another address with --listen.";
    TLS_INVALID "SERVER_TLS_INVALID" 500 false
        "The certificate or its key cannot be read, or they do not belong together."
        "Give both server.tlsCert and server.tlsKey, as PEM files that this user may read.";
    UNPROTECTED "SERVER_UNPROTECTED" 500 false
        "The address can be reached from other machines, but there is no token yet or no TLS."
        "Create a token with `mainstay token create`, set server.tlsCert and server.tlsKey, or listen on 127.0.0.1. Behind a proxy that does TLS, --insecure says that this is meant.";
    UNAUTHENTICATED "UNAUTHENTICATED" 401 false
        "The request has no token, or one that is unknown, revoked or expired."
        "Send `Authorization: Bearer TOKEN`; on the command line give --token or MAINSTAY_TOKEN. `mainstay token create` makes one; the first one while no server runs on the SQLite file.";
    UNAUTHORIZED "UNAUTHORIZED" 403 false
        "The token is valid, but its role or its tenant does not allow this."
        "Use a token with the role that the message names: reader, operator or admin.";
    ORIGIN_REFUSED "ORIGIN_REFUSED" 403 false
        "A request without a token came through a name, a proxy or a web page that is not this machine's own."
        "Address the server as 127.0.0.1, [::1] or localhost, or send a token.";
    LIMIT_RESERVED "LIMIT_RESERVED" 403 false
        "The limit counts what is done to the server itself; applications neither take from it nor change its budgets."
        "Take from a limit of your own; `PUT /admin/limits/NAME` makes one. An admin changes this one with `mainstay limits set`.";
    ROUTE_NOT_FOUND "ROUTE_NOT_FOUND" 404 false
        "There is nothing at this path."
        "Look for the path in /openapi.json.";
    METHOD_NOT_ALLOWED "METHOD_NOT_ALLOWED" 405 false
        "The path exists, but does not take this method."
        "Use a method that the Allow header names.";
    BODY_INVALID "BODY_INVALID" 400 false
        "The body is not the JSON that the route takes."
        "Correct the field that the answer names; /openapi.json describes the body.";
    BODY_TOO_LARGE "BODY_TOO_LARGE" 413 false
        "The body is larger than the route takes."
        "Send less at once, or raise server.maxBodyBytes.";
    BODY_TIMEOUT "BODY_TIMEOUT" 408 true
        "The body did not arrive in time."
        "Send it faster, or raise server.bodyTimeoutMs.";
    HEADERS_TOO_LARGE "HEADERS_TOO_LARGE" 431 false
        "The headers of the request are larger than the server takes."
        "Send fewer or shorter headers; 16 KiB are allowed.";
    MEDIA_TYPE_UNSUPPORTED "MEDIA_TYPE_UNSUPPORTED" 415 false
        "The body is said to be something other than JSON."
        "Send `Content-Type: application/json`.";
    PATH_INVALID "PATH_INVALID" 400 false
        "A part of the path cannot be understood."
        "Correct the part that the answer names.";
    QUERY_INVALID "QUERY_INVALID" 400 false
        "A parameter of the query is unknown, wrong or given twice."
        "Correct the parameter that the answer names; /openapi.json lists them.";
    REQUEST_TIMEOUT "REQUEST_TIMEOUT" 503 true
        "The request took longer than the server allows and was given up. What it had committed by then stays."
        "Try again with an idempotency key; if it lasts, look at the metrics of the store, or raise server.requestTimeoutMs.";
    STREAMS_FULL "STREAMS_FULL" 503 true
        "As many follow the log or a page of the console as the server has room for: half of its connections."
        "Try again later, follow through another node, or raise server.maxConnections.";
    INTERNAL_ERROR "INTERNAL_ERROR" 500 false
        "The server made a mistake. It goes on serving others."
        "Report it with the trace id of the answer's traceparent header; the log has the rest.";
    TOKEN_NOT_FOUND "TOKEN_NOT_FOUND" 404 false
        "There is no token with this id, or it belongs to another tenant."
        "List the tokens with `mainstay token list`.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_core::codes::Register;

    #[test]
    fn every_code_is_registered_once_and_says_what_to_do() {
        let register = Register::join(&[CODES, mainstay_store::CODES]).unwrap();
        assert_eq!(register.iter().count(), CODES.len() + mainstay_store::CODES.len());
        for entry in CODES {
            assert!(entry.meaning.ends_with('.') && entry.remedy.ends_with('.'), "{}", entry.code);
        }
    }
}
