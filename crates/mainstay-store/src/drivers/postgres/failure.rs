//! What PostgreSQL's error codes mean.

use crate::{Constraint, Error};
use tokio_postgres::error::SqlState;

/// The failure of a statement or of a connection in use.
pub(super) fn of(error: &tokio_postgres::Error) -> Error {
    let Some(said) = error.as_db_error() else { return without_code(error) };
    // The detail would quote the row's data, and errors end up in logs.
    let message = said.message().to_owned();
    let constraint = |kind| Error::Constraint { kind, detail: message.clone() };
    match said.code().code() {
        "23505" | "23P01" => constraint(Constraint::Unique),
        "23503" => constraint(Constraint::ForeignKey),
        "23502" => constraint(Constraint::NotNull),
        "25006" => Error::ReadOnly(message),
        "42501" => Error::Denied(message),
        "53100" => Error::DiskFull(message),
        "58030" => Error::Io(message),
        "XX001" | "XX002" => Error::Corrupt(message),
        // Shutting down, starting up, out of connections, silent for too long: the server ends or refuses the session.
        code if code.starts_with("08") || code.starts_with("57P") || ["53300", "25P03"].contains(&code) => {
            Error::Unavailable(message)
        }
        code if code.starts_with("23") => constraint(Constraint::Check),
        code if code.starts_with("22") => Error::Parameters(message),
        _ => Error::Sql(message),
    }
}

/// The failure to connect.
pub(super) fn of_connecting(error: &tokio_postgres::Error, server: &str) -> Error {
    let open = |reason: String| Error::Open { what: server.to_owned(), reason };
    match error.as_db_error() {
        Some(said) if said.code().code().starts_with("28") => {
            Error::Denied(format!("{} ({server})", said.message()))
        }
        Some(said) if *said.code() == SqlState::INVALID_CATALOG_NAME => open(said.message().to_owned()),
        Some(_) => of(error),
        None => match causes(error) {
            // Somebody answers, but is not who they should be, or cannot do TLS: waiting will not mend that.
            reason if reason.contains("TLS") => open(reason),
            reason => Error::Unavailable(format!("{server}: {reason}")),
        },
    }
}

/// What may be done about a failure, beside telling of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Other transactions were in the way: running it again may succeed.
    Conflict,
    /// Another node has changed a table since the statement was prepared: preparing it again helps.
    StalePlan,
    /// The connection is gone, and the transaction with it.
    Outage,
    /// Nothing.
    Other,
}

impl Cause {
    pub(super) fn of(error: &tokio_postgres::Error) -> Self {
        match of(error) {
            _ if is_conflict(error) => Self::Conflict,
            _ if is_stale_plan(error) => Self::StalePlan,
            Error::Unavailable(_) => Self::Outage,
            _ => Self::Other,
        }
    }
}

/// The code alone stands for any feature that is not supported, and the message is in the server's language.
fn is_stale_plan(error: &tokio_postgres::Error) -> bool {
    let said = error.as_db_error();
    said.is_some_and(|said| said.code().code() == "0A000" && said.routine() == Some("RevalidateCachedQuery"))
}

/// Whether running the transaction again may succeed where this run could not.
pub(super) fn is_conflict(error: &tokio_postgres::Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::T_R_SERIALIZATION_FAILURE) || code == Some(&SqlState::T_R_DEADLOCK_DETECTED)
}

fn without_code(error: &tokio_postgres::Error) -> Error {
    /// How tokio-postgres begins when it is the line that broke.
    const OUTAGES: [&str; 4] =
        ["connection closed", "error communicating with the server", "error connecting", "timeout waiting"];
    let causes = causes(error);
    if error.is_closed() || OUTAGES.iter().any(|outage| causes.starts_with(outage)) {
        Error::Unavailable(causes)
    } else if causes.contains("serializing parameter") {
        Error::Parameters(causes)
    } else {
        Error::Sql(causes)
    }
}

fn causes(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
