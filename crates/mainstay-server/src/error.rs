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
    NOT_IN_SCOPE "NOT_IN_SCOPE" 403 false
        "The token is one of a worker or a publisher, and its scope does not name what the request is about."
        "Create a token whose scope names it, with `mainstay token create --role worker` or `--role publisher`, or use an operator's.";
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
    HOST_INVALID "HOST_INVALID" 400 false
        "The Host header is missing, given several times, or not a name with an optional port."
        "Send one Host header with the name of the server, as every HTTP/1.1 client does by itself.";
    CONNECTIONS_FULL "CONNECTIONS_FULL" 503 true
        "All connections of the server are taken, or all that one address may have. Probes and admins without a tenant are still served."
        "Try again later and keep fewer connections open, or raise server.maxConnections or server.maxConnectionsPerAddress.";
    STREAMS_FULL "STREAMS_FULL" 503 true
        "As many follow the log or a page of the console as the server has room for: half of its connections."
        "Try again later, follow through another node, or raise server.maxConnections.";
    QUOTA_REACHED "QUOTA_REACHED" 429 true
        "The token, or the tokens of its tenant together, hold as many streams or requests at once as one may, so that others have room. Nothing was done."
        "End some of them and try again. Use a token for each application, or raise server.tokenShare and server.tenantShare.";
    TOKENS_TOO_MANY "TOKENS_TOO_MANY" 409 false
        "The tenant has 1,000 valid tokens already, the tokens without a tenant are 10,000, or three secrets of the rotated token work already."
        "Revoke tokens that are not used: `mainstay token list` tells when each was used last. Rotate with an overlap of 0 to end the old secret at once.";
    INTERNAL_ERROR "INTERNAL_ERROR" 500 false
        "The server made a mistake. It goes on serving others."
        "Report it with the trace id of the answer's traceparent header; the log has the rest.";
    TOKEN_NOT_FOUND "TOKEN_NOT_FOUND" 404 false
        "There is no token with this id, or it belongs to another tenant."
        "List the tokens with `mainstay token list`.";
    TOKEN_SPENT "TOKEN_SPENT" 409 false
        "The token cannot be rotated: it was revoked, has expired, was rotated before, or is that of the console."
        "Rotate the token that took its place, which the message names, or create a new one.";
}

/// The tables of all codes that a server can answer with. It serves a page for each.
pub static CODE_TABLES: [&[&ErrorCode]; 7] = [
    mainstay_core::names::CODES,
    mainstay_store::CODES,
    mainstay_events::CODES,
    mainstay_guards::CODES,
    mainstay_flows::CODES,
    mainstay_work::CODES,
    CODES,
];

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_core::codes::Register;

    #[test]
    fn every_code_is_registered_once_and_says_what_to_do() {
        let register = Register::join(&CODE_TABLES).unwrap();
        assert_eq!(register.iter().count(), CODE_TABLES.iter().map(|table| table.len()).sum::<usize>());
        for entry in CODES {
            assert!(entry.meaning.ends_with('.') && entry.remedy.ends_with('.'), "{}", entry.code);
        }
    }
}
