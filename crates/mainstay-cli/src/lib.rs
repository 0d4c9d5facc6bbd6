//! The `mainstay` binary as a library: `main.rs` only calls [`run`], and tests reuse the rest.
//!
//! - `arguments`: the command line
//! - `verbs`: one file per verb
//! - `config`: `mainstay.toml`, environment and flags
//! - `log`: what is told while a verb runs; `spans`, what it knows of spans; `export`, which sends them to a collector
//! - `client`: the API, at a server or in this process; `audited`: what verbs change that no route does
//! - `services`: the services of a store, as the configuration defines them
//! - `signals`: when the process is told to stop; `descriptors`: how many files and sockets it may open
//! - `reference`: the pages under docs/ that are generated
//! - `output`, `shown`, `error`: what a person or a program gets to see

mod arguments;
mod audited;
mod client;
pub mod config;
mod descriptors;
mod error;
mod export;
mod log;
mod output;
mod reference;
mod services;
mod shown;
mod signals;
mod spans;
mod verbs;

pub use error::{CODES, Error, Result};

use clap::Parser;
use std::process::ExitCode;

/// Runs the program with the arguments and the environment of this process.
///
/// stdout is data, stderr is talk. Exit codes: 0 done, 1 the operation failed, 2 the command line or the
/// configuration is wrong.
pub fn run() -> ExitCode {
    let arguments = arguments::Arguments::try_parse();
    // What is warned of must be seen; stderr is talk.
    let level = arguments.as_ref().map_or(log::Level::Warn, |arguments| {
        arguments.global.log.unwrap_or_else(|| arguments.verb.loudness())
    });
    log::start(level);
    let is_log = arguments.as_ref().is_ok_and(|arguments| arguments.verb.is_service())
        && !log::is_seen()
        && level != log::Level::Off;
    let (ended, is_json) = match arguments {
        Ok(arguments) => (arguments.verb.run(&arguments.global), arguments.global.json),
        Err(refused) if refused.use_stderr() => {
            (Err(Error::Usage(refused)), std::env::args_os().any(|argument| argument == "--json"))
        }
        // --help and --version are data.
        Err(asked) => (output::print_help(&asked), false),
    };
    let Err(error) = ended else { return ExitCode::SUCCESS };
    match is_log && !is_json {
        true => error.log(),
        false => error.tell(is_json),
    }
    ExitCode::from(error.exit_code())
}
