//! A server that sends a sequence of segments on each of many flows over UDP, and repeats a segment
//! that is not acknowledged in time. One thread receives and sends in batches, and the
//! retransmission timer of every flow is in one structure.
//!
//! Each acknowledgement pushes the timer of its flow back. The timeout is one and a half times the
//! measured round trip, at least `--idle`, and doubled by each repetition.
//!
//! ```text
//! cargo run --release -p tourbillon-servers --bin flow_server -- --help
//! ```

#![allow(clippy::disallowed_methods, reason = "a program in real time")]

mod flows;

use clap::Parser;
use flows::Flows;
use nix::sys::socket::SockaddrIn;
use serde_json::{Value, json};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::pin;
use std::process::ExitCode;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::{unconstrained, yield_now};
use tourbillon_servers::datagrams::{Batches, Datagram};
use tourbillon_servers::process::{self, Failure, Options};
use tourbillon_servers::timers::{Server, Timers};

fn main() -> ExitCode {
    let options: Options = Options::parse();
    process::finish(options.timers.serve(Serving(options)).and_then(|counts| counts))
}

/// The server before it knows its timers.
struct Serving(Options);

impl Server<u32> for Serving {
    type Output = Result<Value, Failure>;

    fn run<T: Timers<u32>>(self, timers: T) -> Self::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // One task does everything, so it need not give way to others.
        runtime.block_on(unconstrained(serve(self.0, timers)))
    }
}

/// Serves until the standard input ends, and returns the counts.
async fn serve<T: Timers<u32>>(options: Options, mut timers: T) -> Result<Value, Failure> {
    let socket = std::net::UdpSocket::bind(options.listen)?;
    socket.set_nonblocking(true)?;
    let mut batches = Batches::new(&socket);
    // The runtime has a handle of its own, by which it waits.
    let readable = UdpSocket::from_std(socket.try_clone()?)?;
    process::listens_on(socket.local_addr()?);

    let mut flows = Flows::new(options.idle);
    let mut due = Vec::new();
    let mut received: Vec<(Datagram, SockaddrIn)> = Vec::new();
    let mut segments = Vec::new();
    let mut ends = pin!(process::input_ends());
    loop {
        tokio::select! {
            biased;
            () = &mut ends => break,
            () = poll_fn(|context| timers.poll_due(context, &mut flows, &mut due)) => {
                flows.repeat(&mut timers.batch(), &mut due, &mut segments);
            }
            ready = readable.readable() => {
                ready?;
                match readable.try_io(Interest::READABLE, || batches.receive(&socket, &mut received)) {
                    Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
                    _ => flows.advance(&mut timers.batch(), &mut received, &mut segments),
                }
            }
        }
        batches.send(&socket, &segments)?;
        segments.clear();
        // The timers of tokio need a turn of its driver.
        yield_now().await;
    }
    let lost = flows.close(&mut timers.batch());
    Ok(json!({
        "flows": flows.len(),
        "repeated": flows.repeated(),
        "lost": lost, // timers that had ended without an expiry
        "left": timers.armed(),
    }))
}
