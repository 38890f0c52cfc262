//! A dashboard in the terminal for a wheel in another program. It shows rates, armed timers by
//! their distance ahead, lateness and memory.
//!
//! ```text
//! cargo run --release --example connections -- --seconds 60 --watch 127.0.0.1:7878
//! cargo run --release -p tourbillon-servers --bin watch -- 127.0.0.1:7878
//! ```
//!
//! To watch another program, copy `endpoint.rs` and `figures.rs` of the example `connections` into
//! it, and call `endpoint::open(wheel, "127.0.0.1:7878")`.

#![allow(clippy::print_stdout, reason = "a program that reports to a person")]
#![allow(clippy::disallowed_methods, reason = "a program in real time, with threads of its own")]

#[path = "../../../../../examples/connections/figures.rs"]
mod figures;
mod heard;
mod screen;

use clap::Parser;
use figures::Figures;
use ratatui::crossterm::event::{self, Event, KeyCode};
use screen::Screen;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

/// Shows the figures of a wheel in another program.
#[derive(Debug, Parser)]
struct Options {
    /// The address of that program, for example 127.0.0.1:7878.
    address: String,

    /// Listen for this number of seconds, print the last picture as text, and end.
    #[arg(long)]
    print_after: Option<usize>,
}

/// The longest delay of a key.
const PATIENCE: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let connection = TcpStream::connect(&options.address)
        .map_err(|error| format!("{}: {error}", options.address))?;
    let mut lines = BufReader::new(connection).lines();
    if let Some(seconds) = options.print_after {
        let mut screen = Screen::default();
        for line in lines.by_ref().take(seconds + 1) {
            screen.hear(read(&line?)?);
        }
        print!("{}", screen.text(&options.address)?);
        return Ok(());
    }
    let (send, heard) = channel();
    thread::spawn(move || {
        for line in lines {
            let figures = line.map_err(|error| error.to_string());
            let figures = figures.and_then(|line| read(&line).map_err(|error| error.to_string()));
            let ends = figures.is_err();
            if send.send(figures).is_err() || ends {
                return;
            }
        }
    });
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, &heard, &options.address);
    ratatui::try_restore()?;
    shown
}

fn read(line: &str) -> Result<Figures, Box<dyn Error>> {
    Figures::read(line).ok_or_else(|| "what listens there tells nothing of a wheel".into())
}

/// Shows the dashboard until a key ends it, or the watched program ends.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    heard: &Receiver<Result<Figures, String>>,
    from: &str,
) -> Result<(), Box<dyn Error>> {
    let mut screen = Screen::default();
    loop {
        match heard.try_recv() {
            Ok(figures) => screen.hear(figures?),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        terminal.draw(|frame| screen.draw(frame, from))?;
        if event::poll(PATIENCE)? {
            if let Event::Key(key) = event::read()? {
                if matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(());
                }
            }
        }
    }
}
