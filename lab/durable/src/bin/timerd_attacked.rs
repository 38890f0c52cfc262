//! The service `timerd` for `timerd_load --attack`. Its resolver maps each name to this machine,
//! and is away while there is a file `away` in the working directory. The process may open no more
//! files than processes may on many systems.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]
#![allow(clippy::print_stdout, reason = "the address is the output")]

use clap::Parser;
use rlimit::Resource;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use timerd::{Arguments, Config, ResolveError, Resolver, Service};

/// The number of files that the process may open.
const FILES: u64 = 1024;

#[tokio::main]
async fn main() {
    Resource::NOFILE.set(FILES, FILES).unwrap();
    let arguments = Arguments::parse();
    let config = std::fs::read_to_string(arguments.config.as_ref().unwrap()).unwrap();
    let config: Config = toml::from_str(&config).unwrap();
    let service = Service::start_with(&arguments, &config, resolver()).await.unwrap();
    println!("timerd listens on http://{}", service.address());
    // It is killed.
    std::future::pending::<()>().await;
}

fn resolver() -> Resolver {
    Arc::new(|_| {
        Box::pin(async {
            match Path::new("away").exists() {
                true => Err(ResolveError::Away("the resolver is away".to_owned())),
                false => Ok(vec![IpAddr::from([127, 0, 0, 1])]),
            }
        })
    })
}
