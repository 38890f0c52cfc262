//! [`Failure`], with the exit code of each kind.

#![forbid(unsafe_code)]

use serde_json::json;
use std::io::{self, Write};
use std::process::ExitCode;
use tourbillon_durable::DurableError;
use tourbillon_durable::text::{AddressError, SettingsError, printable};

/// The end of `--help`: examples, and the exit codes.
pub(crate) const HELP: &str = "\
Examples:
  export TIMERS_STORE=postgres://shop@127.0.0.1/shop#reminders
  timers schedule \"order 7\" unpaid --after 30m
  timers list --state paused
  timers dead list --newest
  timers redrive --all

Exit codes:
  0  done
  1  the store failed, or rejected a value
  2  wrong usage
  3  there is no such timer, dead letter or store
  4  the id exists already, the timer is running, or the store is not paused
  5  a check found damage
  6  the store cannot be reached, read or written at present, or is open elsewhere";

/// The reason why a command fails.
#[derive(Debug)]
pub(crate) enum Failure {
    Store(DurableError),
    Usage(String),
    NotFound(String),
    Damaged(String),
    Output(io::Error),
}

impl Failure {
    /// Prints the reason as text or as JSON, and returns the exit code.
    pub(crate) fn report(self, json: bool) -> ExitCode {
        let (code, why) = match self {
            // The reader of the pipe has read enough.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return ExitCode::SUCCESS;
            }
            Self::Output(error) => (1, error.to_string()),
            Self::Store(error) => (code(&error), error.to_string()),
            Self::Usage(why) => (2, why),
            Self::NotFound(why) => (3, why),
            Self::Damaged(why) => (5, why),
        };
        match json {
            true => complain(&json!({ "error": why, "code": code }).to_string()),
            false => complain(&format!("timers: {why}")),
        }
        ExitCode::from(code)
    }
}

/// Writes a line to standard error. If its reader is gone, neither the work nor the exit code
/// changes.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(line));
}

fn code(error: &DurableError) -> u8 {
    match error {
        DurableError::Exists | DurableError::Running | DurableError::NotPaused => 4,
        DurableError::Unreachable(_)
        | DurableError::ReadOnly(_)
        | DurableError::Locked(_)
        | DurableError::Io(_) => 6,
        _ => 1,
    }
}

impl From<DurableError> for Failure {
    fn from(error: DurableError) -> Self {
        Self::Store(error)
    }
}

impl From<AddressError> for Failure {
    fn from(error: AddressError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        Self::Usage(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
