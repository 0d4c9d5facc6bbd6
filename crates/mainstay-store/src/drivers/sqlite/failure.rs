//! What SQLite's error codes mean.

use crate::{Constraint, Error};
use rusqlite::ErrorCode;
use rusqlite::ffi;

/// The failure of an author's statement.
pub(super) fn of_statement(error: &rusqlite::Error, sql: &str) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::AuthorizationForStatementDenied) => {
            Error::StatementRefused(format!("it controls the transaction or the connection: {sql}"))
        }
        Some(ErrorCode::Unknown) | None => Error::Sql(format!("{}: {sql}", text(error))),
        _ => read(error),
    }
}

/// The failure of anything else.
pub(super) fn of(error: rusqlite::Error) -> Error {
    read(&error)
}

fn read(error: &rusqlite::Error) -> Error {
    let message = text(error);
    let Some(failure) = error.sqlite_error() else { return Error::Sql(message) };
    match failure.code {
        ErrorCode::ConstraintViolation => {
            let kind = match failure.extended_code {
                ffi::SQLITE_CONSTRAINT_UNIQUE
                | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
                | ffi::SQLITE_CONSTRAINT_ROWID => Constraint::Unique,
                ffi::SQLITE_CONSTRAINT_FOREIGNKEY => Constraint::ForeignKey,
                ffi::SQLITE_CONSTRAINT_NOTNULL => Constraint::NotNull,
                _ => Constraint::Check,
            };
            Error::Constraint { kind, detail: message }
        }
        ErrorCode::DiskFull => Error::DiskFull(message),
        ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::OutOfMemory => {
            Error::Io(format!("{message} (SQLite {})", failure.extended_code))
        }
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Error::Corrupt(message),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Error::Busy {
            waited_ms: super::open::FOREIGN_LOCK_PATIENCE_MS,
            reason: "another program has the file locked".to_owned(),
        },
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => Error::Denied(message),
        _ => Error::Sql(message),
    }
}

fn text(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}
