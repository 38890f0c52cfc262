//! What a store costs on paper: bytes per timer by the length of the payload in each kind of store,
//! and, for fleets of one to eight workers, connections, commands at rest, and the time until the
//! partitions are shared again after a worker has joined, left or died.
//!
//! The program starts its own servers on this machine. Each worker has a client of its own, as if
//! it were a process.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real time is measured here")]
#![allow(clippy::print_stdout, reason = "the table is the output")]

mod fleet;
mod payloads;
#[path = "../../../../../crates/durable/tests/common/postgres_server.rs"]
#[allow(dead_code, reason = "it serves the tests too")]
mod postgres_server;
#[path = "../../../../../crates/durable/tests/common/servers.rs"]
#[allow(dead_code, reason = "it serves the tests too")]
mod servers;
mod slow_line;

use clap::Parser;
use std::time::Duration;

/// The costs of stores and fleets, measured.
#[derive(Debug, Parser)]
struct Options {
    /// The number of timers in each store.
    #[arg(long, default_value_t = 400_000)]
    timers: usize,
    /// The numbers of timers in a partition in Redis.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "25000,100000,200000,400000,500000,600000,1000000"
    )]
    densities: Vec<usize>,
    /// The lengths of the payloads in bytes.
    #[arg(long, value_delimiter = ',', default_value = "16,64,256,1024")]
    payloads: Vec<usize>,
    /// The numbers of workers.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    workers: Vec<usize>,
    /// The numbers of partitions in Redis.
    #[arg(long, value_delimiter = ',', default_value = "16,64,256")]
    partitions: Vec<u16>,
    /// How often a worker joins, leaves and dies.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// The latency in each direction between workers and Redis, in milliseconds.
    #[arg(long, default_value_t = 0.0)]
    latency: f64,
    /// Measures the fleets in Redis only.
    #[arg(long)]
    redis_fleets: bool,
    /// The duration of each measurement at rest, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let options = Options::parse();
    if !options.redis_fleets {
        measure_payloads(&options).await;
    }
    println!("\n{}", fleet::HEAD);
    let latency = Duration::from_secs_f64(options.latency / 1000.0);
    for partitions in &options.partitions {
        for workers in &options.workers {
            let size = (*partitions, *workers);
            println!("{}", fleet::in_redis(size, options.seconds, options.rounds, latency).await);
        }
    }
    if options.redis_fleets {
        return;
    }
    for workers in &options.workers {
        println!("{}", fleet::in_postgres(*workers, options.seconds).await);
    }
}

async fn measure_payloads(options: &Options) {
    println!("{}", payloads::HEAD);
    for payload in &options.payloads {
        println!("{}", payloads::measure(options.timers, *payload).await);
    }
    println!("\n{}", payloads::HEAD_OF_DENSITIES);
    for timers in &options.densities {
        let month = payloads::in_redis(*timers, 16, payloads::MONTH).await;
        println!("| {timers} | {month:.0} | {:.0} |", payloads::in_redis(*timers, 16, 1).await);
    }
}
