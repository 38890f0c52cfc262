//! Loads the servers one after another, in several rounds: with many connections that are mostly
//! idle, with QUIC connections, with flows of datagrams, and with keys that expire. It audits the
//! timeouts from the clients' side, and exits with 1 if a timer fired early or never, or was left
//! behind.
//!
//! `ci/load servers` builds the servers and this program, and runs it. Existing tools (wrk, oha and
//! the like) measure the busy part, but they speak only HTTP, open no idle connections and cannot
//! observe when those are closed. The busy part is therefore here too, and small. Every client
//! sends its next request as soon as it has the answer to the last one, so latencies describe a
//! server at its limit.
//!
//! ```text
//! ci/load servers --help
//! ci/load servers --connections 20000 --seconds 10 --json load.json
//! ci/load servers --time
//! ```

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that reports to a person")]
#![allow(clippy::disallowed_methods, reason = "a program in real time, with threads of its own")]

mod busy;
mod child;
mod client;
mod connections;
mod crowd;
mod flows;
mod keys;
mod measure;
mod options;
mod protocol;
mod quic;
mod report;
mod servers;
mod trial;

use clap::Parser;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use options::Options;
use report::{Row, Summary, Table};
use std::fs::File;
use std::process::ExitCode;
pub(crate) use tourbillon_servers::process::Failure;

/// The number of descriptors that are not connections, such as descriptors of polls and pipes.
const OTHER_FILES: u64 = 100;

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Loads the servers, reports, and returns `true` if all idle timeouts were right.
fn run(options: &Options) -> Result<bool, Failure> {
    // Before the trials, so that a path that cannot be written is reported at once and not after
    // them.
    if let Some(path) = &options.json {
        File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let connections = most_connections(options)?;
    let servers = options.servers();
    if servers.is_empty() {
        return Err(
            "`--server` names none of the servers that are loaded with or without `--time`".into(),
        );
    }
    let mut rounds = vec![Vec::new(); servers.len()];
    for round in 0..options.rounds as usize {
        // Each round begins with another server, so that none is always the first or after the same
        // one.
        for which in (0..servers.len()).map(|turn| (round + turn) % servers.len()) {
            let server = &servers[which];
            eprintln!("round {} of {}: {server}", round + 1, options.rounds);
            let load = options.load(connections);
            let row = trial::run(server, &load).map_err(|error| format!("{server}: {error}"))?;
            rounds[which].push(row);
        }
    }
    let first_timers = |row: &Row| {
        let same = |rows: &&Vec<Row>| rows.first().is_some_and(|first| first.server == row.server);
        rounds.iter().find(same).map_or(&[][..], Vec::as_slice)
    };
    let summary = |rows: &Vec<Row>| Summary::new(rows, first_timers(rows.first()?));
    let table = Table::new(rounds.iter().filter_map(summary).collect());
    print!("{table}");
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", table.json()))?;
    }
    Ok(table.holds())
}

/// The number of connections, limited by the descriptors of this process. The limit of the servers
/// is the same.
fn most_connections(options: &Options) -> Result<usize, Failure> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let most = usize::try_from(hard.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX).max(2);
    let asked = options.connections as usize;
    if asked > most {
        eprintln!("{most} connections: a process may have {hard} files open");
    }
    Ok(asked.min(most))
}
