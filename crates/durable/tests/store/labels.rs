//! Timers by label, on every store, in virtual time.

use crate::common::bench::{Bench, Place, SECOND, quick, suite, wait};
use futures_util::future::{join, try_join_all};
use std::time::Duration;
use tourbillon_durable::{
    BulkChange, Cancelled, DeadLetter, DurableError, DurableTimer, DurableTimers, Existing,
    Inserted, Label, Options, Outcome, TimerState,
};

suite!(
    timers_are_found_by_each_of_their_labels,
    an_insert_over_a_timer_changes_its_labels,
    a_timer_has_its_labels_until_it_ends,
    attempts_and_moves_keep_the_labels,
    a_next_delivery_brings_its_own_labels,
    a_dead_letter_keeps_the_labels_of_its_timer,
    labels_are_listed_in_pages_in_both_directions,
    long_timers_end_a_page_of_a_label,
    timers_of_a_label_are_paused_resumed_and_cancelled,
    a_timer_that_has_lost_a_label_is_left_alone,
);

const HOUR: Duration = Duration::from_secs(3600);

fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

/// Returns quick options with some labels.
fn labelled(labels: &[&str]) -> Options {
    labels.iter().fold(quick(), |options, text| options.label(label(text)))
}

fn names(page: &[DurableTimer]) -> Vec<&str> {
    page.iter().map(|timer| &*timer.id).collect()
}

/// Returns the ids of the timers with a label. Both directions must agree with the number of timers
/// and with the timers themselves.
fn of(timers: &DurableTimers, text: &str) -> String {
    let label = label(text);
    let found = wait(timers.list_label(&label, None, 1000)).unwrap();
    let mut reversed = wait(timers.list_label_before(&label, None, 1000)).unwrap();
    reversed.reverse();
    assert_eq!(found, reversed);
    assert_eq!(wait(timers.label_len(&label)), Ok(found.len() as u64));
    assert!(found.iter().all(|timer| timer.options.get_labels().any(|own| *own == label)));
    names(&found).join(" ")
}

fn is_sound(timers: &DurableTimers) {
    let report = wait(timers.check()).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

fn timers_are_found_by_each_of_their_labels<P: Place>(mut bench: Bench<P>) {
    let timers = bench.timers();
    for (id, labels) in
        [("b", &["shop", "eu"][..]), ("a", &["shop"]), ("c", &[]), ("ü", &["shop "])]
    {
        assert_eq!(wait(timers.insert(id, id, HOUR, labelled(labels))), Ok(Inserted::New));
    }
    let found = wait(timers.get("b")).unwrap().unwrap();
    assert_eq!(found.options.get_labels().map(Label::as_str).collect::<Vec<_>>(), ["eu", "shop"]);
    assert_eq!(wait(timers.list_label(&label("eu"), None, 9)), Ok(vec![found]));
    // Nine labels are too many, and one that is given twice counts once.
    let nine = (0..9).map(|number| number.to_string()).collect::<Vec<_>>();
    let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
    let refused = wait(timers.insert("d", "", HOUR, labelled(&nine))).unwrap_err().reason;
    assert_eq!(refused, DurableError::Option("a timer must have at most 8 labels"));
    let eight = labelled(&[&nine[..8], &nine[..8]].concat());
    assert_eq!(wait(timers.insert("d", "", HOUR, eight)), Ok(Inserted::New));
    bench.reopen();
    let timers = bench.timers();
    for (text, ids) in
        [("shop", "a b"), ("eu", "b"), ("shop ", "ü"), ("sho", ""), ("7", "d"), ("8", "")]
    {
        assert_eq!(of(timers, text), ids, "{text}");
    }
    is_sound(timers);
}

fn an_insert_over_a_timer_changes_its_labels<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let insert = |labels: &[&str], delay, existing| {
        wait(timers.insert("id", "", delay, labelled(labels).existing(existing))).unwrap()
    };
    let has = |labels: &str| {
        for text in ["a", "b", "c"] {
            assert_eq!(of(timers, text), if labels.contains(text) { "id" } else { "" }, "{text}");
        }
        is_sound(timers);
    };
    insert(&["a", "b"], HOUR, Existing::Refuse);
    has("ab");
    for (labels, delay, existing, inserted) in [
        // The time stays, or changes as well.
        (&["b", "c"][..], HOUR, Existing::Update, Inserted::Updated),
        (&["a"], 2 * HOUR, Existing::Update, Inserted::Updated),
        (&["b"], HOUR, Existing::Replace, Inserted::Replaced),
        (&[], HOUR, Existing::Update, Inserted::Updated),
        (&["a", "b", "c"], HOUR, Existing::Replace, Inserted::Replaced),
    ] {
        assert_eq!(insert(labels, delay, existing), inserted);
        has(&labels.concat());
    }
    assert_eq!(insert(&[], HOUR, Existing::Keep), Inserted::Kept);
    has("abc");
    wait(timers.pause_timer("id")).unwrap();
    insert(&["c"], HOUR, Existing::Update);
    has("c");
}

fn a_timer_has_its_labels_until_it_ends<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    for id in ["a", "b", "c"] {
        wait(timers.insert(id, "", SECOND, labelled(&["shop"]))).unwrap();
    }
    assert_eq!(wait(timers.cancel("a")), Ok(Cancelled::Removed));
    assert_eq!(of(&timers, "shop"), "b c");
    let running = bench.work(1, move |delivery| {
        if delivery.id == "c" {
            assert_eq!(wait(inside.cancel("c")), Ok(Cancelled::Running));
            assert_eq!(of(&inside, "shop"), "c");
        }
        async { Ok::<(), String>(()) }
    });
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(2), ["b", "c"]);
    assert_eq!(running.stop(), []);
    assert_eq!(of(&timers, "shop"), "");
    is_sound(&timers);
}

fn attempts_and_moves_keep_the_labels<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work(1, move |delivery| {
        assert_eq!(of(&inside, "shop"), "fails hourly");
        async move { if delivery.id == "fails" { Err("no") } else { Ok(()) } }
    });
    wait(timers.insert("fails", "", SECOND, labelled(&["shop"]))).unwrap();
    wait(timers.insert("hourly", "", SECOND, labelled(&["shop"]).every(HOUR))).unwrap();
    bench.advance(SECOND);
    let outcomes = [running.next(), running.next()].map(|attempt| attempt.outcome);
    assert!(matches!(outcomes, [Outcome::Retry { .. }, Outcome::Acknowledged]), "{outcomes:?}");
    assert_eq!(running.stop(), []);
    assert_eq!(of(&timers, "shop"), "fails hourly");
    wait(timers.reset("fails", HOUR)).unwrap();
    wait(timers.pause_timer("fails")).unwrap();
    wait(timers.run_now("hourly")).unwrap();
    assert_eq!(of(&timers, "shop"), "fails hourly");
    is_sound(&timers);
}

fn a_next_delivery_brings_its_own_labels<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work(1, move |_| {
        let next = labelled(&["new", "both"]).existing(Existing::Keep);
        assert_eq!(wait(inside.insert("id", "", HOUR, next)), Ok(Inserted::Next));
        assert_eq!(of(&inside, "old"), "id");
        assert_eq!(of(&inside, "new"), "");
        async { Ok::<(), String>(()) }
    });
    wait(timers.insert("id", "", SECOND, labelled(&["old", "both"]))).unwrap();
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
    assert_eq!(["old", "new", "both"].map(|text| of(&timers, text)), ["", "id", "id"]);
    is_sound(&timers);
}

fn a_dead_letter_keeps_the_labels_of_its_timer<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let running = bench.work(1, |_| async { Err("no") });
    let ids = ["a", "b", "c", "d", "e"];
    for (id, text) in ids.iter().zip(["shop", "other", "shop", "shop", "other"]) {
        let options = labelled(&[text]).attempts(1);
        // A long payload is stored apart in Redis.
        wait(timers.insert(id, vec![7; 5000], SECOND, options)).unwrap();
        bench.advance(SECOND);
        assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    }
    assert_eq!(running.stop(), []);
    assert_eq!(of(timers, "shop"), "");
    letters_are_listed_by_label(timers);
    letters_are_redriven_by_label(timers);
    is_sound(timers);
}

fn letters_are_listed_by_label(timers: &DurableTimers) {
    let shop = label("shop");
    let ids = |page: Vec<DeadLetter>| -> Vec<String> {
        assert!(page.iter().all(|letter| letter.options.get_labels().eq([&shop])));
        page.into_iter().map(|letter| letter.id).collect()
    };
    let oldest = wait(timers.dead_letters_with_label(&shop, None, 2)).unwrap();
    let rest = wait(timers.dead_letters_with_label(&shop, Some(oldest[1].number), 9)).unwrap();
    let newest = wait(timers.newest_dead_letters_with_label(&shop, None, 9)).unwrap();
    assert_eq!(ids(oldest), ["a", "c"]);
    let middle = Some(rest[0].number);
    assert_eq!(ids(rest), ["d"]);
    assert_eq!(ids(newest), ["d", "c", "a"]);
    let before = wait(timers.newest_dead_letters_with_label(&shop, middle, 1)).unwrap();
    assert_eq!(ids(before), ["c"]);
}

fn letters_are_redriven_by_label(timers: &DurableTimers) {
    let shop = label("shop");
    wait(timers.insert("c", "", HOUR, quick())).unwrap();
    let done = wait(timers.redrive_label(&shop, None, 2)).unwrap();
    assert_eq!((done.redriven, done.existing, done.unreadable), (1, 1, 0));
    let done = wait(timers.redrive_label(&shop, done.last, 2)).unwrap();
    assert_eq!((done.redriven, done.existing, done.last.is_some()), (1, 0, true));
    assert_eq!(wait(timers.redrive_label(&shop, done.last, 4)).unwrap().last, None);
    assert_eq!((of(timers, "shop"), of(timers, "other")), ("a d".into(), String::new()));
    let left = wait(timers.dead_letters(None, 9)).unwrap();
    assert_eq!(left.iter().map(|letter| &*letter.id).collect::<Vec<_>>(), ["b", "c", "e"]);
    assert_eq!(wait(timers.redrive_as(left[1].number, "c again")), Ok(true));
    assert_eq!(of(timers, "shop"), "a c again d");
}

fn labels_are_listed_in_pages_in_both_directions<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let mut ids: Vec<String> = (0..40).map(|number| format!("{number:02}")).collect();
    // One continues another, one is not of ASCII, and some begin like bounds of Redis.
    ids.extend(["07 ", "ü", "(", "[07", "+", "-"].map(str::to_owned));
    for id in &ids {
        wait(timers.insert(id, "", HOUR, labelled(&["shop"]))).unwrap();
        // Labels beside it in the index.
        let other = format!("other {id}");
        wait(timers.insert(&other, "", HOUR, labelled(&["shoo", "shop 2"]))).unwrap();
    }
    ids.sort_unstable();
    let shop = label("shop");
    for limit in [1, 7, 16, 46, 1000] {
        for is_reversed in [false, true] {
            let mut listed: Vec<String> = Vec::new();
            loop {
                let last = listed.last().map(String::as_str);
                let page = match is_reversed {
                    false => wait(timers.list_label(&shop, last, limit)).unwrap(),
                    true => wait(timers.list_label_before(&shop, last, limit)).unwrap(),
                };
                assert_eq!(page.len(), limit.min(ids.len() - listed.len()));
                if page.is_empty() {
                    break;
                }
                listed.extend(page.into_iter().map(|timer| timer.id));
            }
            if is_reversed {
                listed.reverse();
            }
            assert_eq!(listed, ids, "pages of {limit}");
        }
    }
    // A position needs no timer.
    assert_eq!(names(&wait(timers.list_label(&shop, Some("07!"), 1)).unwrap()), ["08"]);
    assert_eq!(names(&wait(timers.list_label_before(&shop, Some("07!"), 1)).unwrap()), ["07 "]);
    assert_eq!(names(&wait(timers.list_label(&shop, Some("07\0"), 1)).unwrap()), ["07 "]);
    assert_eq!(names(&wait(timers.list_label_before(&shop, Some("07\0"), 1)).unwrap()), ["07"]);
    assert_eq!(wait(timers.list_label(&shop, None, 0)), Ok(Vec::new()));
}

fn long_timers_end_a_page_of_a_label<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let ids: Vec<String> = (0..1020).map(|number| format!("{number:04}")).collect();
    let all = ids.iter().map(|id| {
        let length = if id.as_str() < "0020" { 1 << 20 } else { 0 };
        timers.insert(id, vec![7; length], HOUR, labelled(&["shop"]))
    });
    wait(try_join_all(all)).unwrap();
    let (shop, mut listed) = (label("shop"), Vec::<String>::new());
    loop {
        let last = listed.last().map(String::as_str);
        let page = wait(timers.list_label(&shop, last, usize::MAX)).unwrap();
        let long = page.iter().filter(|timer| !timer.payload.is_empty()).count();
        // In Redis there may be one more of each of 16 partitions.
        assert!(page.len() <= 1000 && long <= 8 + 16, "{} timers, {long} long", page.len());
        if page.is_empty() {
            break;
        }
        listed.extend(page.into_iter().map(|timer| timer.id));
    }
    assert_eq!(listed, ids);
    assert_eq!(wait(timers.label_len(&shop)), Ok(1020));
}

fn timers_of_a_label_are_paused_resumed_and_cancelled<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let ids = ["a", "b", "c", "d", "e"];
    for (id, delay) in ids.into_iter().zip([HOUR, HOUR, SECOND, HOUR, HOUR]) {
        wait(timers.insert(id, "", delay, labelled(&["shop"]))).unwrap();
    }
    wait(timers.insert("other", "", HOUR, labelled(&["eu"]))).unwrap();
    let shop = label("shop");
    let done = |changed: u64, last: Option<&str>| {
        let mut done = BulkChange::default();
        (done.changed, done.last) = (changed, last.map(str::to_owned));
        Ok(done)
    };
    let states = |timers: &DurableTimers| {
        let all = wait(timers.list(None, 9)).unwrap();
        let mut states: Vec<_> = all.into_iter().map(|timer| (timer.id, timer.state)).collect();
        states.sort_by(|one, other| one.0.cmp(&other.0));
        states.into_iter().map(|(_, state)| state).collect::<Vec<_>>()
    };
    use TimerState::{Cancelling, Paused, Resting, Running};
    assert_eq!(wait(timers.pause_label(&shop, None, 2)), done(2, Some("b")));
    assert_eq!(states(&timers), [Paused, Paused, Resting, Resting, Resting, Resting]);
    assert_eq!(wait(timers.pause_label(&shop, Some("b"), 9)), done(3, Some("e")));
    assert_eq!(wait(timers.pause_label(&shop, Some("e"), 9)), done(0, None));
    assert_eq!(states(&timers), [Paused, Paused, Paused, Paused, Paused, Resting]);
    assert_eq!(wait(timers.pause_label(&shop, None, 9)), done(5, Some("e")), "it is repeated");
    assert_eq!(wait(timers.resume_label(&shop, None, usize::MAX)), done(5, Some("e")));
    assert_eq!(states(&timers), [Resting; 6]);

    let inside = timers.clone();
    let running = bench.work(1, move |_| {
        assert_eq!(states(&inside)[2], Running);
        assert_eq!(wait(inside.cancel_label(&label("shop"), Some("a"), 3)), done(3, Some("d")));
        assert_eq!(states(&inside), [Resting, Cancelling, Resting, Resting]);
        async { Err("no") }
    });
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Cancelled { .. }));
    assert_eq!(running.stop(), []);
    assert_eq!((of(&timers, "shop"), of(&timers, "eu")), ("a e".into(), "other".into()));
    assert_eq!(wait(timers.dead_len()), Ok(0));
    is_sound(&timers);
}

fn a_timer_that_has_lost_a_label_is_left_alone<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let ids: Vec<String> = (0..8).map(|number| number.to_string()).collect();
    let (shop, other) = (label("shop"), label("other"));
    for round in 0..20 {
        for id in &ids {
            let options = labelled(&["shop"]).existing(Existing::Replace);
            wait(timers.insert(id, "", HOUR, options)).unwrap();
        }
        // The timers lose the label while the call has read their ids, or before or after it.
        let lose = try_join_all(ids.iter().map(|id| {
            let options = labelled(&["other"]).existing(Existing::Update);
            timers.insert(id, "", HOUR, options)
        }));
        let (cancelled, lost) = wait(join(timers.cancel_label(&shop, None, 9), lose));
        lost.unwrap();
        assert_eq!(cancelled.unwrap().unreadable, 0);
        // A timer that was cancelled before was inserted again.
        assert_eq!(wait(timers.len()), Ok(8), "round {round}");
        let lose = try_join_all(ids.iter().map(|id| {
            let options = quick().existing(Existing::Replace);
            timers.insert(id, "", HOUR, options)
        }));
        let (paused, lost) = wait(join(timers.pause_label(&other, None, 9), lose));
        lost.unwrap();
        assert_eq!(paused.unwrap().unreadable, 0);
        let paused = wait(timers.list_state(TimerState::Paused, None, 9)).unwrap();
        assert_eq!(names(&paused), [""; 0], "round {round}");
    }
    is_sound(timers);
}
