//! Copies of a paused store to another one, in virtual time.

#![allow(clippy::disallowed_methods, reason = "a copy that waits has a thread of its own")]

use crate::common::bench::{Bench, OneFile, Place, Running, SECOND, TempFile, quick, suite, wait};
#[cfg(feature = "postgres")]
use crate::common::postgres::OneSchema;
#[cfg(feature = "redis")]
use crate::common::redis::OneNode;
use futures_channel::{mpsc, oneshot};
use futures_util::future::{Either, select};
use std::sync::mpsc::channel;
use std::time::Duration;
use tourbillon_durable::{
    Cancelled, DeadLetter, DurableError, DurableTimer, DurableTimers, Existing, Label, Misfire,
    Outcome, TimerState,
};

suite!(
    everything_is_kept_in_a_file,
    everything_is_kept_in_redis,
    everything_is_kept_in_postgres,
    an_order_to_run_is_kept_in_a_file,
    an_order_to_run_is_kept_in_redis,
    an_order_to_run_is_kept_in_postgres,
    a_copy_to_a_file_is_repeated_after_a_kill,
    a_copy_to_redis_is_repeated_after_a_kill,
    a_copy_to_postgres_is_repeated_after_a_kill,
    a_copy_waits_for_what_runs,
    a_copy_takes_over_what_was_left,
    a_copy_to_redis_takes_over_what_was_left,
    a_copy_to_postgres_takes_over_what_was_left,
);

const HOUR: Duration = Duration::from_secs(3600);

fn file_beside<P: Place>(bench: &Bench<P>) -> Bench<OneFile> {
    Bench::new(OneFile { file: TempFile::new(), clock: bench.place.clock().clone() })
}

/// Runs a test with a store in Redis that has another number of partitions.
#[cfg(feature = "redis")]
fn beside_redis<P: Place>(bench: Bench<P>, test: impl FnOnce(&Bench<P>, &Bench<OneNode>)) {
    if let Some(node) = OneNode::beside(bench.place.clock(), 5) {
        test(&bench, &Bench::new(node));
    }
}

#[cfg(not(feature = "redis"))]
fn beside_redis<P: Place>(_: Bench<P>, _: impl FnOnce(&Bench<P>, &Bench<OneFile>)) {}

/// Runs a test with a store in Postgres.
#[cfg(feature = "postgres")]
fn beside_postgres<P: Place>(bench: Bench<P>, test: impl FnOnce(&Bench<P>, &Bench<OneSchema>)) {
    if let Some(schema) = OneSchema::beside(bench.place.clock()) {
        test(&bench, &Bench::new(schema));
    }
}

#[cfg(not(feature = "postgres"))]
fn beside_postgres<P: Place>(_: Bench<P>, _: impl FnOnce(&Bench<P>, &Bench<OneFile>)) {}

fn everything_is_kept_in_a_file<P: Place>(bench: Bench<P>) {
    let other = file_beside(&bench);
    everything_is_kept(&bench, &other);
}

fn everything_is_kept_in_redis<P: Place>(bench: Bench<P>) {
    beside_redis(bench, everything_is_kept);
}

fn everything_is_kept_in_postgres<P: Place>(bench: Bench<P>) {
    beside_postgres(bench, everything_is_kept);
}

fn all(timers: &DurableTimers) -> Vec<DurableTimer> {
    let (mut all, mut last) = (Vec::<DurableTimer>::new(), None::<String>);
    loop {
        let page = wait(timers.list(last.as_deref(), 1000)).unwrap();
        let Some(timer) = page.last() else { break };
        last = Some(timer.id.clone());
        all.extend(page);
    }
    all.sort_by(|one, other| one.id.cmp(&other.id));
    all
}

/// Returns all dead letters without their numbers.
fn letters(timers: &DurableTimers) -> Vec<DeadLetter> {
    let mut letters = wait(timers.dead_letters(None, 1000)).unwrap();
    letters.iter_mut().for_each(|letter| letter.number = 0);
    letters
}

fn copy(timers: &DurableTimers, other: &DurableTimers) -> Result<(u64, u64), DurableError> {
    let copied = wait(timers.copy_to(other, |_| ()))?;
    assert_eq!(copied.running, 0);
    Ok((copied.timers, copied.dead_letters))
}

/// Checks that both stores have the same timers and letters, and a sound index.
fn are_equal(timers: &DurableTimers, other: &DurableTimers) {
    assert_eq!(all(timers), all(other));
    assert_eq!(letters(timers), letters(other));
    let is_found = |letter: &DeadLetter| {
        let found = wait(other.newest_dead_letters_of(&letter.id, None, 9)).unwrap();
        found.iter().any(|it| it.payload == letter.payload)
    };
    assert!(letters(other).iter().all(is_found));
    for text in ["shop", "eu"] {
        let label = Label::new(text).unwrap();
        let labelled = |of: &DurableTimers| wait(of.list_label(&label, None, 9));
        assert_eq!(labelled(timers), labelled(other));
        assert_eq!(wait(timers.label_len(&label)), wait(other.label_len(&label)));
    }
    let retried = |of: &DurableTimers| wait(of.list_state(TimerState::Retrying, None, 9));
    assert_eq!(retried(timers), retried(other));
    assert_eq!(wait(timers.len()), wait(other.len()));
    let report = wait(other.check()).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

/// Fails the attempts of a timer that is due now.
fn fail<P: Place>(bench: &Bench<P>, id: &str) {
    let timers = bench.timers().clone();
    let running: Running = bench.work(1, move |delivery| {
        if ["moved", "next"].contains(&&*delivery.id) {
            let keep = quick().existing(Existing::Keep);
            wait(timers.insert(&delivery.id, "later", HOUR, keep)).unwrap();
        }
        async { Err("no") }
    });
    assert_eq!(running.next().id, id);
    assert_eq!(running.stop(), []);
}

fn everything_is_kept<P: Place, Q: Place>(bench: &Bench<P>, other: &Bench<Q>) {
    let (timers, target) = (bench.timers(), other.timers());
    let insert = |id: &str, delay, options| wait(timers.insert(id, id, delay, options)).unwrap();
    let shop = Label::new("shop").unwrap();
    let options = quick().every(HOUR).misfire(Misfire::SkipAfter(SECOND)).header("trace", "7");
    let options = options.label(shop.clone()).label(Label::new("eu").unwrap());
    for id in ["dead", "too"] {
        insert(id, Duration::ZERO, quick().attempts(1).header("trace", id).label(shop.clone()));
        fail(bench, id);
    }
    for id in ["next", "failed", "moved"] {
        insert(id, Duration::ZERO, quick().label(shop.clone()));
        fail(bench, id);
        wait(timers.pause_timer(id)).unwrap();
    }
    for id in ["failed", "moved"] {
        wait(timers.resume_timer(id)).unwrap();
    }
    wait(timers.reset("moved", 2 * SECOND)).unwrap();
    insert("plain", 2 * HOUR, quick());
    insert("full", HOUR, options);
    assert_eq!(copy(timers, target), Err(DurableError::NotPaused));
    let itself = copy(timers, &timers.clone());
    assert_eq!(itself, Err(DurableError::Option("a store cannot be copied to itself")));
    assert_eq!(wait(target.is_paused()), Ok(false));

    wait(timers.pause()).unwrap();
    assert_eq!(copy(timers, target), Ok((5, 2)));
    are_equal(timers, target);
    assert_eq!(wait(target.is_paused()), Ok(true));
    let next = wait(target.get("next")).unwrap().unwrap();
    assert_eq!((next.state, &*next.error, next.attempts), (TimerState::Paused, "no", 1));
    assert!(next.next.is_some());
    // The next copy makes later changes there, and nothing is doubled.
    wait(timers.reset("plain", 2 * SECOND)).unwrap();
    // The states of two are gone, and the next delivery of one.
    let replaces = || quick().existing(Existing::Replace);
    insert("failed", 2 * SECOND, replaces());
    insert("next", HOUR, replaces());
    assert_eq!(copy(timers, target), Ok((5, 2)));
    are_equal(timers, target);
    what_was_copied_is_delivered(other);

    // Later letters come after the copied letters.
    wait(timers.copy_to(target, |_| ())).unwrap();
    wait(target.resume()).unwrap();
    wait(target.insert("last", "", Duration::ZERO, quick().attempts(1))).unwrap();
    let failing = other
        .work(1, |delivery| async move { if delivery.id == "last" { Err("no") } else { Ok(()) } });
    while failing.next().id != "last" {}
    failing.stop();
    let order: Vec<String> = letters(target).into_iter().map(|letter| letter.id).collect();
    assert_eq!(order, ["dead", "too", "last"]);
}

fn what_was_copied_is_delivered<Q: Place>(other: &Bench<Q>) {
    let target = other.timers();
    let running = other.work_well();
    wait(target.resume()).unwrap();
    other.advance(2 * SECOND);
    let mut acknowledged = running.acknowledged(3);
    acknowledged.sort_unstable();
    assert_eq!(acknowledged, ["failed", "moved", "plain"]);
    assert_eq!(wait(target.get("moved")).unwrap().unwrap().payload, b"later");
    // Each letter is found by the number that it has there.
    for letter in wait(target.dead_letters(None, 9)).unwrap() {
        assert_eq!(wait(target.redrive(letter.number)), Ok(true));
    }
    assert_eq!(running.acknowledged(2).len(), 2);
    assert_eq!(running.stop(), []);
    assert_eq!((wait(target.len()), wait(target.dead_len())), (Ok(3), Ok(0)));
}

fn an_order_to_run_is_kept_in_a_file<P: Place>(bench: Bench<P>) {
    let other = file_beside(&bench);
    an_order_to_run_is_kept(&bench, &other);
}

fn an_order_to_run_is_kept_in_redis<P: Place>(bench: Bench<P>) {
    beside_redis(bench, an_order_to_run_is_kept);
}

fn an_order_to_run_is_kept_in_postgres<P: Place>(bench: Bench<P>) {
    beside_postgres(bench, an_order_to_run_is_kept);
}

fn an_order_to_run_is_kept<P: Place, Q: Place>(bench: &Bench<P>, other: &Bench<Q>) {
    let (timers, target) = (bench.timers(), other.timers());
    wait(timers.pause()).unwrap();
    wait(timers.insert("id", "", HOUR, quick().every(HOUR))).unwrap();
    wait(timers.pause_timer("id")).unwrap();
    let plan = wait(timers.get("id")).unwrap();
    assert_eq!(wait(timers.run_now("id")), Ok(true));
    assert_eq!(copy(timers, target), Ok((1, 0)));
    are_equal(timers, target);
    let running = other.work_well();
    wait(target.resume()).unwrap();
    assert_eq!(running.next().planned, bench.now());
    assert_eq!(wait(target.get("id")).unwrap(), plan);
    assert_eq!(running.stop(), []);
}

fn a_copy_to_a_file_is_repeated_after_a_kill<P: Place>(bench: Bench<P>) {
    let other = file_beside(&bench);
    a_copy_is_repeated(&bench, &other);
}

fn a_copy_to_redis_is_repeated_after_a_kill<P: Place>(bench: Bench<P>) {
    beside_redis(bench, a_copy_is_repeated);
}

fn a_copy_to_postgres_is_repeated_after_a_kill<P: Place>(bench: Bench<P>) {
    beside_postgres(bench, a_copy_is_repeated);
}

fn a_copy_is_repeated<P: Place, Q: Place>(bench: &Bench<P>, other: &Bench<Q>) {
    let (timers, target) = (bench.timers(), other.timers());
    for id in ["dead", "too"] {
        wait(timers.insert(id, id, Duration::ZERO, quick().attempts(1))).unwrap();
        fail(bench, id);
    }
    let ids: Vec<String> = (0..2500).map(|number| format!("{number:04}")).collect();
    let every = ids.iter().map(|id| timers.insert(id, &**id, HOUR, quick()));
    wait(futures_util::future::try_join_all(every)).unwrap();
    wait(timers.pause()).unwrap();
    let mut pages = 1;
    loop {
        // The copy is dropped after so many pages.
        let (send, mut done) = mpsc::unbounded::<()>();
        let mut left = pages;
        let copy = timers.copy_to(target, move |_| {
            left -= 1;
            if left == 0 {
                let _ = send.unbounded_send(());
            }
        });
        let killed = futures_util::StreamExt::next(&mut done);
        match wait(select(killed, Box::pin(copy))) {
            Either::Left((Some(()), _)) => pages += 1,
            Either::Left((None, copy)) => {
                wait(copy).unwrap();
                break;
            }
            Either::Right((copied, _)) => {
                copied.unwrap();
                break;
            }
        }
    }
    assert!(pages >= 4, "{pages} pages");
    are_equal(timers, target);
    assert_eq!(wait(target.len()), Ok(2500));
    assert_eq!(wait(target.dead_len()), Ok(2));
}

/// Runs a copy on another thread. Returns the progress and the end.
fn copying(
    timers: &DurableTimers,
    other: &DurableTimers,
) -> (std::sync::mpsc::Receiver<u64>, std::thread::JoinHandle<u64>) {
    let (timers, other) = (timers.clone(), other.clone());
    let (send, progress) = channel();
    let copy = move || {
        let copied = timers.copy_to(&other, |progress| {
            let _ = send.send(progress.running);
        });
        wait(copied).unwrap().timers
    };
    (progress, std::thread::spawn(copy))
}

fn a_copy_waits_for_what_runs<P: Place>(bench: Bench<P>) {
    let other = file_beside(&bench);
    let (begun, begins) = channel();
    let running = bench.work(1, move |_| {
        let (gate, opened) = oneshot::channel::<()>();
        begun.send(gate).unwrap();
        opened
    });
    wait(bench.timers().insert("id", "", SECOND, quick().every(HOUR))).unwrap();
    bench.advance(SECOND);
    let gate = begins.recv().unwrap();
    wait(bench.timers().pause()).unwrap();
    let (progress, copy) = copying(bench.timers(), other.timers());
    // The page, and then the first look.
    assert_eq!((progress.recv(), progress.recv()), (Ok(1), Ok(1)));
    assert_eq!(wait(other.timers().len()), Ok(0));
    gate.send(()).unwrap();
    assert_eq!(running.acknowledged(1), ["id"]);
    while !copy.is_finished() {
        bench.advance(SECOND);
        std::thread::yield_now();
    }
    assert_eq!(copy.join().unwrap(), 1);
    are_equal(bench.timers(), other.timers());
    assert_eq!(running.stop(), []);
}

fn a_copy_takes_over_what_was_left<P: Place>(bench: Bench<P>) {
    let other = file_beside(&bench);
    what_was_left_is_taken_over(&bench, &other);
}

fn a_copy_to_redis_takes_over_what_was_left<P: Place>(bench: Bench<P>) {
    beside_redis(bench, what_was_left_is_taken_over);
}

fn a_copy_to_postgres_takes_over_what_was_left<P: Place>(bench: Bench<P>) {
    beside_postgres(bench, what_was_left_is_taken_over);
}

fn what_was_left_is_taken_over<P: Place, Q: Place>(bench: &Bench<P>, other: &Bench<Q>) {
    let timers = bench.timers();
    for id in ["cancelled", "id"] {
        wait(timers.insert(id, "", SECOND, quick().lease(5 * SECOND))).unwrap();
    }
    bench.advance(SECOND);
    // Its future is dropped in the middle of the handlers.
    let (send, begun) = mpsc::unbounded();
    let run = timers.run(move |_| {
        send.unbounded_send(()).unwrap();
        std::future::pending::<Result<(), String>>()
    });
    let both = futures_util::StreamExt::collect(futures_util::StreamExt::take(begun, 2));
    let Either::Right((attempts, run)) = wait(select(Box::pin(run), both)) else {
        panic!("the worker has ended")
    };
    let attempts: Vec<()> = attempts;
    assert_eq!(attempts.len(), 2);
    drop(run);
    assert_eq!(wait(timers.cancel("cancelled")), Ok(Cancelled::Running));
    wait(timers.pause()).unwrap();
    bench.advance(5 * SECOND);
    assert_eq!(copy(timers, other.timers()), Ok((2, 0)));
    // The old attempt no longer counts in either store.
    let taken = wait(timers.get("id")).unwrap().unwrap();
    assert_eq!(taken.due, bench.now() + 5 * SECOND);
    let copied = wait(other.timers().get("id")).unwrap().unwrap();
    assert_eq!((copied.attempts, copied.is_running()), (1, true));
    let running = other.work_well();
    wait(other.timers().resume()).unwrap();
    let mut ended = [running.next(), running.next()];
    ended.sort_by(|one, two| one.id.cmp(&two.id));
    let error = "the lease ran out".to_owned();
    assert_eq!(ended[0].outcome, Outcome::Cancelled { error: error.clone() });
    assert_eq!(ended[1].outcome, Outcome::Retry { wait: SECOND, error });
    other.advance(SECOND);
    let event = running.next();
    assert_eq!((event.attempt, event.outcome), (2, Outcome::Acknowledged));
    assert_eq!(running.stop(), []);
}
