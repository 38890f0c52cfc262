//! The command line.

#![forbid(unsafe_code)]

use super::failure::HELP;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tourbillon_durable::text::{
    AddressText, NewTime, STATES, Settings, StoreArguments, parse_duration, parse_state,
    parse_time, state_name,
};
use tourbillon_durable::{Label, TimerState};

/// The examples of `list`.
const LIST: &str = "\
Examples:
  timers list --due-before 2030-01-01T00:00:00Z
  timers list --state paused --limit 1000
  timers list --label \"customer 7\"
  timers --json list | jq -r 'select(.id).id'";

/// The examples of `dead`.
const DEAD: &str = "\
Examples:
  timers dead list --newest --limit 10
  timers dead show 7
  timers dead trim --most 1000 --age 30d";

/// The examples of `redrive`.
const REDRIVE: &str = "\
Examples:
  timers redrive 7
  timers redrive 7 --as \"order 7 again\"
  timers redrive --label shop
  timers redrive --all";

/// The examples of `copy`.
const COPY: &str = "\
Examples:
  timers --store timers.db pause --all
  timers --store timers.db copy redis://127.0.0.1/#reminders
  timers --store redis://127.0.0.1/#reminders resume --all";

/// The examples of `migrate`.
const MIGRATE: &str = "\
Examples:
  timers --store postgres://keeper@127.0.0.1/shop#reminders migrate
  timers --store postgres://shop@127.0.0.1/shop#reminders --owner keeper migrate --print-sql";

/// The examples of `schedule`.
const SCHEDULE: &str = "\
Examples:
  timers schedule \"order 7\" unpaid --after 30m --label shop --label \"customer 7\"
  timers schedule report yearly --cron \"0 9 1 1 *\" --zone Europe/Berlin
  timers schedule cleanup --every 1h --misfire 10m --existing keep
  timers schedule invoice --at 2030-01-01T09:00[Europe/Berlin] --payload-file invoice.json
  generate | timers schedule report --after 5m --payload-file -";

/// Lists and changes durable timers, in a file, Redis or PostgreSQL
#[derive(Parser)]
#[command(name = "timers", version, after_help = HELP, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    /// Print one JSON object per line, even for errors
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Store(StoreCommand),
    /// Copy this store, which must be paused, to another store
    #[command(after_help = COPY)]
    Copy {
        /// The address of the other store, which is created if it does not exist
        target: AddressText,
    },
    /// Create the store, or upgrade it to this version
    #[command(after_help = MIGRATE)]
    Migrate {
        /// Print the SQL for a store in PostgreSQL instead, without connecting
        #[arg(long)]
        print_sql: bool,
    },
    /// Print a script that completes the arguments in a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page
    Man {
        /// Write a page for each command into this folder instead
        #[arg(long, value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
}

/// A command on one store.
#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// List timers, earliest first
    #[command(after_help = LIST)]
    List(List),
    /// Show a timer or, if there is none, the newest dead letter with its id
    Get { id: String },
    /// Insert a timer
    #[command(after_help = SCHEDULE)]
    Schedule(Box<Schedule>),
    /// Cancel a timer, or all timers with a label
    Cancel(IdOrLabel),
    /// Move a timer to another time, with all its attempts
    Move {
        id: String,
        #[command(flatten)]
        time: NewTime,
    },
    /// Make a delivery of a timer at once. A timer that repeats keeps its plan, and a paused timer
    /// stays paused
    Run { id: String },
    /// Pause a timer, all timers with a label, or the store
    Pause(Whose),
    /// Resume a timer, all timers with a label, or the store
    Resume(Whose),
    /// List, show, delete and trim dead letters
    #[command(after_help = DEAD)]
    Dead {
        #[command(subcommand)]
        command: Dead,
    },
    /// Redrive dead letters, which makes their timers due at once
    #[command(after_help = REDRIVE)]
    Redrive(Redrive),
    /// Check the timers and the index of their due times for damage
    Check {
        /// Repair the store if it is damaged
        #[arg(long)]
        repair: bool,
    },
    /// Show statistics of the store, or the number of timers with a label
    Stats {
        /// Only timers with this label
        #[arg(long)]
        label: Option<Label>,
    },
}

#[derive(Args)]
pub(crate) struct List {
    /// Only timers in this state
    #[arg(
        long,
        value_parser = PossibleValuesParser::new(STATES.map(state_name))
            .try_map(|name| parse_state(&name)),
        conflicts_with_all = ["due_from", "due_before"]
    )]
    pub(crate) state: Option<TimerState>,
    /// Only timers with this label, in the order of their ids
    #[arg(long, conflicts_with_all = ["state", "due_from", "due_before"])]
    pub(crate) label: Option<Label>,
    /// Only timers that are due at this time or later
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) due_from: Option<SystemTime>,
    /// Only timers that are due before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) due_before: Option<SystemTime>,
    /// Only timers after this position, as printed by an incomplete list
    #[arg(long, value_name = "NEXT")]
    pub(crate) after: Option<String>,
    /// The maximum number of timers
    #[arg(long, default_value_t = 100)]
    pub(crate) limit: usize,
}

#[derive(Args)]
pub(crate) struct Schedule {
    /// The id of the timer
    pub(crate) id: String,
    /// The payload, which is empty by default
    pub(crate) payload: Option<String>,
    /// A file with the payload, or `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    pub(crate) payload_file: Option<PathBuf>,
    /// A header (can be repeated)
    #[arg(long, value_name = "NAME=VALUE", value_parser = header)]
    pub(crate) header: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// The contents of the file.
    #[arg(skip)]
    pub(crate) contents: Option<Vec<u8>>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct IdOrLabel {
    /// The id of the timer
    pub(crate) id: Option<String>,
    /// All timers with this label
    #[arg(long)]
    pub(crate) label: Option<Label>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Whose {
    /// The id of the timer
    pub(crate) id: Option<String>,
    /// All timers with this label
    #[arg(long)]
    pub(crate) label: Option<Label>,
    /// The whole store, with all its workers
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Subcommand)]
pub(crate) enum Dead {
    /// List dead letters, oldest first
    List {
        /// Only letters with greater numbers
        #[arg(long, value_name = "NUMBER", conflicts_with = "newest")]
        after: Option<u64>,
        /// List the newest letter first
        #[arg(long)]
        newest: bool,
        /// Only letters with smaller numbers, newest first
        #[arg(long, value_name = "NUMBER", requires = "newest")]
        before: Option<u64>,
        /// Only letters of timers with this label
        #[arg(long)]
        label: Option<Label>,
        /// The maximum number of letters
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show a dead letter
    Show { number: u64 },
    /// Delete a dead letter
    Delete { number: u64 },
    /// Delete the oldest dead letters
    Trim {
        /// Keep at most this number of letters
        #[arg(long, required_unless_present = "age")]
        most: Option<u64>,
        /// Delete letters that are older than this
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        age: Option<Duration>,
    },
}

#[derive(Args)]
pub(crate) struct Redrive {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Redrive the letter under another id, in case its own id is in use
    #[arg(long, value_name = "ID", conflicts_with_all = ["all", "label"])]
    pub(crate) r#as: Option<String>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// The number of the dead letter
    pub(crate) number: Option<u64>,
    /// All dead letters of timers with this label
    #[arg(long)]
    pub(crate) label: Option<Label>,
    /// All dead letters
    #[arg(long)]
    pub(crate) all: bool,
}

/// The error of a header without `=`.
#[derive(Debug)]
struct HeaderError;

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected NAME=VALUE")
    }
}

impl Error for HeaderError {}

fn header(text: &str) -> Result<(String, String), HeaderError> {
    let (name, value) = text.split_once('=').ok_or(HeaderError)?;
    Ok((name.to_owned(), value.to_owned()))
}
