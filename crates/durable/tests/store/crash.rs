//! Durable timers of a process that is killed at any time. Nothing acknowledged is lost, early, or
//! acknowledged twice.
//!
//! The test runs itself as a child, which inserts timers as fast as it can, delivers them, and
//! prints a line for each durable change. The child is killed, its lines are read, and the next
//! child takes over the same file. The last one delivers the rest.

#![allow(clippy::disallowed_methods, reason = "real processes, threads and time")]
#![allow(clippy::print_stdout, reason = "the child tells its parent")]

use super::resting;
use crate::common::bench::{MILLISECOND, TempFile};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};
use tourbillon_durable::{Backoff, Cancelled, DurableTimers, Event, Options, Outcome};

const FILE: &str = "TOURBILLON_CRASH_FILE";
const ROUND: &str = "TOURBILLON_CRASH_ROUND";

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n>{line}").unwrap();
    out.flush().unwrap();
}

/// Does nothing unless it runs as a child.
#[test]
fn child() {
    let Ok(file) = std::env::var(FILE) else { return };
    let round: u64 = std::env::var(ROUND).unwrap().parse().unwrap();
    let timers = DurableTimers::open(Path::new(&file)).unwrap();
    say("open");
    if round == LAST {
        let left = timers.clone();
        std::thread::spawn(move || end_when_empty(&left));
        deliver(&timers);
        return;
    }
    let worker = timers.clone();
    std::thread::spawn(move || deliver(&worker));
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let timers = timers.clone();
            std::thread::spawn(move || schedule(&timers, round, caller))
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
}

/// Inserts timers forever, and cancels some.
fn schedule(timers: &DurableTimers, round: u64, caller: u64) {
    let mut random = fastrand::Rng::with_seed(round << 8 | caller);
    let backoff = Backoff::new(MILLISECOND, 8 * MILLISECOND);
    for number in 0.. {
        let id = format!("{round}-{caller}-{number}");
        let delay = MILLISECOND * random.u32(..200);
        let options = Options::new().lease(Duration::from_millis(100)).backoff(backoff);
        let options = options.attempts(1000);
        pollster::block_on(timers.insert(&id, &*id, delay, options)).unwrap();
        say(&format!("scheduled {id}"));
        if random.u8(..8) == 0 {
            say(&format!("cancelling {id}"));
            if pollster::block_on(timers.cancel(&id)).unwrap() == Cancelled::Removed {
                say(&format!("cancelled {id}"));
            }
        }
    }
}

fn deliver(timers: &DurableTimers) {
    let worker = timers.worker().observe(move |event| {
        let Event::Attempt(event) = event else { return };
        if event.outcome == Outcome::Acknowledged {
            say(&format!("acknowledged {}", event.id));
        }
        if let Outcome::Dead { .. } = event.outcome {
            say(&format!("dead {}", event.id));
        }
    });
    let run = worker.run(|delivery| {
        if SystemTime::now() < delivery.planned {
            say(&format!("early {}", delivery.id));
        }
        if delivery.payload != delivery.id.as_bytes() {
            say(&format!("wrong {}", delivery.id));
        }
        // Every eighth timer fails at first.
        let fails = delivery.attempt == 1 && delivery.id.ends_with('7');
        say(&format!("handled {}", delivery.id));
        async move { if fails { Err("again") } else { Ok(()) } }
    });
    pollster::block_on(run).unwrap();
}

/// Ends once no timer is left except the resting timers.
fn end_when_empty(timers: &DurableTimers) {
    while pollster::block_on(timers.len()).unwrap() > resting::count() {
        std::thread::sleep(10 * MILLISECOND);
    }
    assert!(resting::list(timers).unwrap().is_empty());
    assert!(pollster::block_on(timers.check()).unwrap().is_sound());
    say("empty");
    std::process::exit(0);
}

/// The round of the child that delivers what is left.
const LAST: u64 = u64::MAX;

fn start(file: &TempFile, round: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["crash::child", "--exact", "--nocapture", "--test-threads=1"])
        .env(FILE, &file.0)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The output of the children about each id.
#[derive(Default)]
struct Told {
    scheduled: BTreeSet<String>,
    cancelling: BTreeSet<String>,
    cancelled: BTreeSet<String>,
    handled: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
    empty: bool,
}

impl Told {
    fn read(&mut self, line: &str) {
        let Some(line) = line.strip_prefix('>') else { return };
        let (what, id) = line.split_once(' ').unwrap_or((line, ""));
        let new = match what {
            "scheduled" => self.scheduled.insert(id.to_owned()),
            "cancelling" => self.cancelling.insert(id.to_owned()),
            "cancelled" => self.cancelled.insert(id.to_owned()),
            "acknowledged" => self.acknowledged.insert(id.to_owned()),
            "handled" => {
                assert!(!self.acknowledged.contains(id), "{id} was handled once more");
                self.handled.insert(id.to_owned());
                true
            }
            "empty" => {
                self.empty = true;
                true
            }
            "open" => true,
            _ => panic!("{line}"),
        };
        assert!(new, "said twice: {line}");
    }

    fn check(&self) {
        assert!(self.empty, "the last child delivers what is left");
        for id in &self.scheduled {
            // The child was killed before it could print the result of the cancel.
            let unknown = self.cancelling.contains(id);
            assert!(self.handled.contains(id) || unknown, "{id} was lost");
        }
        for id in &self.cancelled {
            assert!(!self.acknowledged.contains(id), "{id} was cancelled and acknowledged");
        }
    }
}

#[test]
fn nothing_is_lost_when_the_process_is_killed() {
    let rounds =
        std::env::var("TOURBILLON_CRASH_ROUNDS").map_or(6, |rounds| rounds.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(rounds);
    let file = TempFile::new();
    resting::insert(&DurableTimers::open(&file.0).unwrap()).unwrap();
    let mut told = Told::default();
    for round in 0..=rounds {
        let round = if round == rounds { LAST } else { round };
        let mut child = start(&file, round);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (open, opened) = channel();
        let reader = std::thread::spawn(move || {
            let (mut lines, mut line) = (Vec::new(), String::new());
            while out.read_line(&mut line).unwrap() > 0 {
                // Complete lines only.
                if line.ends_with('\n') {
                    if line.starts_with(">open") {
                        open.send(()).unwrap();
                    }
                    lines.push(line.trim_end().to_owned());
                }
                line.clear();
            }
            lines
        });
        // `starts` kills processes while they open a file.
        opened.recv_timeout(Duration::from_secs(60)).unwrap();
        if round != LAST {
            std::thread::sleep(MILLISECOND * random.u32(50..500));
            child.kill().unwrap();
        }
        assert_eq!(child.wait().unwrap().success(), round == LAST);
        reader.join().unwrap().iter().for_each(|line| told.read(line));
    }
    told.check();
    assert!(told.acknowledged.len() > 10, "{} acknowledged", told.acknowledged.len());
}
