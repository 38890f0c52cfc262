//! The program `timerd`.

#![forbid(unsafe_code)]

mod echo;

use clap::{Parser, Subcommand, ValueEnum};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use timerd::{Arguments, Config, LISTEN, NewToken, Service, StartError, check_health};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// Calls webhooks on time
///
/// Without a command, the service starts. If neither the arguments nor the configuration file name
/// a store, the timers are stored in the file `timers.db` in the working directory.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    arguments: Arguments,
    /// The log's levels, such as `warn` or `info,timerd=debug`
    #[arg(long, env = "RUST_LOG", value_name = "FILTER", default_value = "info")]
    #[arg(help_heading = "Log")]
    log: String,
    /// The log's format
    #[arg(long, env = "TIMERD_LOG_FORMAT", default_value = "text", help_heading = "Log")]
    log_format: LogFormat,
    /// For a trial: starts a receiver on this port of 127.0.0.1 (by default 9100) that prints each
    /// request, and allows calls to it
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "9100")]
    echo: Option<u16>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    /// A line of text for each event, in colours on a terminal
    Text,
    /// An object for each event
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Prints a new random token and its SHA-256 for the configuration file
    Token,
    /// Asks a running service whether it can use its store, and exits with code 1 if not
    Health {
        /// The address that the service listens on
        #[arg(long, env = "TIMERD_LISTEN", default_value = LISTEN, value_name = "HOST:PORT")]
        listen: String,
    },
}

/// How the program ends.
enum End {
    /// Calls and requests have ended, or their time is up.
    Orderly,
    /// A second signal has arrived.
    AtOnce,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { mut arguments, log, log_format, echo, command } = Cli::parse();
    // Dropped at the end, which writes the lines that wait.
    let log = match write_log(&log, log_format) {
        Ok(log) => log,
        Err(error) => return fail(&error),
    };
    let done = match command {
        Some(Command::Token) => print_token().map(|()| End::Orderly),
        Some(Command::Health { listen }) => {
            let healthy = check_health(&listen).await;
            return healthy.map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS);
        }
        None => run(&mut arguments, echo).await,
    };
    match done {
        Ok(End::Orderly) => ExitCode::SUCCESS,
        Ok(End::AtOnce) => {
            tracing::warn!("a second signal ends the service, and its calls are made again");
            drop(log);
            // The runtime would wait for its threads.
            std::process::exit(1)
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn Display) -> ExitCode {
    let _ = writeln!(io::stderr(), "timerd: {error}");
    ExitCode::FAILURE
}

/// Writes the log to standard error on a separate thread. If the reader is gone or slow, or the
/// disk is full, lines are lost, but nothing is delayed or ended.
fn write_log(filter: &str, format: LogFormat) -> Result<WorkerGuard, StartError> {
    let filter = EnvFilter::try_new(filter).map_err(StartError::Log)?;
    let (lines, guard) = NonBlockingBuilder::default().finish(io::stderr());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines);
    // It would report a failure with `eprintln!`, which panics for the same reason.
    let log = log.log_internal_errors(false);
    match format {
        // Colours are for people.
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(guard)
}

async fn run(arguments: &mut Arguments, echo: Option<u16>) -> Result<End, StartError> {
    // The usual soft limit is for programs that cannot handle large descriptors. If it cannot be
    // raised, the service has fewer connections.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let config = config(arguments)?;
    let mut signals = Signals::new()?;
    if let Some(port) = echo {
        arguments.allow.push(echo::start(port).await?);
    }
    let service = Service::start(arguments, &config).await?;
    print_address(&service, &arguments.allow);
    signals.until_stop(|| reload(&service, arguments)).await;
    Ok(stop(service, &mut signals).await)
}

/// Stops the service, until another signal arrives.
async fn stop(service: Service, signals: &mut Signals) -> End {
    tracing::info!("stopping");
    tokio::select! {
        () = service.stop() => End::Orderly,
        () = signals.stop() => End::AtOnce,
    }
}

/// The signals that the service obeys.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> Result<Self, StartError> {
        let failed = |error| StartError::System("handle signals", error);
        let on = |kind| signal(kind).map_err(failed);
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// Completes at the next signal to stop, and calls a function at each signal to reload.
    async fn until_stop(&mut self, reload: impl Fn()) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => reload(),
            }
        }
    }

    /// Completes at the next signal to stop.
    async fn stop(&mut self) {
        self.until_stop(|| ()).await;
    }
}

/// Prints the address and, if the service created a token, the token and how to use it.
fn print_address(service: &Service, receivers: &[SocketAddr]) {
    // Nothing is lost if the reader of the output has gone.
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "timerd listens on http://{}", service.address());
    if let Some(token) = service.token() {
        let _ = writeln!(out, "token: {token}");
        let url = receivers.first().map(|receiver| format!("http://{receiver}/"));
        let url = url.as_deref().unwrap_or("https://example.org/");
        let _ = writeln!(
            out,
            "call a webhook in 5 seconds:\n  curl -X PUT -H 'Authorization: Bearer {token}' \
             http://{}/v1/timers/first --json '{{\"webhook\":{{\"url\":\"{url}\",\
             \"body\":\"hello\"}},\"schedule\":{{\"after\":\"5s\"}}}}'",
            service.address()
        );
    }
}

/// Reads the configuration file again. A file that cannot be used changes nothing.
fn reload(service: &Service, arguments: &Arguments) {
    if let Err(error) = config(arguments).and_then(|config| service.reload(&config)) {
        tracing::error!(%error, "the old configuration stays in use");
    }
}

fn print_token() -> Result<(), StartError> {
    let NewToken { text, sha256 } = NewToken::random()?;
    // Nothing is lost if the reader of the output has gone.
    let _ = writeln!(io::stdout(), "token: {text}\nsha256: {sha256}");
    Ok(())
}

fn config(arguments: &Arguments) -> Result<Config, StartError> {
    match &arguments.config {
        Some(file) => Ok(Config::read(file)?),
        None => Ok(Config::default()),
    }
}
