//! `timers`, a command-line tool for durable timers.

#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod failure;
mod screen;

use arguments::{Arguments, Command, StoreCommand};
use clap::Parser;
use commands::{change, dead, read, schedule, shell, upkeep};
use failure::Failure;
use screen::Screen;
use std::process::ExitCode;
use tourbillon_durable::DurableTimers;
use tourbillon_durable::text::{Address, StoreArguments, Switch};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && json_is_asked_for() => {
            return Failure::from(error).report(true);
        }
        Err(error) => error.exit(),
    };
    let json = arguments.json;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(run(arguments)),
        Err(error) => Err(Failure::Output(error)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}

/// Returns `true` if the arguments, which could not be parsed, have `--json`.
fn json_is_asked_for() -> bool {
    std::env::args_os().take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

async fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { store, json, mut command } = arguments;
    match &mut command {
        Command::Completions { shell } => return shell::completions(*shell),
        Command::Man { folder } => return shell::man(folder.as_deref()),
        Command::Store(StoreCommand::Schedule(asked)) => schedule::read_payload(asked)?,
        _ => {}
    }
    let none = || Failure::Usage("no store given (use --store or TIMERS_STORE)".to_owned());
    let address = store.store.as_ref().ok_or_else(none)?.parse()?;
    if let Command::Migrate { print_sql: true } = command {
        return upkeep::print_sql(&store, &address);
    }
    let may_create =
        matches!(command, Command::Migrate { .. } | Command::Store(StoreCommand::Schedule(_)));
    let timers = open(&store, &address, may_create).await?;
    let screen = &mut Screen::new(json);
    match command {
        Command::Store(command) => execute(&timers, command, screen).await,
        Command::Completions { .. } | Command::Man { .. } => Ok(()),
        Command::Copy { target } => {
            let target = target.parse()?;
            let other = open(&store, &target, true).await?;
            upkeep::copy(&timers, &other, screen).await
        }
        // A store is created or upgraded when it is opened.
        Command::Migrate { .. } => upkeep::migrated(&address, screen),
    }
}

/// Executes a command on one store.
async fn execute(
    timers: &DurableTimers,
    command: StoreCommand,
    screen: &mut Screen,
) -> Result<(), Failure> {
    match command {
        StoreCommand::List(asked) => read::list(timers, asked, screen).await,
        StoreCommand::Get { id } => read::get(timers, &id, screen).await,
        StoreCommand::Schedule(asked) => schedule::schedule(timers, *asked, screen).await,
        StoreCommand::Cancel(which) => change::cancel(timers, which, screen).await,
        StoreCommand::Move { id, time } => change::move_to(timers, &id, &time, screen).await,
        StoreCommand::Run { id } => change::run(timers, &id, screen).await,
        StoreCommand::Pause(whose) => change::switch(timers, whose, Switch::Pause, screen).await,
        StoreCommand::Resume(whose) => change::switch(timers, whose, Switch::Resume, screen).await,
        StoreCommand::Dead { command } => dead::run(timers, command, screen).await,
        StoreCommand::Redrive(asked) => dead::redrive(timers, asked, screen).await,
        StoreCommand::Check { repair } => upkeep::check(timers, repair, screen).await,
        StoreCommand::Stats { label: None } => upkeep::stats(timers, screen).await,
        StoreCommand::Stats { label: Some(label) } => read::count(timers, &label, screen).await,
    }
}

/// Opens a store. A missing file is created only if the command may create a store, because its
/// name may be misspelt.
async fn open(
    store: &StoreArguments,
    address: &Address,
    may_create: bool,
) -> Result<DurableTimers, Failure> {
    match address {
        Address::File(path) if !may_create && address.is_missing() => {
            let what = format!(
                "{}: there is no such store (`schedule` and `migrate` create one)",
                path.display()
            );
            Err(Failure::NotFound(what))
        }
        address => Ok(store.open(address).await?),
    }
}
