//! The start and the end of a server's process, which `load` relies on. The server prints its
//! address, ends when its standard input does, and then prints a line of JSON.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "the address and the counts go to a program that reads"
)]

use crate::timers::Kind;
use clap::{Parser, ValueEnum};
use serde_json::Value;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// An error for the user of the program.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The options that all servers have, with the kinds of their timers.
#[derive(Clone, Copy, Debug, Parser)]
#[group(skip)]
pub struct Options<K = Kind>
where
    K: ValueEnum + Clone + Default + Send + Sync + 'static,
{
    /// The address to listen on, with port 0 for any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,

    /// The owner of the timers.
    #[arg(long, value_enum, default_value_t)]
    pub timers: K,

    /// The timeout of the protocol. `--help` says what it limits.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = timeout)]
    pub idle: Duration,
}

/// Parses a duration of 1 ms to an hour.
fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let allowed = Duration::from_millis(1)..=Duration::from_secs(3600);
    if allowed.contains(&timeout) { Ok(timeout) } else { Err("1ms to 1h is allowed".into()) }
}

/// Prints the counts of a server, or its error, and returns the status of the process.
pub fn finish(counts: Result<Value, Failure>) -> ExitCode {
    match counts {
        Ok(counts) => {
            println!("{counts}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Reports the address of a server that listens.
pub fn listens_on(address: SocketAddr) {
    println!("listening on {address}; ends with standard input");
}

/// Reports the certificate of a server in hexadecimal digits.
pub fn presents(certificate: &[u8]) {
    let digits: String = certificate.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{digits}");
}

/// Waits for the end of the standard input.
pub async fn input_ends() {
    // An input that cannot be read has ended too.
    let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
}
