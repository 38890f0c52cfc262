//! The dashboard `watch`, with the figures of an endpoint and the picture of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real sockets are on real time")]

#[path = "../../../examples/connections/endpoint.rs"]
mod endpoint;
#[path = "../../../examples/connections/figures.rs"]
mod figures;
#[path = "../src/bin/watch/heard.rs"]
mod heard;
#[path = "../src/bin/watch/screen.rs"]
mod screen;

use figures::Figures;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use screen::Screen;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::time::Duration;
use tourbillon::{Builder, ManualClock, Sweeper, Wheel};

const SECOND: Duration = Duration::from_secs(1);

/// A wheel with a thousand timers one second ahead and one timer an hour ahead. Two timers have
/// fired 3 ms late.
fn wheel() -> (Wheel<u64>, Sweeper<u64>) {
    let clock = ManualClock::new();
    let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
    for _ in 0..2 {
        wheel.insert(0, Duration::from_millis(10)).unwrap();
    }
    clock.advance(Duration::from_millis(13));
    let _ = sweeper.sweep(|_| ());
    for number in 0..1000 {
        wheel.insert(number, SECOND).unwrap();
    }
    let hour = wheel.insert(0, SECOND * 1800).unwrap();
    wheel.reset(hour, SECOND * 3600).unwrap();
    let gone = wheel.insert(0, SECOND).unwrap();
    wheel.cancel(gone).unwrap();
    (wheel, sweeper)
}

#[test]
fn an_endpoint_tells_what_the_wheel_holds() {
    let (wheel, _sweeper) = wheel();
    let address = endpoint::open(wheel.clone(), "127.0.0.1:0").unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(TcpStream::connect(address).unwrap());
    lines.read_line(&mut line).unwrap();
    let heard = Figures::read(&line).unwrap();
    assert_eq!(heard, Figures::of(&wheel, heard.at));
    assert_eq!((heard.armed, heard.inserted, heard.cancelled), (1001, 1004, 1));
    assert_eq!((heard.reset, heard.fired), (1, 2));
    assert_eq!(heard.ahead.iter().map(|(_, timers)| timers).sum::<u64>(), 1001);
    assert_eq!(heard.late[2], Duration::from_micros(4096)); // 3 ms, rounded up
}

#[test]
fn an_endpoint_serves_a_bounded_number_of_connections() {
    let (wheel, _sweeper) = wheel();
    let address = endpoint::open(wheel, "127.0.0.1:0").unwrap();
    let first_line = || {
        let mut line = String::new();
        let mut lines = BufReader::new(TcpStream::connect(address).unwrap());
        lines.read_line(&mut line).map(|_| (line, lines))
    };
    let served: Vec<_> = (0..8).map(|_| first_line().unwrap()).collect();
    assert!(served.iter().all(|(line, _)| Figures::read(line).is_some()));
    // The one beyond them is closed, or reset, without a line.
    assert!(first_line().map_or(true, |(line, _)| line.is_empty()));
    drop(served);
    // The endpoint notices at its next writes that they are closed, and has room again.
    assert!((0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        first_line().is_ok_and(|(line, _)| !line.is_empty())
    }));
}

#[test]
fn what_is_no_line_of_figures_is_refused() {
    let (wheel, _sweeper) = wheel();
    let line = Figures::of(&wheel, SECOND).line();
    assert!(Figures::read(&line).is_some());
    for wrong in ["", "{}", "HTTP/1.1 400 Bad Request", &line.replace("armed", "alarmed")] {
        assert_eq!(Figures::read(wrong), None, "{wrong}");
    }
    assert_eq!(Figures::read(&line.replace("[[", "[")), None);
}

#[test]
fn the_picture_has_rates_bars_and_lateness() {
    let mut screen = Screen::default();
    assert!(screen.text("here").unwrap().contains("Nothing was heard of here yet"));
    let (wheel, _sweeper) = wheel();
    let first = Figures::of(&wheel, SECOND);
    let next = Figures { at: SECOND * 3, reset: first.reset + 2_469_134, ..first.clone() };
    screen.hear(first);
    screen.hear(next);
    let picture = screen.text("here").unwrap();
    for text in ["resets         1 234 567", "armed          1 001", "4 ms all", "1000"] {
        assert!(picture.contains(text), "{text} in\n{picture}");
    }
    // A second lies within 1024 ticks of a millisecond, an hour within 2^22 of them.
    assert!(picture.contains("1 s") && picture.contains("69 min"), "{picture}");
    let lines: Vec<&str> = picture.lines().collect();
    assert_eq!(lines.len(), 30);
    assert!(lines.iter().all(|line| line.chars().count() == 100), "{picture}");
    assert!(lines[0].starts_with("┌here─"), "{picture}");
}

#[test]
fn a_terminal_that_is_too_small_is_drawn_as_far_as_it_goes() {
    let (wheel, _sweeper) = wheel();
    let mut screen = Screen::default();
    for second in 0..400 {
        screen.hear(Figures::of(&wheel, SECOND * second));
    }
    for (width, height) in [(1, 1), (10, 3), (40, 12), (300, 80)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame, "here")).unwrap();
    }
}
