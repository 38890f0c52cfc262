//! The log of attempts on every store, and a log in a file that fails.

use crate::common::bench::{Bench, MILLISECOND, OneFile, Place, SECOND, quick, start, suite, wait};
use crate::common::events::Observed;
use futures_util::StreamExt;
use futures_util::future::select;
use std::future::ready;
use std::path::PathBuf;
use std::time::Duration;
use tourbillon_durable::{
    AttemptLog, Backoff, DurableError, Event, LogBounds, LoggedAttempt, Options, Verdict,
};

suite!(
    ended_attempts_are_in_the_log,
    a_log_is_bounded_by_number_and_age,
    a_clock_that_is_set_back_replaces_no_attempt,
    attempts_are_written_twice_a_second,
    a_worker_that_fails_leaves_its_attempts_to_another,
);

fn latest(log: &AttemptLog, id: Option<&str>, limit: usize) -> Vec<LoggedAttempt> {
    wait(log.latest(id, limit)).unwrap()
}

/// Returns the ids of the latest attempts.
fn ids(log: &AttemptLog) -> Vec<String> {
    latest(log, None, 99).into_iter().map(|attempt| attempt.id).collect()
}

/// Delivers timers that are due, one at a time, by a worker with a log. Returns their ids in this
/// order.
fn deliver<P: Place>(bench: &Bench<P>, log: &AttemptLog, ids: &[&str]) -> Vec<String> {
    for id in ids {
        wait(bench.timers().insert(id, "", Duration::ZERO, quick())).unwrap();
    }
    let worker = bench.timers().worker().concurrency(1).log(log);
    let running = bench.run(worker, |_| ready(Verdict::Done));
    let delivered = running.acknowledged(ids.len());
    assert_eq!(running.stop(), []);
    delivered
}

fn ended_attempts_are_in_the_log<P: Place>(mut bench: Bench<P>) {
    let log = bench.timers().attempt_log(LogBounds::new());
    assert_eq!((latest(&log, None, 9), latest(&log, Some("a"), 9)), (vec![], vec![]));
    let worker = bench.timers().worker().log(&log);
    let running = bench.run(worker, |delivery| {
        delivery.note_status(if delivery.attempt == 1 { 500 } else { 204 });
        ready(match (&*delivery.id, delivery.attempt) {
            ("given back", _) => Verdict::GiveBack { after: 3600 * SECOND, error: None },
            ("dead", _) => Verdict::Fail(String::new()),
            (_, 1) => Verdict::Retry("busy".to_owned()),
            _ => Verdict::Done,
        })
    });
    let options = Options::new().backoff(Backoff::new(MILLISECOND, MILLISECOND));
    for id in ["given back", "dead", "a"] {
        wait(bench.timers().insert(id, "", Duration::ZERO, options.clone())).unwrap();
        running.next();
    }
    bench.advance(SECOND);
    running.next();
    assert_eq!(running.stop(), []);
    drop(log);
    bench.reopen();
    let log = bench.timers().attempt_log(LogBounds::new());
    let all = latest(&log, None, 9);
    let shown = all.iter().map(|it| (&*it.id, it.attempt, &*it.outcome, it.status, &*it.error));
    let expected = [
        ("a", 2, "acknowledged", Some(204), ""),
        ("a", 1, "retry", Some(500), "busy"),
        ("dead", 1, "dead", Some(500), "failed"),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    let times = all.iter().map(|it| (it.planned, it.ended, it.duration));
    let ended = [start() + SECOND, start(), start()];
    let expected = ended.map(|ended| (start(), ended, Some(Duration::ZERO)));
    assert_eq!(times.collect::<Vec<_>>(), expected);
    assert_eq!(latest(&log, Some("a"), 9), all[..2]);
    assert_eq!(latest(&log, Some("a"), 1), all[..1]);
    assert_eq!(latest(&log, None, 2), all[..2]);
    assert_eq!(latest(&log, Some("aa"), 9), []);
}

fn a_log_is_bounded_by_number_and_age<P: Place>(bench: Bench<P>) {
    let bounds = LogBounds::new().max_attempts(4).max_age(100 * SECOND);
    let log = bench.timers().attempt_log(bounds);
    let mut expected = deliver(&bench, &log, &["a", "b", "c", "d", "e", "f"]);
    expected.reverse();
    assert_eq!(ids(&log), expected[..4]);
    bench.advance(100 * SECOND);
    deliver(&bench, &log, &["g"]);
    assert_eq!(ids(&log), ["g", &expected[0], &expected[1], &expected[2]]);
    bench.advance(SECOND);
    deliver(&bench, &log, &["h"]);
    assert_eq!(ids(&log), ["h", "g"]);
    assert_eq!(latest(&log, Some(&expected[0]), 9), []);
}

fn a_clock_that_is_set_back_replaces_no_attempt<P: Place>(bench: Bench<P>) {
    let log = bench.timers().attempt_log(LogBounds::new());
    deliver(&bench, &log, &["a"]);
    bench.place.set_clock(-30_000);
    deliver(&bench, &log, &["b"]);
    deliver(&bench, &log, &["a"]);
    let ended: Vec<_> = latest(&log, None, 9).into_iter().map(|it| (it.id, it.ended)).collect();
    let back = start() - 30 * SECOND;
    let expected = [("a", back), ("b", back), ("a", start())];
    assert_eq!(ended, expected.map(|(id, ended)| (id.to_owned(), ended)));
    assert_eq!(latest(&log, Some("a"), 9).len(), 2);
}

fn attempts_are_written_twice_a_second<P: Place>(bench: Bench<P>) {
    let log = bench.timers().attempt_log(LogBounds::new());
    let running = bench.run(bench.timers().worker().log(&log), |_| ready(Verdict::Done));
    let wait_until_written = |count: usize, pause: Duration| {
        for _ in 0..10_000 {
            if ids(&log).len() == count {
                return;
            }
            bench.advance(pause);
        }
        panic!("{:?}", ids(&log));
    };
    wait(bench.timers().insert("a", "", Duration::ZERO, quick())).unwrap();
    running.acknowledged(1);
    // The first needs no pause, and the time stands still until the next ones have ended.
    wait_until_written(1, Duration::ZERO);
    for id in ["b", "c"] {
        wait(bench.timers().insert(id, "", Duration::ZERO, quick())).unwrap();
    }
    running.acknowledged(2);
    for _ in 0..9 {
        assert_eq!(ids(&log), ["a"]);
    }
    wait_until_written(3, SECOND / 2);
    assert_eq!(running.stop(), []);
}

/// The next worker of the same log writes what a worker has left.
fn a_worker_that_fails_leaves_its_attempts_to_another<P: Place>(bench: Bench<P>) {
    let (timers, log) = (bench.timers(), bench.timers().attempt_log(LogBounds::new()));
    let (send, mut ended) = futures_channel::mpsc::unbounded();
    let worker = timers.worker().log(&log).observe(move |event| {
        if matches!(event, Event::Attempt(_)) {
            drop(send.unbounded_send(()));
        }
    });
    let run = Box::pin(worker.run(|_| ready(Verdict::Done)));
    let ends = Box::pin(async {
        timers.insert("a", "", Duration::ZERO, quick()).await.unwrap();
        ended.next().await;
        while log.latest(None, 1).await.unwrap().is_empty() {}
        // The time stands still, so this one is not written.
        timers.insert("b", "", Duration::ZERO, quick()).await.unwrap();
        ended.next().await;
    });
    drop(wait(select(ends, run)));
    assert_eq!(ids(&log), ["a"]);
    deliver(&bench, &log, &["c"]);
    assert_eq!(ids(&log), ["c", "b", "a"]);
}

/// Returns the file of the log.
fn history(bench: &Bench<OneFile>) -> PathBuf {
    bench.place.file.0.with_extension("history")
}

/// Returns the next event of a worker, which acknowledges the timer that is due.
fn event(bench: &Bench<OneFile>, worker: &Observed) -> Event {
    worker.next(|| bench.advance(SECOND))
}

#[test]
fn a_log_that_cannot_be_opened_is_opened_later() {
    let bench = Bench::new(OneFile::new());
    std::fs::create_dir(history(&bench)).unwrap();
    let log = bench.timers().attempt_log(LogBounds::new());
    let worker = Observed::start(bench.timers().worker().log(&log), |_| ready(Verdict::Done));
    let failed = |event, expected| match event {
        Event::LogFailed { lost, error: Some(DurableError::Io(error)) } => {
            assert_eq!(lost, expected);
            assert!(error.contains(".history: "), "{error}");
        }
        event => panic!("{event:?}"),
    };
    failed(event(&bench, &worker), 0);
    wait(bench.timers().insert("a", "", Duration::ZERO, quick())).unwrap();
    assert!(matches!(event(&bench, &worker), Event::Attempt(attempt) if attempt.id == "a"));
    failed(event(&bench, &worker), 1);
    assert!(matches!(wait(log.latest(None, 9)), Err(DurableError::Io(_))));
    std::fs::remove_dir(history(&bench)).unwrap();
    wait(bench.timers().insert("b", "", Duration::ZERO, quick())).unwrap();
    assert!(matches!(event(&bench, &worker), Event::Attempt(attempt) if attempt.id == "b"));
    assert_eq!(worker.stop(), []);
    assert_eq!(ids(&log), ["b"]);
}

#[test]
fn a_damaged_log_stops_no_timer() {
    let bench = Bench::new(OneFile::new());
    std::fs::write(history(&bench), "something else").unwrap();
    let log = bench.timers().attempt_log(LogBounds::new());
    let worker = Observed::start(bench.timers().worker().log(&log), |_| ready(Verdict::Done));
    let aside = bench.place.file.0.with_extension("history.damaged-1");
    assert_eq!(event(&bench, &worker), Event::LogSetAside { file: aside.clone() });
    wait(bench.timers().insert("a", "", Duration::ZERO, quick())).unwrap();
    assert!(matches!(event(&bench, &worker), Event::Attempt(attempt) if attempt.id == "a"));
    assert_eq!(worker.stop(), []);
    assert_eq!(ids(&log), ["a"]);
    assert_eq!(std::fs::read(&aside).unwrap(), b"something else");
    std::fs::remove_file(aside).unwrap();
}
