//! A server whose timers are in a module `time`, by choice `tokio::time` or `tourbillon::time`. It
//! is written as usual on tokio, with a task for each connection, and compiled once with each
//! module, so that nothing but an import differs.
//!
//! | protocol | timers | `--idle` |
//! |---|---|---|
//! | `http` | idle timeout, time limit of a request | before a silent connection is closed |
//! | `web-socket` | pings, deadline of any frame | the same |
//! | `mqtt` | keep-alive, repetition of messages | the time limit of a connect |
//! | `datagrams` | retransmission of segments | the shortest timeout |
//! | `keys` | expiry of keys | not used |
//!
//! At its end it reports when its timers fired, relative to their deadlines.
//!
//! ```text
//! cargo run --release -p tourbillon-servers --bin time_server -- --help
//! ```

mod audit;
mod modules;
mod options;

use audit::Audit;
use clap::Parser;
use modules::{on_tokio, on_tourbillon};
use options::{Module, Options};
use serde_json::Value;
use std::process::ExitCode;
use std::sync::Arc;
use tourbillon_servers::process::{self, Failure};

fn main() -> ExitCode {
    process::finish(run(&Options::parse()))
}

/// Serves until the standard input ends, and reports.
fn run(options: &Options) -> Result<Value, Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(options.workers.into()).enable_all().build()?;
    let audit = Arc::new(Audit::new()?);
    let serving = Arc::clone(&audit);
    runtime.block_on(async {
        let served = async {
            let (protocol, process) = (options.protocol, &options.process);
            match process.timers {
                Module::Tokio => on_tokio::protocols::serve(protocol, process, serving).await,
                Module::Tourbillon => {
                    on_tourbillon::protocols::serve(protocol, process, serving).await
                }
            }
        };
        tokio::select! {
            served = served => served,
            () = process::input_ends() => Ok(()),
        }
    })?;
    Ok(audit.report())
}
