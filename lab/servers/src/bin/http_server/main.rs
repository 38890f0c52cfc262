//! An HTTP server on hyper and tokio with every timeout of its connections and requests on one
//! timing wheel. To compare both under the same load, it can use tokio's own timer instead.
//!
//! `GET /` is a small answer, `GET /slow?ms=N` a slow one, `GET /panic` a panic, and `POST /echo`
//! returns the body of the request. The server ends when its standard input does.
//!
//! ```text
//! cargo run --release -p tourbillon-servers --bin http_server -- --help
//! ```

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "its address and its counts go to a program that reads"
)]

mod activity;
mod options;
mod server;
mod service;
mod shared;
mod stall;
mod tally;
mod timers;

use clap::Parser;
use cpu_time::ProcessTime;
use options::{Kind, Options};
use serde_json::json;
use server::Server;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use timers::{Timers, Tokio};
use tokio::net::{TcpListener, TcpSocket};
use tourbillon::Builder;
use tourbillon::future::Timer;

/// The number of connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(options.workers()).enable_all().build()?;
    match options.timers {
        Kind::Tokio => runtime.block_on(serve(options, Tokio)),
        Kind::Tourbillon => {
            let timer = Timer::spawn(Builder::new().driver())?;
            runtime.block_on(serve(options, timer))
        }
    }
}

async fn serve<T: Timers>(options: &Options, timers: T) -> Result<(), Box<dyn Error>> {
    let listener = listen(options.listen)
        .map_err(|error| format!("cannot listen on {}: {error}", options.listen))?;
    println!("listening on {}; ends with standard input", listener.local_addr()?);
    let server = Server::new(options.limits(), timers);
    server.accept(listener);
    let until_its_end = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
    let live = server.tally().live();
    let left = server.close().await;
    until_its_end?;
    let tally = server.tally();
    let counts = json!({
        "accepted": tally.accepted(),
        "requests": tally.requests(),
        "fired": tally.fired(), // the timeouts that passed
        "live": live, // the connections that were open at the end of the input
        "left": left, // the timers in the wheel after that
        "cpu_us": u64::try_from(ProcessTime::try_now()?.as_duration().as_micros())?,
    });
    println!("{counts}");
    Ok(())
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
