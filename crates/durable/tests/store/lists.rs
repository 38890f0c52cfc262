//! Lists by due time and by state, and dead letters in bulk, in virtual time.

use crate::common::bench::{Bench, MILLISECOND, Place, SECOND, quick, start, suite, wait};
use std::time::Duration;
use tourbillon_durable::{
    Attempt, DeadLetter, DurableError, DurableTimer, DurableTimers, Inserted, ListPosition,
    Outcome, TimerState, Verdict,
};

suite!(
    a_range_of_due_times,
    timers_are_counted_by_due_time,
    paused_timers_are_in_their_place,
    pages_by_due_time_are_bounded,
    pages_end_inside_one_due_time,
    each_state_has_its_list,
    timers_that_are_retried_have_their_list,
    few_of_many_are_listed_by_their_state,
    the_dead_letters_of_an_id_are_found,
    dead_letters_are_bounded_by_number,
    dead_letters_are_bounded_by_age,
    dead_letters_are_listed_in_both_directions,
    dead_letters_are_listed_from_any_number,
    dead_letters_are_redriven_in_pages,
    a_dead_letter_is_redriven_under_another_id,
);

const HOUR: Duration = Duration::from_secs(3600);

fn names(page: &[DurableTimer]) -> Vec<&str> {
    page.iter().map(|timer| &*timer.id).collect()
}

/// Inserts timers that are due one second apart, in another order than their ids.
fn filled<P: Place>(bench: &Bench<P>) -> &DurableTimers {
    for (seconds, id) in (1..).zip(["d", "b", "a", "c", "e"]) {
        wait(bench.timers().insert(id, "", seconds * SECOND, quick())).unwrap();
    }
    bench.timers()
}

fn a_range_of_due_times<P: Place>(bench: Bench<P>) {
    let timers = filled(&bench);
    let second = |seconds: u32| start() + seconds * SECOND;
    let all = wait(timers.list_due(.., None, 9)).unwrap();
    assert_eq!(names(&all), ["d", "b", "a", "c", "e"]);
    assert_eq!(all[1], wait(timers.get("b")).unwrap().unwrap());
    let ids = |page: Result<Vec<DurableTimer>, DurableError>| names(&page.unwrap()).join("");
    assert_eq!(ids(wait(timers.list_due(second(2)..second(4), None, 9))), "ba");
    assert_eq!(ids(wait(timers.list_due(second(2)..=second(4), None, 9))), "bac");
    assert_eq!(ids(wait(timers.list_due(..second(2), None, 9))), "d");
    assert_eq!(ids(wait(timers.list_due(second(5).., None, 9))), "e");
    let after_the_second = second(2) + MILLISECOND;
    assert_eq!(ids(wait(timers.list_due(after_the_second.., None, 9))), "ace");
    assert_eq!(ids(wait(timers.list_due(second(4)..second(2), None, 9))), "");
    assert_eq!(ids(wait(timers.list_due(..std::time::UNIX_EPOCH, None, 9))), "");
    assert_eq!(ids(wait(timers.list_due(.., None, 0))), "");
    assert_eq!(ids(wait(timers.list_state(TimerState::Resting, None, 0))), "");
    // Two timers that are due at the same time are told apart by their ids.
    wait(timers.insert("b2", "", second(2), quick())).unwrap();
    let mut last = None;
    for page in ["db", "b2a", "ce", ""] {
        let found = wait(timers.list_due(.., last, 2)).unwrap();
        assert_eq!(names(&found).join(""), page);
        last = found.last().map(DurableTimer::position);
    }
}

fn timers_are_counted_by_due_time<P: Place>(bench: Bench<P>) {
    let timers = filled(&bench);
    let second = |seconds: u32| start() + seconds * SECOND;
    let count = |bounds: &[u32], most| {
        let bounds: Vec<_> = bounds.iter().map(|seconds| second(*seconds)).collect();
        wait(timers.count_due(&bounds, most)).unwrap()
    };
    assert_eq!(count(&[0, 1, 2, 5, 6], 9), [0, 1, 3, 1]);
    assert_eq!(count(&[0, 9], 3), [3]);
    assert_eq!(count(&[4, 2, 9], 9), [0, 4]);
    assert_eq!((count(&[0], 9), count(&[], 9), count(&[0, 9], 0)), (vec![], vec![], vec![0]));
    wait(timers.pause_timer("a")).unwrap();
    assert_eq!(count(&[0, 9, u32::MAX], 9), [4, 0]);
    // Many in one range, in several slices of Redis, and more ranges than one step counts.
    let day: Vec<_> = (1..=1500).map(|minute: u32| (minute.to_string(), minute * 60)).collect();
    let all = day.iter().map(|(id, at)| timers.insert(id, "", second(*at), quick()));
    wait(futures_util::future::try_join_all(all)).unwrap();
    assert_eq!(count(&[60, 86_400, 86_460], 2000), [1000, 1]);
    let bounds: Vec<u32> = (0..=1500).map(|minute| minute * 60).collect();
    assert_eq!(count(&bounds, 1000), [&[4][..], &[1; 1499]].concat());
    let running = bench.work(1, |_| async { Ok::<_, &str>(()) });
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), ["d"]);
    assert_eq!(running.stop(), []);
    assert_eq!(count(&[0, 9], 9), [3]);
}

fn paused_timers_are_in_their_place<P: Place>(bench: Bench<P>) {
    let timers = filled(&bench);
    for id in ["b", "e"] {
        wait(timers.pause_timer(id)).unwrap();
    }
    let mut last = None;
    for page in ["db", "ac", "e", ""] {
        let found = wait(timers.list_due(.., last, 2)).unwrap();
        assert_eq!(names(&found).join(""), page);
        last = found.last().map(DurableTimer::position);
    }
    let some = wait(timers.list_due(..start() + 4 * SECOND, None, 9)).unwrap();
    assert_eq!(names(&some), ["d", "b", "a"]);
}

fn pages_by_due_time_are_bounded<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let mut ids: Vec<String> = (0..1100).map(|number| format!("{number:04}")).collect();
    let all = ids.iter().map(|id| timers.insert(id, "", SECOND, quick()));
    wait(futures_util::future::try_join_all(all)).unwrap();
    for number in 1100..1130 {
        let id = format!("{number:04}");
        wait(timers.insert(&id, vec![7; 1 << 20], 2 * SECOND, quick())).unwrap();
        ids.push(id);
    }
    // It comes after all pages of long ones, although it is found at once.
    wait(timers.insert("1130", "", 3 * SECOND, quick())).unwrap();
    wait(timers.pause_timer("1130")).unwrap();
    ids.push("1130".to_owned());
    let (mut listed, mut last) = (Vec::new(), None);
    loop {
        let page = wait(timers.list_due(.., last, usize::MAX)).unwrap();
        let long = page.iter().filter(|timer| !timer.payload.is_empty()).count();
        // In Redis there may be one more of each of 16 partitions.
        assert!(page.len() <= 1000 && long <= 8 + 16, "{} timers, {long} long", page.len());
        if page.is_empty() {
            break;
        }
        listed.extend(page.iter().map(|timer| timer.id.clone()));
        last = page.last().map(DurableTimer::position);
    }
    assert_eq!(listed, ids);
}

fn pages_end_inside_one_due_time<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let mut ids: Vec<String> = (0..40).map(|number| format!("{number:02}")).collect();
    // One continues another, and one is not of ASCII.
    ids.extend(["07 ".to_owned(), "ü".to_owned()]);
    for id in &ids {
        wait(timers.insert(id, "", HOUR, quick())).unwrap();
        if id.ends_with('3') {
            wait(timers.pause_timer(id)).unwrap();
        }
    }
    ids.sort_unstable();
    for limit in [1, 7, 41] {
        let (mut listed, mut last) = (Vec::new(), None);
        loop {
            let page = wait(timers.list_due(.., last, limit)).unwrap();
            let Some(timer) = page.last() else { break };
            // Only this is left of it between two pages.
            last = Some(ListPosition::new(timer.due, &*timer.id));
            assert!(page.is_sorted_by_key(DurableTimer::position) && page.len() <= limit);
            listed.extend(page.into_iter().map(|timer| timer.id));
        }
        assert_eq!(listed, ids);
    }
    // A position needs no timer, and is rounded like due times.
    let position = ListPosition::new(start() + HOUR - MILLISECOND / 2, "07!");
    assert_eq!((position.due(), position.id()), (start() + HOUR, "07!"));
    let page = wait(timers.list_due(.., Some(position.clone()), 1)).unwrap();
    assert_eq!(names(&page), ["08"]);
    let page = wait(timers.list_state(TimerState::Paused, Some(position), 1)).unwrap();
    assert_eq!(names(&page), ["13"]);
}

fn each_state_has_its_list<P: Place>(bench: Bench<P>) {
    let timers = filled(&bench).clone();
    let inside = timers.clone();
    let states = move |timers: &DurableTimers, state| {
        let (mut all, mut last) = (String::new(), None);
        loop {
            let page = wait(timers.list_state(state, last, 1)).unwrap();
            assert!(page.iter().all(|timer| timer.state == state));
            let Some(timer) = page.last() else { return all };
            all += &timer.id;
            last = Some(timer.position());
        }
    };
    for id in ["a", "e"] {
        wait(timers.pause_timer(id)).unwrap();
    }
    let running = bench.work(1, move |delivery| {
        if delivery.id == "b" {
            wait(inside.pause_timer("b")).unwrap();
            assert_eq!(states(&inside, TimerState::Pausing), "b");
            assert_eq!(states(&inside, TimerState::Running), "");
        } else {
            assert_eq!(states(&inside, TimerState::Running), "d");
            assert_eq!(states(&inside, TimerState::Pausing), "");
        }
        assert_eq!(states(&inside, TimerState::Paused), "ae");
        async { Err("no") }
    });
    for id in ["d", "b"] {
        bench.advance(SECOND);
        let Attempt { id: ended, outcome, .. } = running.next();
        assert_eq!(ended, id);
        // A handler that panics is retried, too.
        assert!(matches!(&outcome, Outcome::Retry { error, .. } if error == "no"), "{outcome:?}");
        assert_eq!(running.events.try_iter().count(), 0);
        // Its retry must not disturb.
        wait(timers.reset(id, HOUR)).unwrap();
    }
    assert_eq!(running.stop(), []);
    assert_eq!(states(&timers, TimerState::Resting), "cd");
    assert_eq!(states(&timers, TimerState::Paused), "aeb");
}

fn timers_that_are_retried_have_their_list<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let listed = |state| {
        let page = wait(timers.list_state(state, None, 9)).unwrap();
        assert!(page.iter().all(|timer| timer.state == state));
        names(&page).join(" ")
    };
    for id in ["fails", "again", "back"] {
        wait(timers.insert(id, "", SECOND, quick())).unwrap();
    }
    wait(timers.insert("far", "", 99 * HOUR, quick())).unwrap();
    let running = bench.work_by(1, |delivery| async move {
        match &*delivery.id {
            "fails" => Verdict::retry("no"),
            "again" => Verdict::Again { after: 9 * HOUR, counted: true },
            _ => Verdict::GiveBack { after: HOUR, error: Some("no".to_owned()) },
        }
    });
    assert_eq!(listed(TimerState::Retrying), "");
    bench.advance(SECOND);
    for _ in 0..3 {
        running.next();
    }
    assert_eq!(running.stop(), []);
    assert_eq!(listed(TimerState::Retrying), "fails again");
    // It was given back, so its attempt does not count.
    assert_eq!(listed(TimerState::Resting), "back far");
    wait(timers.pause_timer("fails")).unwrap();
    assert_eq!(
        (listed(TimerState::Retrying), listed(TimerState::Paused)),
        ("again".into(), "fails".into())
    );
    wait(timers.resume_timer("fails")).unwrap();
    assert_eq!(wait(timers.run_now("again")), Ok(true));
    assert_eq!(listed(TimerState::Retrying), "again fails");
    assert_eq!(wait(timers.reset("again", HOUR)), Ok(true));
    assert_eq!(listed(TimerState::Retrying), "fails");
}

fn few_of_many_are_listed_by_their_state<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let ids: Vec<String> = (0..2500).map(|number| format!("{number:04}")).collect();
    let all = ids.iter().map(|id| timers.insert(id, "", HOUR, quick()));
    wait(futures_util::future::try_join_all(all)).unwrap();
    // The lease ends after the due time of more timers than a page has.
    let inside = timers.clone();
    wait(timers.insert("busy", "", SECOND, quick().lease(2 * HOUR))).unwrap();
    let running = bench.work(1, move |_| {
        let running = wait(inside.list_state(TimerState::Running, None, 9)).unwrap();
        assert_eq!(names(&running), ["busy"]);
        async { Ok::<_, &str>(()) }
    });
    bench.advance(SECOND);
    assert_eq!(running.next().outcome, Outcome::Acknowledged);
    assert_eq!(running.stop(), []);
    for (id, _) in ids.iter().zip(0..2400) {
        wait(timers.pause_timer(id)).unwrap();
    }
    // Those that rest lie behind more than one page of others if they are listed by their ids.
    let resting = wait(timers.list_state(TimerState::Resting, None, 1000)).unwrap();
    assert_eq!(names(&resting), ids[2400..]);
    let paused = wait(timers.list_state(TimerState::Paused, None, 7)).unwrap();
    assert_eq!(names(&paused), ids[..7]);
    assert_eq!(wait(timers.list_state(TimerState::Running, None, 9)).unwrap(), []);
}

/// Makes dead letters, one each second.
fn dead<P: Place>(bench: &Bench<P>, ids: &[String]) {
    let running = bench.work(1, |_| async { Err("no") });
    for id in ids {
        wait(bench.timers().insert(id, &**id, SECOND, quick().attempts(1))).unwrap();
        bench.advance(SECOND);
        assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    }
    assert_eq!(running.stop(), []);
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number}")).collect()
}

fn letters(timers: &DurableTimers) -> Vec<DeadLetter> {
    wait(timers.dead_letters(None, 1000)).unwrap()
}

fn the_dead_letters_of_an_id_are_found<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    assert_eq!(wait(timers.newest_dead_letters_of("0", None, 9)), Ok(Vec::new()));
    dead(&bench, &[numbered(3), numbered(1), numbered(1)].concat());
    let all = letters(timers);
    let of = |id: &str, before, limit| -> Vec<u64> {
        let page = wait(timers.newest_dead_letters_of(id, before, limit)).unwrap();
        assert!(page.iter().all(|letter| all.contains(letter) && letter.id == id));
        page.into_iter().map(|letter| letter.number).collect()
    };
    let number = |place: usize| all[place].number;
    assert_eq!(of("0", None, 9), [number(4), number(3), number(0)]);
    assert_eq!(of("0", None, 2), [number(4), number(3)]);
    assert_eq!(of("0", Some(number(3)), 9), [number(0)]);
    assert_eq!(of("1", None, 9), [number(1)]);
    assert_eq!(of("1", Some(number(4)), 9), [number(1)]);
    assert_eq!(
        (of("1", Some(number(1)), 9), of("0", None, 0), of("3", None, 9)),
        Default::default()
    );
}

fn dead_letters_are_bounded_by_number<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    dead(&bench, &numbered(9));
    assert_eq!(wait(timers.trim_dead_letters(9, Duration::MAX)), Ok(0));
    assert_eq!(wait(timers.trim_dead_letters(4, Duration::MAX)), Ok(5));
    let left: Vec<String> = letters(timers).into_iter().map(|letter| letter.id).collect();
    assert_eq!(left, ["5", "6", "7", "8"]);
    assert_eq!(wait(timers.trim_dead_letters(0, Duration::MAX)), Ok(4));
    assert_eq!(wait(timers.dead_len()), Ok(0));
}

fn dead_letters_are_bounded_by_age<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    dead(&bench, &numbered(5));
    // They are 4, 3, 2, 1 and 0 seconds old.
    assert_eq!(wait(timers.trim_dead_letters(u64::MAX, 4 * SECOND)), Ok(0));
    assert_eq!(wait(timers.trim_dead_letters(u64::MAX, 2 * SECOND)), Ok(2));
    let left: Vec<String> = letters(timers).into_iter().map(|letter| letter.id).collect();
    assert_eq!(left, ["2", "3", "4"]);
    assert_eq!(wait(timers.trim_dead_letters(2, HOUR)), Ok(1));
    assert_eq!(wait(timers.trim_dead_letters(u64::MAX, Duration::MAX)), Ok(0));
}

fn dead_letters_are_listed_in_both_directions<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    assert_eq!(wait(timers.newest_dead_letters(None, 9)), Ok(Vec::new()));
    let ids = numbered(40);
    dead(&bench, &ids);
    let oldest = letters(timers);
    assert_eq!(
        oldest.iter().map(|letter| &letter.id).collect::<Vec<_>>(),
        ids.iter().collect::<Vec<_>>()
    );
    let newest: Vec<DeadLetter> = oldest.iter().rev().cloned().collect();
    for limit in [1, 7, 40, 1000] {
        let mut listed: Vec<DeadLetter> = Vec::new();
        loop {
            let last = listed.last().map(|letter| letter.number);
            let page = wait(timers.newest_dead_letters(last, limit)).unwrap();
            assert_eq!(page.len(), limit.min(newest.len() - listed.len()));
            if page.is_empty() {
                break;
            }
            listed.extend(page);
        }
        assert_eq!(listed, newest, "pages of {limit}");
    }
    assert_eq!(wait(timers.newest_dead_letters(None, 0)), Ok(Vec::new()));
}

fn dead_letters_are_listed_from_any_number<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    dead(&bench, &numbered(40));
    let oldest = letters(timers);
    let newest: Vec<DeadLetter> = oldest.iter().rev().cloned().collect();
    // From the middle, in either direction, and beyond the ends.
    let middle = Some(oldest[20].number);
    assert_eq!(wait(timers.dead_letters(middle, 5)).unwrap(), oldest[21..26]);
    assert_eq!(wait(timers.newest_dead_letters(middle, 5)).unwrap(), newest[20..25]);
    assert_eq!(wait(timers.newest_dead_letters(Some(u64::MAX), 3)).unwrap(), newest[..3]);
    assert_eq!(wait(timers.dead_letters(Some(u64::MAX), 3)), Ok(Vec::new()));
    assert_eq!(wait(timers.newest_dead_letters(Some(0), 3)), Ok(Vec::new()));
    // The position need not exist any more.
    assert_eq!(wait(timers.delete_dead_letter(oldest[20].number)), Ok(true));
    assert_eq!(wait(timers.newest_dead_letters(middle, 5)).unwrap(), newest[20..25]);
    let around = Some(oldest[22].number);
    let page = wait(timers.newest_dead_letters(around, 2)).unwrap();
    assert_eq!(page, [oldest[21].clone(), oldest[19].clone()]);
}

fn dead_letters_are_redriven_in_pages<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let ids = numbered(7);
    dead(&bench, &ids);
    wait(timers.insert("3", "it is here again", HOUR, quick())).unwrap();
    let (mut after, mut redriven, mut pages) = (None, 0, 0);
    loop {
        let page = wait(timers.redrive_dead_letters(after, 3)).unwrap();
        assert_eq!(page.existing, u64::from(pages == 1));
        redriven += page.redriven;
        let Some(last) = page.last else { break };
        (after, pages) = (Some(last), pages + 1);
    }
    assert_eq!((redriven, pages, wait(timers.dead_len())), (6, 3, Ok(1)));
    assert_eq!(letters(timers)[0].id, "3");
    let running = bench.work_well();
    let mut all = running.acknowledged(6);
    all.sort_unstable();
    assert_eq!(all, ["0", "1", "2", "4", "5", "6"]);
    assert_eq!(running.stop(), []);
}

fn a_dead_letter_is_redriven_under_another_id<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    dead(&bench, &numbered(3));
    let all = letters(timers);
    assert_eq!(wait(timers.redrive_as(all[0].number, "another")), Ok(true));
    assert_eq!(wait(timers.redrive_as(all[0].number, "another")), Ok(false));
    let found = wait(timers.get("another")).unwrap().unwrap();
    assert_eq!((&found.payload[..], found.planned), (&b"0"[..], all[0].planned));
    assert_eq!((found.attempts, found.options.clone()), (0, all[0].options.clone()));
    // The id of another timer.
    assert_eq!(wait(timers.redrive_as(all[1].number, "another")), Err(DurableError::Exists));
    assert_eq!(wait(timers.dead_len()), Ok(2));
    let length = wait(timers.redrive_as(all[1].number, ""));
    assert!(matches!(length, Err(DurableError::IdLength { .. })));
    // Its own id.
    assert_eq!(wait(timers.redrive_as(all[1].number, "1")), Ok(true));
    // A call that was interrupted has inserted the timer and left the letter.
    let inserted = wait(timers.insert("once more", "2", all[2].planned, quick().attempts(1)));
    assert_eq!(inserted, Ok(Inserted::New));
    assert_eq!(wait(timers.redrive_as(all[2].number, "once more")), Ok(true));
    assert_eq!((wait(timers.dead_len()), wait(timers.len())), (Ok(0), Ok(3)));
    let running = bench.work_well();
    assert_eq!(running.acknowledged(3).len(), 3);
    assert_eq!(running.stop(), []);
}
