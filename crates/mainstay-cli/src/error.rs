//! What ends the program early, and how it is told.

use crate::config;
use crate::reference::errors;
use clap::error::ErrorKind;
use mainstay::core::codes::ErrorCode;
use mainstay::{events, flows, guards, store, work};
use mainstay_server::audit::Outcome;
use serde::Serialize;

/// The result of a verb.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a verb did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line cannot be understood.
    #[error("{}", .0.render())]
    Usage(clap::Error),
    /// The configuration is wrong, in one place or several.
    #[error("the configuration is wrong in {} places", .0.len())]
    Config(Vec<config::Error>),
    /// The store says no.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The server cannot start.
    #[error(transparent)]
    Server(#[from] mainstay_server::Error),
    /// No server answers, or something else does.
    #[error("{url}: {reason}{}", held(because))]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// What came of it.
        reason: String,
        /// Why a server was asked at all, when nobody said so.
        because: Option<String>,
    },
    /// A server says no.
    #[error("{detail}")]
    Refused {
        /// The code of its problem document.
        code: String,
        /// What it says.
        detail: String,
    },
    /// A verb was given something that it cannot take.
    #[error("{0}")]
    Argument(String),
    /// The log says no.
    #[error(transparent)]
    Events(#[from] events::Error),
    /// The workshop says no.
    #[error(transparent)]
    Work(#[from] work::Error),
    /// The guards say no.
    #[error(transparent)]
    Guards(#[from] guards::Error),
    /// The offices say no.
    #[error(transparent)]
    Flows(#[from] flows::Error),
    /// The log was looked over, and not everything is as it was written.
    #[error("problems were found: {0}")]
    Problems(u64),
    /// The audit was followed, and it is not as it was written.
    #[error("entry {number} of the audit: {reason}")]
    AuditBroken {
        /// The entry.
        number: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The demo has ended, and not everything that it claims holds.
    #[error("the demo did not show what it claims: {0}")]
    Unproven(String),
    /// What was measured is over what is promised.
    #[error("over the limit: {}", .0.join("; "))]
    OverLimit(Vec<String>),
    /// A file or stream of this program's own failed.
    #[error("{what}: {source}")]
    Io {
        /// The file or stream.
        what: String,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// Generated pages are not what they would be if generated now.
    #[error("generated pages are out of date: {}", .0.join(", "))]
    ReferenceStale(Vec<String>),
}

/// Codes of requests that the API does not understand.
const INVALID: [&str; 3] = ["BODY_INVALID", "PATH_INVALID", "QUERY_INVALID"];

/// One thing to tell.
#[derive(Serialize)]
struct Finding {
    code: String,
    message: String,
    hint: String,
}

impl<Own: std::error::Error + Into<Self>> From<mainstay::Error<Own>> for Error {
    fn from(error: mainstay::Error<Own>) -> Self {
        match error {
            mainstay::Error::Store(error) => error.into(),
            mainstay::Error::Events(error) => error.into(),
            mainstay::Error::Guards(error) => error.into(),
            mainstay::Error::Work(error) => error.into(),
            mainstay::Error::Flows(error) => error.into(),
            mainstay::Error::Own(error) => error.into(),
        }
    }
}

impl From<mainstay_bench::Failure> for Error {
    fn from(failure: mainstay_bench::Failure) -> Self {
        match failure {
            mainstay_bench::Failure::Server(error) => error.into(),
            mainstay_bench::Failure::Unreachable { url, reason } => {
                Self::Unreachable { url, reason, because: None }
            }
            mainstay_bench::Failure::Broken(reason) => Self::Argument(reason),
        }
    }
}

impl From<mainstay_demo::Failure> for Error {
    fn from(failure: mainstay_demo::Failure) -> Self {
        match failure {
            mainstay_demo::Failure::Server(error) => error.into(),
            mainstay_demo::Failure::Unproven(claim) => Self::Unproven(claim),
            mainstay_demo::Failure::Io { what, source } => Self::Io { what, source },
            mainstay_demo::Failure::Broken(reason) => Self::Argument(reason),
        }
    }
}

impl Error {
    /// 2 when the command line or the configuration is wrong, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Config(_) | Self::Argument(_) | Self::Store(store::Error::Url { .. }) => 2,
            // What the command line asks for is no request that the API understands.
            Self::Refused { code, .. } if INVALID.contains(&code.as_str()) => 2,
            _ => 1,
        }
    }

    /// What the audit says of an action that ended so, and the code of what was wrong.
    pub(crate) fn outcome(&self) -> (Outcome, String) {
        let found = self.findings().into_iter().next();
        let code = found.map_or_else(|| IO_FAILED.code.to_owned(), |found| found.code);
        match errors::register().get(&code) {
            _ if self.exit_code() == 2 => (Outcome::Refused, code),
            Some(entry) => (Outcome::of_status(entry.status), code),
            None => (Outcome::Failed, code),
        }
    }

    /// Says on stderr what happened and what to do: for a person, or as one JSON object per line for a program.
    pub(crate) fn tell(&self, is_json: bool) {
        match self {
            // clap says it well, with the usage of the verb. If stderr is gone, nobody listens.
            Self::Usage(refused) if !is_json => drop(refused.print()),
            _ => eprint!("{}", self.findings().iter().map(|found| found.line(is_json)).collect::<String>()),
        }
    }

    /// Says the same in lines of the log, for whoever reads nothing else of a service.
    pub(crate) fn log(&self) {
        for Finding { code, message, hint } in self.findings() {
            tracing::error!(target: crate::log::NOTICE_TARGET, code, hint, "{message}");
        }
    }

    fn findings(&self) -> Vec<Finding> {
        let finding = |entry: &'static ErrorCode, message: String| Finding {
            code: entry.code.to_owned(),
            message,
            hint: entry.remedy.to_owned(),
        };
        match self {
            Self::Usage(refused) => vec![finding(&USAGE_INVALID, first_line(refused))],
            Self::Config(problems) => problems
                .iter()
                .map(|problem| Finding {
                    hint: problem.hint(),
                    ..finding(problem.entry(), problem.to_string())
                })
                .collect(),
            Self::Store(error) => vec![finding(error.entry(), error.to_string())],
            Self::Server(error) => vec![finding(error.entry(), error.to_string())],
            Self::Unreachable { .. } => vec![finding(&SERVER_UNREACHABLE, self.to_string())],
            Self::Refused { code, detail } => {
                let known = errors::register().get(code);
                let hint = known.map_or("See docs/errors for this code.", |entry| entry.remedy).to_owned();
                vec![Finding { code: code.clone(), message: detail.clone(), hint }]
            }
            Self::Argument(message) => vec![finding(&USAGE_INVALID, message.clone())],
            Self::Events(error) => vec![finding(error.entry(), error.to_string())],
            Self::Work(error) => vec![finding(error.entry(), error.to_string())],
            Self::Guards(error) => vec![finding(error.entry(), error.to_string())],
            Self::Flows(error) => vec![finding(error.entry(), error.to_string())],
            Self::Problems(_) => vec![finding(&PROBLEMS_FOUND, self.to_string())],
            Self::AuditBroken { .. } => vec![finding(&AUDIT_BROKEN, self.to_string())],
            Self::Unproven(_) => vec![finding(&DEMO_UNPROVEN, self.to_string())],
            Self::OverLimit(_) => vec![finding(&OVER_LIMIT, self.to_string())],
            Self::Io { .. } => vec![finding(&IO_FAILED, self.to_string())],
            Self::ReferenceStale(_) => vec![finding(&REFERENCE_STALE, self.to_string())],
        }
    }
}

impl Finding {
    fn line(&self, is_json: bool) -> String {
        if is_json {
            return serde_json::to_string(self).expect("three texts are always JSON") + "\n";
        }
        let Self { code, message, hint } = self;
        format!("error[{code}]: {message}\nhint: {hint}\n")
    }
}

fn held(because: &Option<String>) -> String {
    because.as_ref().map_or(String::new(), |because| format!(" (asked because {because})"))
}

fn first_line(refused: &clap::Error) -> String {
    if refused.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "the verb is missing".to_owned();
    }
    let text = refused.render().to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

mainstay::core::codes! {
    /// Every code of the program's own, besides those of its configuration.
    pub static CODES:
    USAGE_INVALID "CLI_USAGE_INVALID" 500 false
        "The command line cannot be understood."
        "Run `mainstay help`, or the verb with --help.";
    SERVER_UNREACHABLE "CLI_SERVER_UNREACHABLE" 500 true
        "The server that was asked does not answer, or is none of ours."
        "Start it with `mainstay serve`, or name another with --server. Without a server the store must be free.";
    IO_FAILED "CLI_IO_FAILED" 500 false
        "A file or stream that the program itself reads or writes failed."
        "Check that the place named exists, has room, and that this user may write there.";
    PROBLEMS_FOUND "CLI_PROBLEMS_FOUND" 500 false
        "The log was looked over, and not everything in it is as it was written."
        "Read the report. An index is repaired with `mainstay verify --repair-index`; for the rest see docs/operations/log.md.";
    AUDIT_BROKEN "CLI_AUDIT_BROKEN" 500 false
        "The audit was followed from its beginning, and an entry is not as it was written."
        "Somebody has changed the database by hand. Compare it with a backup, and find out who had access.";
    DEMO_UNPROVEN "CLI_DEMO_UNPROVEN" 500 false
        "The demo has ended, and not everything that it claims was to be seen."
        "Let it run for longer: a cycle of the provider takes 40 seconds. If a payment is missing or there twice, please report it.";
    OVER_LIMIT "CLI_OVER_LIMIT" 500 true
        "A measurement was asked to be checked, and something is over its limit."
        "Measure again on a machine that does nothing else. What is over its limit then has got slower.";
    REFERENCE_STALE "CLI_REFERENCE_STALE" 500 false
        "Generated pages under docs/ differ from what this program would generate."
        "Run `mainstay reference` in the repository's root and commit what it writes.";
}
