//! A key-value server whose keys expire, built like mini-redis. All connections share one map in
//! one lock, and a task removes the keys that are due. The timers are in the same lock. One worker
//! thread serves all connections.
//!
//! It understands `SET key value PX milliseconds`, `PEXPIRE key milliseconds`, `GET key` and
//! `DBSIZE`. (It does not use `--idle`.)
//!
//! ```text
//! cargo run --release -p tourbillon-servers --bin key_server -- --help
//! ```

#![allow(clippy::disallowed_methods, reason = "a program in real time")]

mod store;

use clap::Parser;
use serde_json::{Value, json};
use std::future::poll_fn;
use std::process::ExitCode;
use std::sync::Arc;
use store::{Key, Store};
use tokio::net::TcpListener;
use tourbillon_servers::command;
use tourbillon_servers::process::{self, Failure, Options};
use tourbillon_servers::timers::{Server, Timers};

fn main() -> ExitCode {
    let options: Options = Options::parse();
    process::finish(options.timers.serve(Serving(options)).and_then(|counts| counts))
}

/// The server before it knows its timers.
struct Serving(Options);

impl Server<Key> for Serving {
    type Output = Result<Value, Failure>;

    fn run<T: Timers<Key>>(self, timers: T) -> Self::Output {
        // One worker, so that no time is spent on waiting for the lock.
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build()?;
        runtime.block_on(serve(self.0, timers))
    }
}

/// Serves until the standard input ends, and returns the counts.
async fn serve<T: Timers<Key>>(options: Options, timers: T) -> Result<Value, Failure> {
    let listener = TcpListener::bind(options.listen).await?;
    process::listens_on(listener.local_addr()?);
    let store = Arc::new(Store::new(timers));
    let expiring = Arc::clone(&store);
    tokio::spawn(async move {
        loop {
            poll_fn(|context| expiring.poll_expire(context)).await;
        }
    });
    let accepting = Arc::clone(&store);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let store = Arc::clone(&accepting);
            // A connection that breaks ends, and no other does.
            tokio::spawn(command::answer(stream, move |command| store.apply(command)));
        }
    });
    process::input_ends().await;
    let counts = store.counts();
    Ok(json!({
        "expired": counts.expired,
        "early": counts.early,
        "lost": counts.lost, // keys of which the timer ended without an expiry
        "left": counts.armed,
    }))
}
