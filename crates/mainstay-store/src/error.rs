//! What can go wrong with a store, and the register of its codes.

use mainstay_core::codes::ErrorCode;
use mainstay_core::failpoints::Hit;
use std::fmt;

/// The result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Which rule of the schema a statement broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constraint {
    /// A primary key or unique index.
    Unique,
    /// A foreign key.
    ForeignKey,
    /// A column that may not be null.
    NotNull,
    /// A check, or any other rule.
    Check,
}

impl fmt::Display for Constraint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Unique => "unique",
            Self::ForeignKey => "foreign key",
            Self::NotNull => "not null",
            Self::Check => "check",
        })
    }
}

/// A failure of the store. [`code`](Error::code) is stable; the text is for people.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store URL cannot be understood.
    #[error("store URL {url:?}: {reason}")]
    Url {
        /// The URL, without its password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The database cannot be opened at all.
    #[error("cannot open {what}: {reason}")]
    Open {
        /// The file or server.
        what: String,
        /// Why not.
        reason: String,
    },
    /// The file exists and is something else.
    #[error("{0} is not a SQLite database; it was left as it is")]
    NotADatabase(String),
    /// Another process has the SQLite file.
    #[error("{file} is held by {holder}; a SQLite store has one owning process")]
    Owned {
        /// The database file.
        file: String,
        /// Who holds it, as far as it told.
        holder: String,
    },
    /// The database user lacks a right.
    #[error("the database refuses it: {0}")]
    Denied(String),
    /// The PostgreSQL server is older than what is supported.
    #[error("the server is PostgreSQL {found}; Mainstay needs {needed} or newer")]
    ServerTooOld {
        /// The server's version.
        found: String,
        /// The oldest supported version.
        needed: u32,
    },
    /// The schema was changed by a newer program in a way this one cannot work with.
    #[error("the schema of {component} needs a program that knows step {needed}; this one knows {known}")]
    SchemaNewer {
        /// The part whose schema it is.
        component: String,
        /// The step a program must know.
        needed: u32,
        /// The last step this program knows.
        known: u32,
    },
    /// Migrations are waiting and this program was told not to run them.
    #[error("the schema of {component} is at step {at}; this program needs step {needed}")]
    SchemaBehind {
        /// The part whose schema it is.
        component: String,
        /// Where the database is.
        at: u32,
        /// Where it must be.
        needed: u32,
    },
    /// A migration that was applied has another text now.
    #[error("migration {step} of {component} was applied with another text")]
    MigrationChanged {
        /// The part whose schema it is.
        component: String,
        /// The step that differs.
        step: String,
    },
    /// A migration failed and was rolled back.
    #[error("migration {step} of {component} failed: {source}")]
    MigrationFailed {
        /// The part whose schema it is.
        component: String,
        /// The step that failed.
        step: String,
        /// Why.
        source: Box<Error>,
    },
    /// The database is a backup, or a restore into it has not finished.
    #[error("{0} is a backup, or a restore into it has not finished")]
    NotRestored(String),
    /// Too many transactions wait; nothing was done.
    #[error("the store was busy for {waited_ms} ms: {reason}")]
    Busy {
        /// How long the caller waited.
        waited_ms: u64,
        /// What it waited for.
        reason: String,
    },
    /// As many searches run as may.
    #[error("other searches are under way")]
    SearchBusy,
    /// The database cannot be reached; nothing was done.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// Contact was lost during the commit: it may or may not have happened.
    #[error("the outcome of the commit is unknown: {0}")]
    CommitUnknown(String),
    /// Other transactions were in the way again and again; nothing was done.
    #[error("the transaction lost against others {attempts} times: {reason}")]
    Conflict {
        /// How often it ran.
        attempts: u32,
        /// What the database said last.
        reason: String,
    },
    /// The transaction ran longer than it may; nothing was done.
    #[error("the transaction was stopped after {limit_ms} ms")]
    Timeout {
        /// The limit.
        limit_ms: u64,
    },
    /// A long read was ended because it kept the write-ahead log from being cleared.
    #[error("the read was ended after {held_ms} ms: it kept {wal_bytes} bytes of write-ahead log alive")]
    ReadEvicted {
        /// How long it had been open.
        held_ms: u64,
        /// The size of the log at that moment.
        wal_bytes: u64,
    },
    /// A rule of the schema was broken.
    #[error("{kind} constraint: {detail}")]
    Constraint {
        /// Which rule.
        kind: Constraint,
        /// What the database says of it.
        detail: String,
    },
    /// The database does not understand the statement.
    #[error("{0}")]
    Sql(String),
    /// The statement is not one that may run inside a transaction of the store.
    #[error("statement refused: {0}")]
    StatementRefused(String),
    /// The parameters do not fit the statement.
    #[error("parameters: {0}")]
    Parameters(String),
    /// A text that one of the databases cannot keep.
    #[error("${0} is text with a NUL character")]
    Text(usize),
    /// A column does not hold what was asked for.
    #[error("column {column}: {reason}")]
    Decode {
        /// The column, by name or index.
        column: String,
        /// What it holds instead.
        reason: String,
    },
    /// Exactly one row was expected.
    #[error("expected one row, found {0}")]
    RowCount(usize),
    /// A write inside [`Store::read`](crate::Store::read).
    #[error("a read cannot write: {0}")]
    ReadOnly(String),
    /// The closure waited for something that is not the store.
    #[error("the transaction awaited something other than its own Tx")]
    ForeignAwait,
    /// The closure panicked.
    #[error("the transaction panicked: {0}")]
    Panicked(String),
    /// An earlier statement of this transaction failed.
    #[error("an earlier statement failed: {0}")]
    TransactionFailed(String),
    /// The `Tx` outlived its transaction.
    #[error("this Tx is over; it lives only inside the closure it was given to")]
    TransactionClosed,
    /// The closure returned while an operation of its `Tx` was still running elsewhere.
    #[error("the transaction returned while one of its operations was still running")]
    TransactionEscaped,
    /// The disk is full; nothing was done.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// The disk failed; nothing was done.
    #[error("the disk failed: {0}")]
    Io(String),
    /// The database is damaged.
    #[error("the database is damaged: {0}")]
    Corrupt(String),
    /// What was to be made new is there already; it was left as it is.
    #[error("{0} is there already; it was left as it is")]
    Exists(String),
    /// A program that is needed is not installed.
    #[error("{tool} was not found in {places}")]
    ToolMissing {
        /// The program.
        tool: &'static str,
        /// Where it was looked for.
        places: String,
    },
    /// A program that was run failed.
    #[error("{tool} failed: {reason}")]
    ToolFailed {
        /// The program.
        tool: &'static str,
        /// What it said.
        reason: String,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The closure's own error, for which the transaction was rolled back.
    #[error(transparent)]
    Application(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Rolls the transaction back for a reason of the application's own.
    pub fn application(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Application(reason.into())
    }

    /// The application's own error, when it is an `E`.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Application(reason) => reason.downcast_ref(),
            _ => None,
        }
    }

    /// The entry of this kind of failure in the register of codes.
    pub fn entry(&self) -> &'static ErrorCode {
        match self {
            Self::Url { .. } => &URL_INVALID,
            Self::Open { .. } => &OPEN_FAILED,
            Self::NotADatabase(_) => &NOT_A_DATABASE,
            Self::Owned { .. } => &OWNED,
            Self::Denied(_) => &DENIED,
            Self::ServerTooOld { .. } => &SERVER_TOO_OLD,
            Self::SchemaNewer { .. } => &SCHEMA_NEWER,
            Self::SchemaBehind { .. } => &SCHEMA_BEHIND,
            Self::MigrationChanged { .. } => &MIGRATION_CHANGED,
            Self::MigrationFailed { .. } => &MIGRATION_FAILED,
            Self::Busy { .. } => &BUSY,
            Self::SearchBusy => &SEARCH_BUSY,
            Self::Unavailable(_) => &UNAVAILABLE,
            Self::CommitUnknown(_) => &COMMIT_UNKNOWN,
            Self::Conflict { .. } => &CONFLICT,
            Self::Timeout { .. } => &TIMEOUT,
            Self::NotRestored(_) => &NOT_RESTORED,
            Self::ReadEvicted { .. } => &READ_EVICTED,
            Self::Constraint { .. } => &CONSTRAINT,
            Self::Sql(_) => &SQL_INVALID,
            Self::StatementRefused(_) => &STATEMENT_REFUSED,
            Self::Parameters(_) => &PARAMETERS_INVALID,
            Self::Text(_) => &TEXT_INVALID,
            Self::Decode { .. } => &DECODE_FAILED,
            Self::RowCount(_) => &ROW_COUNT,
            Self::ReadOnly(_) => &READ_ONLY,
            Self::ForeignAwait => &FOREIGN_AWAIT,
            Self::Panicked(_) => &CLOSURE_PANICKED,
            Self::TransactionFailed(_) => &TRANSACTION_FAILED,
            Self::TransactionClosed => &TRANSACTION_CLOSED,
            Self::TransactionEscaped => &TRANSACTION_ESCAPED,
            Self::DiskFull(_) => &DISK_FULL,
            Self::Io(_) => &IO_FAILED,
            Self::Corrupt(_) => &CORRUPT,
            Self::Exists(_) => &TARGET_EXISTS,
            Self::ToolMissing { .. } => &TOOL_MISSING,
            Self::ToolFailed { .. } => &TOOL_FAILED,
            Self::Closed => &CLOSED,
            Self::Application(_) => &ROLLED_BACK,
        }
    }

    /// The stable name of this kind of failure.
    pub fn code(&self) -> &'static str {
        self.entry().code
    }

    /// Whether the same call may succeed later. Whether repeating it is *safe* is another question, which
    /// [`is_outcome_unknown`](Self::is_outcome_unknown) answers.
    pub fn is_retryable(&self) -> bool {
        self.entry().retryable
    }

    /// Whether the transaction may have been committed all the same. Every other error means that it was not.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::CommitUnknown(_))
    }
}

impl From<Hit> for Error {
    fn from(hit: Hit) -> Self {
        Self::Io(hit.to_string())
    }
}

mainstay_core::codes! {
    /// Every code the store answers with.
    pub static CODES:
    URL_INVALID "STORE_URL_INVALID" 500 false
        "The store URL cannot be understood."
        "Write sqlite:FILE, sqlite::memory: or postgres://USER@HOST/DATABASE.";
    OPEN_FAILED "STORE_OPEN_FAILED" 500 false
        "The database file or server cannot be opened."
        "For a file: check that its folder exists and is writable. For a server: check host, port, database name and certificate.";
    NOT_A_DATABASE "STORE_NOT_A_DATABASE" 500 false
        "The file exists but is not a SQLite database. It was left untouched."
        "Point the store at another file, or move this one away.";
    OWNED "STORE_OWNED" 500 false
        "Another process owns the SQLite file. A file has one owning process, so that commits can be shared and wake-ups stay in memory."
        "Stop the other process, or use PostgreSQL to run several.";
    DENIED "STORE_PERMISSION_DENIED" 500 false
        "The database user lacks a right that Mainstay needs, or its password is wrong."
        "Grant CONNECT and CREATE on the database (GRANT CREATE ON SCHEMA public TO …), or correct the password.";
    SERVER_TOO_OLD "STORE_SERVER_TOO_OLD" 500 false
        "The PostgreSQL server is older than the oldest supported version."
        "Use PostgreSQL 15 or newer.";
    SCHEMA_NEWER "STORE_SCHEMA_NEWER" 500 false
        "A newer version of Mainstay changed the schema in a way that this version cannot work with."
        "Upgrade this node to the version that ran the migration, or newer. Never delete rows from mainstay_migrations.";
    SCHEMA_BEHIND "STORE_SCHEMA_BEHIND" 500 false
        "Migrations are waiting, and this program was told not to run them."
        "Run `mainstay migrate`, or let the program migrate when it opens the store.";
    MIGRATION_CHANGED "STORE_MIGRATION_CHANGED" 500 false
        "A migration that was applied to this database has another text in this program."
        "Run the build that belongs to this database. Applied migrations are never edited; a change is a new step.";
    MIGRATION_FAILED "STORE_MIGRATION_FAILED" 500 false
        "A migration failed and was rolled back; the schema is as it was."
        "Read the cause, mend it, and run `mainstay migrate` again.";
    NOT_RESTORED "STORE_NOT_RESTORED" 500 false
        "The database is a backup, or a restore into it has not finished. Tokens in it may have been revoked since, so it is not opened."
        "Run `mainstay restore FILE --store URL` with the URL of a new store. Drop a PostgreSQL database that an interrupted restore has left, and restore into an empty one.";
    BUSY "STORE_BUSY" 503 true
        "More transactions wait than the store accepts, or another process holds the database. Nothing was done."
        "Try again after a moment; if it lasts, look at the writer queue and commit time in the metrics.";
    SEARCH_BUSY "SEARCH_BUSY" 503 true
        "As many searches run as may: a quarter of the readers of the store, so that other reads go on."
        "Try again after a moment. A search by pool, function, state or key beside the text looks at less.";
    UNAVAILABLE "STORE_UNAVAILABLE" 503 true
        "The database cannot be reached. Nothing was done."
        "Try again after a moment; check that the server runs and accepts connections.";
    COMMIT_UNKNOWN "STORE_COMMIT_UNKNOWN" 503 true
        "Contact with the database was lost during the commit, so it may or may not have happened."
        "Look before repeating, or repeat with an idempotency key.";
    CONFLICT "STORE_CONFLICT" 503 true
        "The transaction was run several times and lost against others each time. Nothing was done."
        "Try again; if it lasts, make the transaction touch less, or take tx.lock first.";
    TIMEOUT "STORE_TIMEOUT" 503 false
        "The transaction ran longer than its limit and was rolled back."
        "Make it smaller, give its query an index, or raise transactionTimeoutMs or readTimeoutMs.";
    READ_EVICTED "STORE_READ_EVICTED" 503 true
        "A long read was ended because it kept the write-ahead log from being cleared beyond its limit."
        "Read in pages, each in a transaction of its own, or raise walLimitBytes.";
    CONSTRAINT "STORE_CONSTRAINT" 409 false
        "A statement broke a unique, foreign key, not null or check rule of the schema."
        "Ask with ON CONFLICT DO NOTHING when a duplicate is to be expected.";
    SQL_INVALID "STORE_SQL_INVALID" 500 false
        "The database does not understand the statement."
        "Correct the statement. docs/concepts/sql.md lists what works on both databases.";
    STATEMENT_REFUSED "STORE_STATEMENT_REFUSED" 500 false
        "The statement controls the transaction, the connection or the server, or is more than one statement."
        "Leave BEGIN, COMMIT, SAVEPOINT, PRAGMA, ATTACH, SET and the like to the store; send one statement at a time.";
    PARAMETERS_INVALID "STORE_PARAMETERS_INVALID" 500 false
        "The parameters do not fit the statement: too few, too many, or of another type."
        "Count $1…$n against the parameters, and check their types against the columns.";
    TEXT_INVALID "STORE_TEXT_INVALID" 400 false
        "A text has a NUL character, which databases do not keep."
        "Send the text without it; inside of JSON that is kept as it is, `\\u0000` may stay.";
    DECODE_FAILED "STORE_DECODE_FAILED" 500 false
        "A column does not hold what was asked for."
        "Ask for the type the column has, or cast it in the statement.";
    ROW_COUNT "STORE_ROW_COUNT" 500 false
        "Exactly one row was expected."
        "Use query_optional or query when there may be none or several.";
    READ_ONLY "STORE_READ_ONLY" 500 false
        "A read tried to write."
        "Use transact for what writes.";
    FOREIGN_AWAIT "STORE_FOREIGN_AWAIT" 500 false
        "The closure of a transaction awaited something other than its own Tx. It was rolled back: waiting there would make every other writer wait too."
        "Do other IO before or after the transaction, or as an action that the transaction enqueues.";
    CLOSURE_PANICKED "STORE_CLOSURE_PANICKED" 500 false
        "The closure of a transaction panicked and was rolled back."
        "Mend the panic; its message is in the error.";
    TRANSACTION_FAILED "STORE_TRANSACTION_FAILED" 500 false
        "An earlier statement of the transaction failed, and its error was not passed on."
        "Return the first error; a failed statement ends its transaction on both databases.";
    TRANSACTION_CLOSED "STORE_TRANSACTION_CLOSED" 500 false
        "A Tx was used after its transaction had ended."
        "Use the Tx only inside the closure it was given to.";
    TRANSACTION_ESCAPED "STORE_TRANSACTION_ESCAPED" 500 false
        "The closure returned while one of its operations was still running in another task. It was rolled back."
        "Await every operation of the Tx before returning.";
    DISK_FULL "STORE_DISK_FULL" 507 true
        "The disk is full. Nothing was done; reads go on."
        "Free some space. Writes go on by themselves as soon as there is room.";
    IO_FAILED "STORE_IO_FAILED" 500 true
        "The disk failed to read or write. Nothing was done."
        "Look at the system log and the disk's health; verify the store afterwards.";
    CORRUPT "STORE_CORRUPT" 500 false
        "The database file is damaged."
        "Stop, keep a copy of the file and its -wal, and restore from a backup.";
    TARGET_EXISTS "STORE_TARGET_EXISTS" 409 false
        "A backup or a restored store was to be made where something is already. It was left as it is."
        "Name a file that does not exist, or an empty database; nothing is ever overwritten.";
    TOOL_MISSING "STORE_TOOL_MISSING" 500 false
        "A program of PostgreSQL's that makes or reads backups is not installed."
        "Install PostgreSQL's client programs, of the server's version or newer, or set MAINSTAY_PG_BIN to their folder.";
    TOOL_FAILED "STORE_TOOL_FAILED" 500 false
        "A program of PostgreSQL's that makes or reads backups failed."
        "Read what it said. It must be of the server's version or newer, and its user may read every table.";
    CLOSED "STORE_CLOSED" 503 false
        "The store was closed while the call waited. Nothing was done."
        "Open the store again.";
    ROLLED_BACK "STORE_ROLLED_BACK" 500 false
        "The application's own code ended the transaction with an error. Nothing was done."
        "See the application's error.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_core::codes::Register;

    #[test]
    fn every_code_is_registered_once_and_says_what_to_do() {
        let register = Register::join(&[CODES]).unwrap();
        assert_eq!(register.iter().count(), CODES.len());
        for entry in register.iter() {
            assert!(entry.code.starts_with("STORE_") || entry.code == "SEARCH_BUSY", "{}", entry.code);
            assert!(entry.meaning.ends_with('.') && entry.remedy.ends_with('.'), "{}", entry.code);
        }
    }

    #[test]
    fn an_application_error_comes_back_as_itself() {
        #[derive(Debug, PartialEq, thiserror::Error)]
        #[error("out of stock")]
        struct OutOfStock;
        let error = Error::application(OutOfStock);
        assert_eq!(error.downcast_ref::<OutOfStock>(), Some(&OutOfStock));
        assert_eq!(error.to_string(), "out of stock");
        assert_eq!(Error::Closed.downcast_ref::<OutOfStock>(), None);
    }
}
