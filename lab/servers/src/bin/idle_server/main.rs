//! A TCP echo server that closes idle connections. It has a thread with an event loop per core, an
//! idle timeout per connection that every read pushes back, and no async runtime.
//!
//! It prints its address, serves until its standard input ends (ctrl-D at a terminal), closes
//! everything and prints its counters as a line of JSON. It exits with 1 if a timer was left
//! behind.
//!
//! ```text
//! cargo run --release -p tourbillon-servers --bin idle_server -- --help
//! cargo run --release -p tourbillon-servers --bin idle_server -- --idle 10s
//! ```

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a program that reports to whoever started it"
)]
#![allow(clippy::disallowed_methods, reason = "a program in real time, with threads of its own")]

mod options;
mod server;

use clap::Parser;
use cpu_time::ProcessTime;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use options::Options;
use serde_json::json;
use server::Server;
use std::error::Error;
use std::io::{Read, Write};
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

/// Serves, reports, and returns `true` if no timer was left behind.
fn run(options: &Options) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;

    let echo = |read: &[u8], answer: &mut Vec<u8>| answer.extend_from_slice(read);
    let server = Server::start(&options.config(), echo)?;
    println!("listening on {}; ends with standard input", server.address());
    std::io::stdout().flush()?;

    wait_for_end(&mut std::io::stdin())?;
    let figures = server.stop()?;
    let report = json!({
        "accepted": figures.accepted,
        "fired": figures.fired,
        "closed_idle": figures.closed_idle,
        "panicked": figures.panicked,
        "left": figures.armed,
        "cpu_us": u64::try_from(ProcessTime::try_now()?.as_duration().as_micros())?,
    });
    println!("{report}");
    Ok(figures.armed == 0)
}

/// Reads and discards all input.
fn wait_for_end(input: &mut impl Read) -> std::io::Result<()> {
    std::io::copy(input, &mut std::io::sink()).map(drop)
}
