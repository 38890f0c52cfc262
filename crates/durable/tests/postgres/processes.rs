//! Workers in several processes. One is killed and one is stopped. The tests run themselves as
//! children.

#![allow(clippy::disallowed_methods, reason = "real processes and time")]

use crate::common::bench::{SECOND, attempts, wait};
use crate::common::events::Observed;
use crate::common::host::Host;
use crate::common::postgres_server::PostgresServer;
use crate::common::process::{Process, Work, ids, quick};
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::SystemTime;
use tourbillon_durable::{
    Attempt, Cancelled, Delivery, Event, Existing, Inserted, Options, Outcome, PostgresOptions,
    Verdict,
};

const URL: &str = "TOURBILLON_POSTGRES_URL";

/// Works until the standard input ends, if it runs as a child. Each line of its output names an
/// attempt that has begun (`b`), is about to succeed (`w`), or was acknowledged (`a`).
#[test]
fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    let process = Process::in_schema(&url, PostgresOptions::new("timers"));
    let (end, ends) = futures_channel::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        drop(end);
    });
    let (send, events) = channel();
    let worker = process.timers.worker().concurrency(16).observe(attempts(send));
    let run = worker
        .until(async move {
            let _ = ends.await;
        })
        .run(|delivery| async move {
            say("b", &delivery.id);
            sleep(SECOND / 100);
            say("w", &delivery.id);
            Ok::<(), String>(())
        });
    let log = std::thread::spawn(move || {
        for attempt in events {
            if attempt.outcome == Outcome::Acknowledged {
                say("a", &attempt.id);
            }
        }
    });
    wait(run).unwrap();
    log.join().unwrap();
}

fn say(what: &str, id: &str) {
    let line = format!("\n{what} {id}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

/// A worker in another process.
struct Worker {
    child: Child,
    said: Receiver<(char, String)>,
}

impl Worker {
    fn start(server: &PostgresServer) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["processes::child", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(URL, server.url()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (send, said) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((what @ ("a" | "b" | "w"), id)) = line.split_once(' ') {
                    let _ = send.send((what.chars().next().unwrap(), id.to_owned()));
                }
            }
        });
        Self { child, said }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success(), "{signal}");
    }

    /// Waits until some attempts have begun. Returns all that was said until then.
    fn has_begun(&self, count: usize) -> Vec<(char, String)> {
        let mut said = Vec::new();
        while said.iter().filter(|(what, _)| *what == 'b').count() < count {
            said.push(self.said.recv_timeout(60 * SECOND).expect("it works"));
        }
        said
    }

    fn end(mut self, said: &mut Vec<(char, String)>) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
        said.extend(self.said.iter());
    }
}

#[test]
fn workers_that_are_killed_and_stopped_lose_and_double_nothing() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let all = ids(1500);
    let inserted = all.iter().enumerate().map(|(number, id)| {
        let delay = SECOND + SECOND * u32::try_from(number).unwrap() / 300;
        process.timers.insert(id, "", delay, quick().lease(SECOND).attempts(20))
    });
    wait(futures_util::future::try_join_all(inserted)).unwrap();
    let [killed, stopped, well] = [(); 3].map(|()| Worker::start(&server));
    let mut said = stopped.has_begun(50);
    stopped.signal("-STOP");
    said.extend(killed.has_begun(100));
    killed.signal("-KILL");
    killed.end(&mut said);
    // Longer than a lease, and than a worker counts as alive.
    sleep(7 * SECOND);
    stopped.signal("-CONT");
    let begun = SystemTime::now();
    while wait(process.timers.len()) != Ok(0) {
        assert!(begun.elapsed().unwrap() < 60 * SECOND, "a timer is never delivered");
        sleep(SECOND / 20);
    }
    stopped.end(&mut said);
    well.end(&mut said);
    let mut ends = BTreeMap::<&str, (usize, usize)>::new();
    for (what, id) in &said {
        let (answered, acknowledged) = ends.entry(id).or_default();
        *answered += usize::from(*what == 'w');
        *acknowledged += usize::from(*what == 'a');
    }
    for id in &all {
        let (answered, acknowledged) = ends.get(id.as_str()).copied().unwrap_or_default();
        // The acknowledgements of a worker that was killed may not have been logged.
        assert!(answered > 0 && acknowledged <= 1, "{id}: {answered}, {acknowledged}");
    }
    let untold = ends.values().filter(|(_, acknowledged)| *acknowledged == 0).count();
    assert!(untold <= 32, "{untold}");
    assert_eq!(wait(process.timers.dead_len()), Ok(0));
}

/// While a worker is stopped, other workers own its parts, and notices are not sent to it.
#[test]
fn a_worker_that_was_stopped_loads_its_window_again() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let work = process.work();
    let stopped = Worker::start(&server);
    // A busy computer is late too, but hardly three times.
    let mut rounds = (0..3).map(|_| punctual_after_a_stop(&server, &process, &work, &stopped));
    assert!(rounds.any(|punctual| punctual > 50), "timers are late");
    stopped.end(&mut Vec::new());
    work.stop();
}

/// Inserts 60 timers while a worker is stopped. Returns how many of them are delivered in time.
fn punctual_after_a_stop(
    server: &PostgresServer,
    process: &Process,
    work: &Work,
    stopped: &Worker,
) -> usize {
    let workers = |count: &'static str| {
        move |server: &PostgresServer| server.order("select count(*) from timers.workers") == count
    };
    server.wait_for("the workers", workers("2"));
    // Both have loaded their windows with the parts that they own.
    sleep(2 * SECOND);
    stopped.signal("-STOP");
    server.wait_for("the removal of the other worker", workers("1"));
    // They fall into the window of ten seconds that the stopped worker has loaded.
    let delay = 2 * SECOND;
    let all = ids(60);
    let inserted = all.iter().map(|id| process.timers.insert(id, "", delay, quick()));
    wait(futures_util::future::try_join_all(inserted)).unwrap();
    let begun = SystemTime::now();
    stopped.signal("-CONT");
    // Keys that a worker does not know are found when they have been overdue for a second.
    let soon = delay + SECOND * 9 / 10;
    sleep(soon.saturating_sub(begun.elapsed().unwrap()));
    let delivered = || {
        work.acknowledged.try_iter().count()
            + stopped.said.try_iter().filter(|(what, _)| *what == 'b').count()
    };
    let punctual = delivered();
    server.wait_for("the other timers", |_| wait(process.timers.len()) == Ok(0));
    delivered();
    punctual
}

/// Workers that are cut off leave leases, which other workers take over or find expired.
#[test]
fn no_lease_is_left_once_all_timers_have_ended() {
    const ROUNDS: usize = 2;
    let Some(server) = PostgresServer::start(&[]) else { return };
    let here = server.process();
    let rows = |of: &str| server.order(&format!("select count(*) from timers.{of}"));
    let options = || quick().lease(SECOND).attempts(9);
    let mut cut_off = Vec::new();
    for round in 0..ROUNDS {
        let proxy = server.proxy();
        let there = server.process_at(proxy.port);
        let worker = Observed::start(there.timers.worker(), |_| pending::<Verdict>());
        let all: Vec<String> = ids(20).iter().map(|id| format!("{round} {id}")).collect();
        for id in &all {
            let rule = |options: Options| {
                if repeats(id) { options.every(2 * SECOND) } else { options }
            };
            wait(here.timers.insert(id, "", SECOND / 10, rule(options()))).unwrap();
        }
        // Their attempts have begun and were renewed.
        let renewed = format!("leases where id like '{round} %'");
        server.wait_for("renewals", |_| rows(&renewed) == "20");
        // Some of the attempts are the last ones, or no longer count.
        for id in &all {
            if id.ends_with('2') {
                assert_eq!(wait(here.timers.cancel(id)), Ok(Cancelled::Running));
            } else if id.ends_with('3') {
                let replaces = options().existing(Existing::Replace);
                let replaced = wait(here.timers.insert(id, "", SECOND, replaces));
                assert_eq!(replaced, Ok(Inserted::Replaced));
            }
        }
        proxy.leads_to(0);
        proxy.silence();
        cut_off.push((worker, there, proxy));
    }
    // An attempt that ends soon after it was taken over leaves its lease, too.
    let work = Observed::start(here.timers.worker(), |delivery: Delivery| async move {
        match delivery.attempt {
            1 | 2 => Verdict::Retry("once more".to_owned()),
            _ => Verdict::Done,
        }
    });
    // Timers that repeat end with a cancel. The next worker may have ended other timers.
    let mut repeated = BTreeSet::new();
    while repeated.len() < ROUNDS * 2 {
        let Event::Attempt(Attempt { id, outcome, .. }) = work.next(|| ()) else { continue };
        assert!(!matches!(outcome, Outcome::Dead { .. }), "{id}: {outcome:?}");
        if repeats(&id) && outcome == Outcome::Acknowledged {
            wait(here.timers.cancel(&id)).unwrap();
            repeated.insert(id);
        }
    }
    for table in ["timers", "states", "nexts", "leases"] {
        server.wait_for(table, |_| rows(table) == "0");
    }
    assert_eq!(wait(here.timers.dead_len()), Ok(0));
    work.stop();
}

/// Returns `true` if the timer with this id repeats.
fn repeats(id: &str) -> bool {
    id.ends_with('1')
}
