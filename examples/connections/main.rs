//! A server with a million connections, in real time and on all cores. Every connection has an idle
//! timeout that each packet pushes back, and requests with deadlines that answers mostly cancel.
//!
//! By default the server is busy for about 70 % of the time, and the lateness describes a server
//! with time to spare. With `--flat-out` it never pauses. Then the number of operations is the
//! result, and timers are late because they wait for a core.
//!
//! At the end the program audits itself. Every timer must end exactly once (fired, cancelled or
//! handed back). None may fire early, after a cancel that took effect, or at a deadline that was
//! reset. The program exits with 1 if the audit finds a fault.
//!
//! ```text
//! cargo run --release --example connections -- --help
//! ```

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that reports to a person")]
#![allow(clippy::disallowed_methods, reason = "a program in real time, with threads of its own")]

mod cpu;
mod endpoint;
mod figures;
mod ledger;
mod options;
mod pace;
mod plot;
mod report;
mod server;

use clap::Parser;
use options::Options;
use std::fs::File;
use std::process::ExitCode;

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

/// Plays, reports, and returns `true` if the audit found no fault.
fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    // Before the run, so that a path that cannot be written is reported at once and not after it.
    for path in [&options.json, &options.plot].into_iter().flatten() {
        File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let outcome = server::play(options)?;
    let report = report::Report::new(options, &outcome);
    print!("{report}");
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", report.json()))?;
    }
    if let Some(path) = &options.plot {
        plot::draw(path, &outcome)?;
    }
    Ok(report.holds())
}
