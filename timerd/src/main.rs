//! The program `timerd`.

#![forbid(unsafe_code)]

use clap::Parser;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use timerd::{Arguments, Config, Service, StartError};
use tokio::signal::unix::{Signal, SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    // Colours are for people.
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(io::stderr().is_terminal()).init();
    let arguments = Arguments::parse();
    match run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("timerd: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), StartError> {
    let config = config(arguments)?;
    let (mut ends, mut interrupts) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    let service = Service::start(arguments, &config).await?;
    // Nothing is lost if the reader of the output has gone.
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "timerd listens on http://{}", service.address());
    if let Some(token) = service.token() {
        let _ = writeln!(out, "token: {token}");
    }
    drop(out);
    tokio::select! {
        _ = ends.recv() => {}
        _ = interrupts.recv() => {}
    }
    tracing::info!("stopping");
    service.stop().await;
    Ok(())
}

fn on(kind: SignalKind) -> Result<Signal, StartError> {
    signal(kind).map_err(|error| StartError::Config(error.to_string()))
}

fn config(arguments: &Arguments) -> Result<Config, StartError> {
    let Some(path) = &arguments.config else { return Ok(Config::default()) };
    let wrong = |error: String| StartError::Config(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    toml::from_str(&text).map_err(|error| wrong(error.to_string()))
}
