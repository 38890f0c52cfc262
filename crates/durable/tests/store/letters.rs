//! The bounds of dead letters, on every store.

use crate::common::bench::{Bench, Bounds, MILLISECOND, Place, SECOND, quick, suite, wait};
use std::time::Duration;
use tourbillon_durable::{DeadLetter, DurableTimers, Label, Outcome};

suite!(
    a_letter_that_is_written_takes_the_place_of_the_oldest,
    a_letter_that_is_written_ends_those_that_are_too_old,
    a_worker_deletes_letters_beyond_their_number,
    a_worker_deletes_letters_that_are_too_old,
    a_letter_of_a_clock_that_was_ahead_keeps_no_other,
    letters_are_found_by_id_and_label_as_long_as_they_exist,
);

const HOUR: Duration = Duration::from_secs(3600);

/// Makes dead letters with these payloads, before a worker checks the store.
fn die<P: Place>(bench: &Bench<P>, letters: &[(&str, &str)]) {
    let running = bench.work(1, |_| async { Err("no") });
    for (id, payload) in letters {
        wait(bench.timers().insert(id, *payload, MILLISECOND, quick().attempts(1))).unwrap();
        bench.advance(MILLISECOND);
        assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    }
    assert_eq!(running.stop(), []);
}

/// Makes dead letters of one id, and so of one partition.
fn die_in_one<P: Place>(bench: &Bench<P>, payloads: &[&str]) {
    die(bench, &payloads.iter().map(|payload| ("id", *payload)).collect::<Vec<_>>());
}

/// Makes a dead letter of each of some ids, in all partitions.
fn die_each<P: Place>(bench: &Bench<P>, ids: &[&str]) {
    die(bench, &ids.iter().map(|id| (*id, *id)).collect::<Vec<_>>());
}

/// Returns the payloads of all dead letters.
fn letters(timers: &DurableTimers) -> Vec<String> {
    let letters = wait(timers.dead_letters(None, 1000)).unwrap();
    letters.into_iter().map(|letter| String::from_utf8(letter.payload).unwrap()).collect()
}

fn a_letter_that_is_written_takes_the_place_of_the_oldest<P: Place>(mut bench: Bench<P>) {
    bench.reopen_with(Bounds(3, Duration::MAX));
    die_in_one(&bench, &["0", "1", "2"]);
    assert_eq!(letters(bench.timers()), ["0", "1", "2"]);
    die_in_one(&bench, &["3", "4"]);
    assert_eq!(letters(bench.timers()), ["2", "3", "4"]);
    // A store with more letters than it may have approaches its bound.
    bench.reopen_with(Bounds(1, Duration::MAX));
    die_in_one(&bench, &["5"]);
    assert_eq!(letters(bench.timers()), ["4", "5"]);
    die_in_one(&bench, &["6"]);
    assert_eq!(letters(bench.timers()), ["6"]);
    // None is not a bound, because the last letter would be lost as well.
    bench.reopen_with(Bounds(0, Duration::ZERO));
    die_in_one(&bench, &["7"]);
    assert_eq!(letters(bench.timers()), ["7"]);
}

fn a_letter_that_is_written_ends_those_that_are_too_old<P: Place>(mut bench: Bench<P>) {
    bench.reopen_with(Bounds(u64::MAX, HOUR));
    die_in_one(&bench, &["0", "1", "2"]);
    bench.advance(HOUR - 3 * MILLISECOND);
    // The oldest is as old as allowed.
    die_in_one(&bench, &["3"]);
    assert_eq!(letters(bench.timers()), ["0", "1", "2", "3"]);
    bench.advance(HOUR / 2);
    die_in_one(&bench, &["4"]);
    assert_eq!(letters(bench.timers()), ["2", "3", "4"]);
}

/// Lets a worker check the store until it has no more letters than this.
fn trim<P: Place>(bench: &Bench<P>, most: u64) {
    let running = bench.work_well();
    let mut checks = 0;
    while wait(bench.timers().dead_len()).unwrap() > most {
        checks += 1;
        assert!(checks < 10_000, "nothing is deleted");
        bench.advance(SECOND);
    }
    assert_eq!(running.stop(), []);
}

fn a_worker_deletes_letters_beyond_their_number<P: Place>(mut bench: Bench<P>) {
    die_each(&bench, &["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
    bench.reopen_with(Bounds(4, Duration::MAX));
    assert_eq!(wait(bench.timers().dead_len()), Ok(9));
    trim(&bench, 4);
    assert_eq!(letters(bench.timers()), ["5", "6", "7", "8"]);
}

fn a_worker_deletes_letters_that_are_too_old<P: Place>(mut bench: Bench<P>) {
    die_each(&bench, &["0", "1", "2", "3", "4"]);
    bench.advance(24 * HOUR);
    die_each(&bench, &["5", "6"]);
    bench.reopen_with(Bounds(u64::MAX, 24 * HOUR));
    trim(&bench, 2);
    assert_eq!(letters(bench.timers()), ["5", "6"]);
}

fn a_letter_of_a_clock_that_was_ahead_keeps_no_other<P: Place>(mut bench: Bench<P>) {
    const YEAR: i64 = 365 * 86_400_000;
    bench.place.set_clock(YEAR);
    die_in_one(&bench, &["ahead"]);
    bench.place.set_clock(-YEAR);
    // In Redis its number is greater than the number of the letter before, and so a number of the
    // next year.
    bench.reopen_with(Bounds(u64::MAX, HOUR));
    die_in_one(&bench, &["0"]);
    bench.advance(2 * HOUR);
    assert_eq!(letters(bench.timers()), ["ahead", "0"]);
    die_in_one(&bench, &["1"]);
    assert_eq!(letters(bench.timers()), ["ahead", "1"]);
    bench.advance(2 * HOUR);
    trim(&bench, 1);
    assert_eq!(letters(bench.timers()), ["ahead"]);
    // Its own time comes, and passes.
    bench.advance(Duration::from_millis(YEAR.unsigned_abs()));
    trim(&bench, 0);
}

/// Checks that the letters of each id and of a label are found among all letters. Returns the
/// payloads of all.
fn indexed(timers: &DurableTimers) -> Vec<String> {
    let all = wait(timers.dead_letters(None, 1000)).unwrap();
    for id in ["a", "aa", "b", "i:a", "none"] {
        let of_id: Vec<DeadLetter> =
            all.iter().rev().filter(|letter| letter.id == id).cloned().collect();
        assert_eq!(wait(timers.newest_dead_letters_of(id, None, 1000)), Ok(of_id), "{id}");
    }
    let label = Label::new("a").unwrap();
    let labelled = |letter: &&DeadLetter| letter.options.get_labels().any(|its| *its == label);
    let mut of_label: Vec<DeadLetter> = all.iter().filter(labelled).cloned().collect();
    assert_eq!(wait(timers.dead_letters_with_label(&label, None, 1000)).as_ref(), Ok(&of_label));
    of_label.reverse();
    assert_eq!(wait(timers.newest_dead_letters_with_label(&label, None, 1000)), Ok(of_label));
    letters(timers)
}

fn letters_are_found_by_id_and_label_as_long_as_they_exist<P: Place>(mut bench: Bench<P>) {
    let options = quick().attempts(1).label(Label::new("a").unwrap());
    let die = |bench: &Bench<P>, ids: &[&str]| {
        let running = bench.work(1, |_| async { Err("no") });
        for id in ids {
            wait(bench.timers().insert(id, *id, MILLISECOND, options.clone())).unwrap();
            bench.advance(MILLISECOND);
            assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
        }
        assert_eq!(running.stop(), []);
    };
    die(&bench, &["a", "b", "aa"]);
    die_each(&bench, &["a", "i:a"]);
    die(&bench, &["i:a", "b", "a", "a"]);
    let timers = bench.timers().clone();
    assert_eq!(indexed(&timers), ["a", "b", "aa", "a", "i:a", "i:a", "b", "a", "a"]);
    let numbers: Vec<u64> =
        wait(timers.dead_letters(None, 9)).unwrap().iter().map(|letter| letter.number).collect();
    assert_eq!(wait(timers.delete_dead_letter(numbers[8])), Ok(true));
    assert_eq!(wait(timers.redrive(numbers[7])), Ok(true));
    assert_eq!(wait(timers.redrive_as(numbers[6], "none")), Ok(true));
    assert_eq!(indexed(&timers), ["a", "b", "aa", "a", "i:a", "i:a"]);
    assert_eq!(wait(timers.trim_dead_letters(4, Duration::MAX)), Ok(2));
    assert_eq!(indexed(&timers), ["aa", "a", "i:a", "i:a"]);
    drop(timers);
    // The timers that were redriven die again, which ends the oldest.
    bench.reopen_with(Bounds(4, Duration::MAX));
    let running = bench.work(1, |_| async { Err("no") });
    for _ in 0..2 {
        assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    }
    assert_eq!(running.stop(), []);
    let left = indexed(bench.timers()).len() as u64;
    assert_eq!(wait(bench.timers().trim_dead_letters(0, Duration::MAX)), Ok(left));
    assert_eq!(indexed(bench.timers()), [""; 0]);
}
