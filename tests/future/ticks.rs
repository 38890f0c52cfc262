//! Ticks at the times of a rule, in virtual time.

use crate::common::sandbox::{Sandbox, Task, with_sandboxes};
use std::sync::mpsc::{Sender, channel};
use std::task::Poll;
use std::time::{Duration, Instant};
use tourbillon::Refusal;
use tourbillon::future::Ticks;
use tourbillon::scheduler::{LastRun, Next, Rule};

/// A rule that returns the given answers, and records what it was asked with.
struct Told<I> {
    says: I,
    asked: Sender<LastRun>,
}

impl<I: Iterator<Item = Next> + Send + 'static> Rule for Told<I> {
    fn next(&mut self, last: &LastRun) -> Next {
        let _ = self.asked.send(*last);
        self.says.next().unwrap_or(Next::End)
    }
}

fn poll<R: Rule>(task: &Task, ticks: &mut Ticks<R>) -> Poll<Option<Result<Instant, Refusal>>> {
    ticks.poll_tick(&mut task.context())
}

#[test]
fn ticks_come_when_the_rule_says_and_end_with_it() {
    with_sandboxes(|mut sandbox| {
        let (tick, start, task) = (sandbox.tick, sandbox.clock.start(), Task::new());
        let (asked, asks) = channel();
        let says = [Next::At(start + tick * 100), Next::After(tick * 50)].into_iter();
        let mut ticks = sandbox.timer.ticks(Told { says, asked });
        assert!(asks.try_recv().is_err(), "asked when a tick is awaited");
        assert!(poll(&task, &mut ticks).is_pending());
        assert_eq!(asks.try_recv().map(|last| last.runs), Ok(0));
        sandbox.advance(tick * 99);
        assert!(poll(&task, &mut ticks).is_pending());
        sandbox.advance(tick);
        assert_eq!(poll(&task, &mut ticks), Poll::Ready(Some(Ok(start + tick * 100))));
        assert!(asks.try_recv().is_err());

        // The work of the task between two ticks is the run that the rule is told of.
        sandbox.advance(tick * 20);
        assert!(poll(&task, &mut ticks).is_pending());
        let last = asks.try_recv().unwrap();
        assert_eq!((last.runs, last.due), (1, start + tick * 100));
        assert_eq!((last.began, last.ended), (start + tick * 100, start + tick * 120));
        sandbox.advance(tick * 52);
        let Poll::Ready(Some(Ok(due))) = poll(&task, &mut ticks) else { panic!("a delay passed") };
        assert!(due >= start + tick * 170 && due <= start + tick * 172);
        assert_eq!(poll(&task, &mut ticks), Poll::Ready(None));
        assert_eq!(poll(&task, &mut ticks), Poll::Ready(None));
        assert_eq!((asks.try_iter().count(), sandbox.armed()), (1, 0));
    });
}

#[test]
fn a_question_to_the_rule_is_no_tick() {
    with_sandboxes(|mut sandbox| {
        let (tick, start, task) = (sandbox.tick, sandbox.clock.start(), Task::new());
        let (asked, asks) = channel();
        let looks = [Next::AskAfter(tick * 30), Next::AskAfter(tick * 30)];
        let says = looks.into_iter().chain([Next::At(start + tick * 200)]);
        let mut ticks = sandbox.timer.ticks(Told { says, asked });
        for _ in 0..80 {
            assert!(poll(&task, &mut ticks).is_pending());
            sandbox.advance(tick);
        }
        let runs: Vec<u64> = asks.try_iter().map(|last| last.runs).collect();
        assert_eq!(runs, [0, 0, 0]);
        sandbox.advance(tick * 120);
        assert_eq!(poll(&task, &mut ticks), Poll::Ready(Some(Ok(start + tick * 200))));
    });
}

#[test]
fn a_tick_that_comes_late_is_told_to_the_rule() {
    let mut sandbox = Sandbox::new();
    let (start, task) = (sandbox.clock.start(), Task::new());
    let (asked, asks) = channel();
    let says = [Next::At(start + sandbox.tick * 100), Next::End].into_iter();
    let mut ticks = sandbox.timer.ticks(Told { says, asked });
    assert!(poll(&task, &mut ticks).is_pending());
    sandbox.advance(sandbox.tick * 130);
    assert!(poll(&task, &mut ticks).is_ready());
    assert_eq!(poll(&task, &mut ticks), Poll::Ready(None));
    let last = asks.try_iter().last().unwrap();
    assert!(last.late >= sandbox.tick * 28 && last.late <= sandbox.tick * 30, "{last:?}");
}

#[test]
fn a_rule_that_wants_to_be_asked_at_once_holds_no_task() {
    let sandbox = Sandbox::new();
    let task = Task::new();
    let (asked, asks) = channel();
    let says = std::iter::repeat(Next::AskAfter(Duration::ZERO));
    let mut ticks = sandbox.timer.ticks(Told { says, asked });
    for _ in 0..3 {
        assert!(poll(&task, &mut ticks).is_pending());
        assert!(asks.try_iter().count() <= 65);
        assert!(task.wakes() > 0);
    }
}

#[test]
fn jitter_puts_ticks_off_and_does_not_add_up() {
    let mut sandbox = Sandbox::new();
    let (tick, start, task) = (sandbox.tick, sandbox.clock.start(), Task::new());
    let rule = move |last: Instant| Some(last + tick * 100);
    let mut ticks = sandbox.timer.ticks(rule).jitter(tick * 40);
    let mut late = Vec::new();
    for number in 1..=50 {
        let wanted = start + tick * 100 * number;
        let due = loop {
            match poll(&task, &mut ticks) {
                Poll::Ready(due) => break due,
                Poll::Pending => sandbox.advance(tick),
            };
        };
        assert_eq!(due, Some(Ok(wanted)), "as the rule has it");
        let off = sandbox.clock.elapsed().saturating_sub(wanted - start);
        assert!(off <= tick * 42, "{off:?}");
        late.push(off);
    }
    assert!(late.iter().any(|off| *off < tick * 10) && late.iter().any(|off| *off > tick * 30));
}

#[test]
fn a_timer_that_was_shut_down_says_so() {
    let sandbox = Sandbox::new();
    let task = Task::new();
    let mut ticks = sandbox.timer.ticks(|last: Instant| Some(last + Duration::from_secs(1)));
    sandbox.timer.wheel().close();
    let polled = match poll(&task, &mut ticks) {
        Poll::Pending => poll(&task, &mut ticks), // others had their turn
        polled => polled,
    };
    assert_eq!(polled, Poll::Ready(Some(Err(Refusal::Closed))));
    assert!(!matches!(poll(&task, &mut ticks), Poll::Ready(None)), "the tick is still to come");
}

#[cfg(feature = "cron")]
#[test]
fn a_calendar_ticks_at_its_times_and_says_which_is_next() {
    use std::time::SystemTime;
    use tourbillon::scheduler::Calendar;

    let mut sandbox = Sandbox::new();
    let (hour, task) = (Duration::from_secs(3600), Task::new());
    let (midnight, clock) = (SystemTime::UNIX_EPOCH + hour * 24 * 20_000, sandbox.clock.clone());
    clock.set_wall(midnight);
    let hourly = Calendar::builder("0 * * * *").wall_clock(clock.clone()).build().unwrap();
    let mut ticks = sandbox.timer.ticks(hourly);
    assert_eq!(ticks.next_time(), None, "it has not been asked");
    for number in 1..=5 {
        while poll(&task, &mut ticks).is_pending() {
            assert_eq!(ticks.next_time(), Some(midnight + hour * number));
            sandbox.advance(Duration::from_secs(20));
        }
        let late = clock.wall().duration_since(midnight + hour * number).unwrap();
        assert!(late <= Duration::from_secs(20), "{late:?}");
    }
}
