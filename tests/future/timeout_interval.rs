//! Timeouts and intervals, in virtual time.

use crate::common::sandbox::{Sandbox, Task, with_sandboxes};
use crate::common::sleepless::Sleepless;
use std::future::{Pending, Ready, pending, ready};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tourbillon::future::{Interval, MissedTickBehavior, Timeout, TimeoutError, Timer, ZeroPeriod};
use tourbillon::{Builder, Clock, ManualClock, Refusal};

const MS: Duration = Duration::from_millis(1);
const ELAPSED: Result<u32, TimeoutError> = Err(TimeoutError::Elapsed);

/// A future that is ready as soon as it has an answer, and counts its polls.
#[derive(Default)]
struct Reply {
    answer: Option<u32>,
    polls: u32,
    held: Arc<()>,
}

impl Future for Reply {
    type Output = u32;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u32> {
        self.polls += 1;
        self.answer.map_or(Poll::Pending, Poll::Ready)
    }
}

fn is_send_and_sync<T: Send + Sync>(_: &T) {}

#[test]
fn an_answer_in_time_is_passed_on_and_the_time_out_leaves_nothing() {
    with_sandboxes(|mut sandbox| {
        let task = Task::new();
        let mut timeout = sandbox.timer.timeout(sandbox.tick * 100, Reply::default());
        is_send_and_sync(&timeout);
        assert!(task.poll(&mut timeout).is_pending());
        sandbox.advance(sandbox.tick * 99);
        assert!(task.poll(&mut timeout).is_pending());
        assert_eq!((timeout.get_ref().polls, sandbox.armed()), (2, 1));
        timeout.get_mut().answer = Some(7);
        assert_eq!(task.poll(&mut timeout), Poll::Ready(Ok(7)));
        drop(timeout);
        assert_eq!((sandbox.armed(), task.held()), (0, 0));
        assert_eq!((sandbox.advance(sandbox.tick * 100), task.wakes()), (0, 0));
    });
}

#[test]
fn an_answer_that_is_there_at_once_arms_nothing() {
    let sandbox = Sandbox::new();
    let task = Task::new();
    let past = sandbox.clock.start().checked_sub(MS * 1000).unwrap();
    for mut timeout in [
        sandbox.timer.timeout(MS * 100, ready(7)),
        sandbox.timer.timeout(Duration::ZERO, ready(7)),
        sandbox.timer.timeout_at(sandbox.clock.now(), ready(7)),
        sandbox.timer.timeout_at(past, ready(7)),
    ] {
        assert_eq!(task.poll(&mut timeout), Poll::Ready(Ok(7)));
    }
    assert_eq!(sandbox.inserted(), 0);
}

#[test]
fn no_answer_in_time_is_an_error_at_the_deadline_and_not_before() {
    with_sandboxes(|mut sandbox| {
        let (task, tick) = (Task::new(), sandbox.tick);
        let deadline = sandbox.clock.now() + tick * 300;
        let mut timeout = sandbox.timer.timeout_at(deadline, pending::<u32>());
        assert!(task.poll(&mut timeout).is_pending());
        sandbox.advance(tick * 299);
        assert_eq!(task.wakes(), 0);
        assert!(task.poll(&mut timeout).is_pending());
        sandbox.advance(tick);
        assert_eq!((task.wakes(), task.poll(&mut timeout)), (1, Poll::Ready(ELAPSED)));
        assert_eq!(task.poll(&mut timeout), Poll::Ready(ELAPSED), "asked once more");
    });
}

#[test]
fn an_answer_at_the_deadline_wins() {
    let mut sandbox = Sandbox::new();
    let task = Task::new();
    let mut timeout = sandbox.timer.timeout(MS * 100, Reply::default());
    assert!(task.poll(&mut timeout).is_pending());
    timeout.get_mut().answer = Some(7);
    sandbox.advance(MS * 100);
    assert_eq!((task.wakes(), task.poll(&mut timeout)), (1, Poll::Ready(Ok(7))));
}

#[test]
fn with_no_time_the_future_is_polled_once() {
    let sandbox = Sandbox::new();
    let task = Task::new();
    let past = sandbox.clock.start().checked_sub(MS).unwrap();
    for mut timeout in [
        sandbox.timer.timeout(Duration::ZERO, Reply::default()),
        sandbox.timer.timeout_at(past, Reply::default()),
    ] {
        assert_eq!(task.poll(&mut timeout), Poll::Ready(ELAPSED));
        assert_eq!(timeout.get_ref().polls, 1);
    }
    assert_eq!(sandbox.inserted(), 0);
}

#[test]
fn a_time_out_of_all_time_never_ends_it_in_ten_years() {
    let mut sandbox = Sandbox::new();
    let task = Task::new();
    let mut timeout = sandbox.timer.timeout(Duration::MAX, Reply::default());
    assert!(task.poll(&mut timeout).is_pending());
    for _ in 0..10 {
        sandbox.advance(Duration::from_secs(365 * 86_400));
        assert!(task.poll(&mut timeout).is_pending());
    }
    timeout.get_mut().answer = Some(7);
    assert_eq!(task.poll(&mut timeout), Poll::Ready(Ok(7)));
}

#[test]
fn the_future_can_be_taken_out_and_is_dropped_with_the_time_out_otherwise() {
    let mut sandbox = Sandbox::new();
    let (task, held) = (Task::new(), Arc::new(()));
    let reply = || Reply { held: Arc::clone(&held), ..Reply::default() };
    let mut timeout = sandbox.timer.timeout(MS, reply());
    assert!(task.poll(&mut timeout).is_pending());
    let mut taken = timeout.into_inner();
    assert_eq!((sandbox.armed(), sandbox.advance(MS), task.wakes()), (0, 0, 0));
    taken.answer = Some(7);
    assert_eq!(task.poll(&mut taken), Poll::Ready(7));
    assert_eq!(Arc::strong_count(&taken.held), 2);
    drop((taken, sandbox.timer.timeout(MS, reply())));
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn its_sleep_can_be_asked_and_pushed_back() {
    let mut sandbox = Sandbox::new();
    let (task, start) = (Task::new(), sandbox.clock.start());
    let mut timeout = sandbox.timer.timeout(MS * 10, pending::<u32>());
    assert!(task.poll(&mut timeout).is_pending());
    sandbox.advance(MS * 9);
    assert_eq!(Pin::new(&mut timeout).sleep().deadline(), start + MS * 10);
    Pin::new(&mut timeout).sleep().reset_after(MS * 10);
    sandbox.advance(MS * 9);
    assert!(task.poll(&mut timeout).is_pending());
    sandbox.advance(MS);
    assert_eq!((task.wakes(), task.poll(&mut timeout)), (1, Poll::Ready(ELAPSED)));
    Pin::new(&mut timeout).sleep().reset_after(MS);
    assert!(task.poll(&mut timeout).is_pending(), "once more");
}

#[test]
fn of_nested_time_outs_the_shorter_one_ends_it() {
    for (outer, inner) in [(10, 20), (20, 10), (10, 10)] {
        let mut sandbox = Sandbox::new();
        let task = Task::new();
        let nested = sandbox.timer.timeout(MS * inner, pending::<u32>());
        let mut timeout = sandbox.timer.timeout(MS * outer, nested);
        assert!(task.poll(&mut timeout).is_pending());
        sandbox.advance(MS * 10);
        assert_eq!(task.wakes(), 1 + u32::from(outer == inner));
        let expected = if outer < inner { Err(TimeoutError::Elapsed) } else { Ok(ELAPSED) };
        assert_eq!(task.poll(&mut timeout), Poll::Ready(expected));
        drop(timeout);
        assert_eq!(sandbox.armed(), 0);
    }
}

#[test]
fn a_sleep_within_a_time_out_of_the_same_tick_counts() {
    let mut sandbox = Sandbox::new();
    let task = Task::new();
    let mut timeout = sandbox.timer.timeout(MS * 10, sandbox.timer.sleep(MS * 10));
    assert!(task.poll(&mut timeout).is_pending());
    sandbox.advance(MS * 10);
    assert_eq!(task.poll(&mut timeout), Poll::Ready(Ok(Ok(()))));
}

#[test]
fn a_timer_that_is_full_or_shut_down_is_another_error() {
    let sandbox = Sandbox::of(Builder::new().capacity(1));
    let (task, mut place) = (Task::new(), sandbox.timer.sleep(MS));
    assert!(task.poll(&mut place).is_pending());
    let mut timeout = sandbox.timer.timeout(MS, Reply::default());
    let full = TimeoutError::Refused(Refusal::AtCapacity { capacity: 1 });
    assert_eq!(task.refused(&mut timeout), Poll::Ready(Err(full)));
    sandbox.timer.shutdown();
    let mut timeout = sandbox.timer.timeout(MS, Reply::default());
    let closed = TimeoutError::Refused(Refusal::Closed);
    assert_eq!(Task::new().refused(&mut timeout), Poll::Ready(Err(closed)));
    timeout.get_mut().answer = Some(7);
    assert_eq!(task.poll(&mut timeout), Poll::Ready(Ok(7)), "an answer is an answer");
}

#[test]
fn the_errors_say_what_happened_and_become_io_errors() {
    let refused = TimeoutError::Refused(Refusal::Closed);
    assert_eq!(TimeoutError::Elapsed.to_string(), "the timeout has elapsed");
    assert_eq!(refused.to_string(), format!("could not arm the timeout: {}", Refusal::Closed));
    assert_eq!(io::Error::from(TimeoutError::Elapsed).kind(), io::ErrorKind::TimedOut);
    assert_eq!(TimeoutError::Deadline.to_string(), "the deadline of the request has passed");
    assert_eq!(io::Error::from(TimeoutError::Deadline).kind(), io::ErrorKind::TimedOut);
    assert_eq!(io::Error::from(refused).kind(), io::ErrorKind::Other);
    assert_eq!(io::Error::from(refused).to_string(), refused.to_string());
    assert!(ZeroPeriod.to_string().contains("zero"));
}

#[test]
fn time_outs_are_send_if_their_futures_are() {
    fn is_send<T: Send>() {}
    is_send::<Timeout<Ready<u32>>>();
    is_send::<Timeout<Pending<u32>>>();
    is_send::<Interval>();
}

#[test]
fn by_default_an_interval_skips_the_ticks_of_a_suspension_that_its_clock_counts() {
    let missed = |builder: Builder| {
        let (wheel, _sweeper) = builder.build().unwrap();
        Timer::new(wheel).interval(MS).unwrap().missed_tick_behavior()
    };
    let clock = ManualClock::new();
    assert_eq!(missed(Builder::new().clock(clock.clone())), MissedTickBehavior::Burst);
    assert_eq!(missed(Builder::new().clock(Sleepless(clock))), MissedTickBehavior::Skip);
}

/// An interval under test, and its task.
struct Ticking {
    sandbox: Sandbox,
    task: Task,
    interval: Interval,
}

impl Ticking {
    /// Creates an interval of 300 ticks, with the first tick at once.
    fn new(missed: MissedTickBehavior) -> Self {
        Self::on(Sandbox::new(), missed)
    }

    fn on(sandbox: Sandbox, missed: MissedTickBehavior) -> Self {
        let mut interval = sandbox.timer.interval(sandbox.tick * 300).unwrap();
        interval.set_missed_tick_behavior(missed);
        assert_eq!(interval.missed_tick_behavior(), missed);
        Self { sandbox, task: Task::new(), interval }
    }

    /// Lets so many ticks of the wheel pass. Returns when the interval's ticks were due.
    fn after(&mut self, ticks: u32) -> Vec<u128> {
        self.sandbox.advance(self.sandbox.tick * ticks);
        let mut due = Vec::new();
        while let Poll::Ready(tick) = self.interval.poll_tick(&mut self.task.context()) {
            let at = self.sandbox.since_start(tick.unwrap());
            due.push(at.as_nanos() / self.sandbox.tick.as_nanos());
        }
        due
    }
}

#[test]
fn the_first_tick_comes_at_once_and_the_others_at_whole_periods() {
    with_sandboxes(|sandbox| {
        let mut ticking = Ticking::on(sandbox, MissedTickBehavior::Burst);
        assert_eq!(ticking.after(0), [0]);
        for period in 1..50 {
            assert!(ticking.after(299).is_empty());
            assert_eq!((ticking.after(1), ticking.task.wakes()), (vec![300 * period], 1));
        }
    });
}

#[test]
fn a_period_between_two_ticks_of_the_wheel_does_not_drift() {
    with_sandboxes(|mut sandbox| {
        let (task, period) = (Task::new(), sandbox.tick * 5 / 2);
        let mut interval = sandbox.timer.interval(period).unwrap();
        assert_eq!(interval.period(), period);
        for tick in 0..1000 {
            let due = sandbox.clock.start() + period * tick;
            loop {
                if let Poll::Ready(at) = interval.poll_tick(&mut task.context()) {
                    assert_eq!(at, Ok(due));
                    break;
                }
                sandbox.advance(sandbox.tick);
            }
            let now = sandbox.clock.now();
            assert!(due <= now && now < due + sandbox.tick, "early, or late");
        }
    });
}

#[test]
fn missed_ticks_burst_are_put_off_or_left_out() {
    let run = |missed| {
        let mut ticking = Ticking::new(missed);
        assert_eq!((ticking.after(0), ticking.after(300)), (vec![0], vec![300]));
        // At 950, 1150, 1200, 1250, 1500 and 1550.
        [650, 200, 50, 50, 250, 50].map(|step| ticking.after(step))
    };
    let none = Vec::new;
    assert_eq!(
        run(MissedTickBehavior::Burst),
        [vec![600, 900], none(), vec![1200], none(), vec![1500], none()]
    );
    assert_eq!(
        run(MissedTickBehavior::Delay),
        [vec![600], none(), none(), vec![1250], none(), vec![1550]]
    );
    assert_eq!(
        run(MissedTickBehavior::Skip),
        [vec![600], none(), vec![1200], none(), vec![1500], none()]
    );
}

#[test]
fn at_most_so_many_missed_ticks_are_made_up_for() {
    let run = |most| {
        let mut ticking = Ticking::new(MissedTickBehavior::CatchUp(most));
        assert_eq!((ticking.after(0), ticking.after(300)), (vec![0], vec![300]));
        // At 1850, 2050, 2100 and 2950.
        [1550, 200, 50, 850].map(|step| ticking.after(step))
    };
    let none = Vec::new;
    assert_eq!(run(0), [vec![600], none(), vec![2100], vec![2400]]);
    assert_eq!(run(1), [vec![600, 1800], none(), vec![2100], vec![2400, 2700]]);
    assert_eq!(run(2), [vec![600, 1500, 1800], none(), vec![2100], vec![2400, 2700]]);
    let all = [vec![600, 900, 1200, 1500, 1800], none(), vec![2100], vec![2400, 2700]];
    for most in [4, 5, u32::MAX] {
        assert_eq!(run(most), all);
    }
}

#[test]
fn a_tick_that_is_a_little_late_is_not_a_missed_one() {
    for missed in [MissedTickBehavior::Delay, MissedTickBehavior::Skip] {
        let mut ticking = Ticking::new(missed);
        assert_eq!(ticking.after(5), [0]);
        assert_eq!(ticking.after(300), [300]);
        assert_eq!(ticking.after(295), [600]);
    }
}

#[test]
fn an_interval_keeps_the_phase_of_a_start_before_its_timer() {
    let mut sandbox = Sandbox::new();
    let task = Task::new();
    let start = sandbox.clock.start().checked_sub(MS * 30).unwrap();
    let mut interval = sandbox.timer.interval_at(start, MS * 100).unwrap();
    for ticks in 0..3 {
        let tick = interval.poll_tick(&mut task.context());
        assert_eq!(tick, Poll::Ready(Ok(start + MS * 100 * ticks)));
        assert!(interval.poll_tick(&mut task.context()).is_pending());
        sandbox.advance(MS * 100);
    }
}

#[test]
fn an_interval_starts_when_it_is_told_to() {
    let mut sandbox = Sandbox::new();
    let task = Task::new();
    let now = sandbox.clock.start();
    sandbox.advance(MS * 100);
    let mut later = sandbox.timer.interval_at(now + MS * 150, MS * 20).unwrap();
    let mut past = sandbox.timer.interval_at(now + MS * 50, MS * 20).unwrap();
    let ticks = |interval: &mut Interval| {
        let mut due = Vec::new();
        while let Poll::Ready(tick) = interval.poll_tick(&mut task.context()) {
            due.push((tick.unwrap() - now).as_millis());
        }
        due
    };
    assert_eq!((ticks(&mut later), ticks(&mut past)), (vec![], vec![50, 70, 90]));
    sandbox.advance(MS * 50);
    assert_eq!((ticks(&mut later), ticks(&mut past)), (vec![150], vec![110, 130, 150]));
}

#[test]
fn resets_begin_anew_from_now_at_once_after_a_while_or_at_an_instant() {
    type Reset = fn(&mut Ticking);
    // A reset to slightly later causes a wake-up at the old time.
    let cases: [(Reset, u32, u32); 5] = [
        (|ticking| ticking.interval.reset(), 300, 2),
        (|ticking| ticking.interval.reset_immediately(), 0, 1),
        (|ticking| ticking.interval.reset_after(MS * 20), 20, 1),
        (|ticking| ticking.interval.reset_at(ticking.sandbox.clock.now() + MS * 40), 40, 1),
        (|ticking| ticking.interval.reset_at(ticking.sandbox.clock.now() + MS * 1000), 1000, 1),
    ];
    for (reset, delay, wakes) in cases {
        let mut ticking = Ticking::new(MissedTickBehavior::Burst);
        assert_eq!((ticking.after(0), ticking.after(300)), (vec![0], vec![300]));
        assert!(ticking.after(100).is_empty(), "at 400");
        ticking.task.wakes();
        reset(&mut ticking);
        if delay > 0 {
            assert!(ticking.after(delay - 1).is_empty());
        }
        let due = 400 + u128::from(delay);
        assert_eq!((ticking.after(delay.min(1)), ticking.task.wakes()), (vec![due], wakes));
        assert!(ticking.after(299).is_empty());
        assert_eq!(ticking.after(1), [due + 300]);
    }
}

#[test]
fn a_reset_between_a_tick_and_the_next_poll_is_obeyed() {
    let mut ticking = Ticking::new(MissedTickBehavior::Burst);
    let context = &mut ticking.task.context();
    assert!(ticking.interval.poll_tick(context).is_ready());
    // Nothing is armed between the tick and the poll that follows it.
    assert_eq!((ticking.sandbox.armed(), ticking.task.held()), (0, 0));
    ticking.interval.reset_immediately();
    assert_eq!(ticking.after(0), [0]);
    // And after the wake-up, before the poll.
    ticking.sandbox.advance(MS * 300);
    assert_eq!(ticking.task.wakes(), 1);
    ticking.interval.reset();
    assert!(ticking.after(299).is_empty());
    assert_eq!(ticking.after(1), [600]);
}

#[test]
fn a_period_of_no_time_is_refused() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.timer.interval(Duration::ZERO).err(), Some(ZeroPeriod));
    let refused = sandbox.timer.interval_at(sandbox.clock.now(), Duration::ZERO);
    assert_eq!(refused.err(), Some(ZeroPeriod));
    assert!(sandbox.timer.interval(Duration::from_nanos(1)).is_ok());
}

#[test]
fn the_longest_period_ticks_once() {
    use MissedTickBehavior::{Burst, CatchUp, Delay, Skip};
    for missed in [Burst, Delay, Skip, CatchUp(2), CatchUp(u32::MAX)] {
        for period in
            [Duration::MAX, Duration::from_secs(u64::MAX / 4), Duration::from_secs(1 << 40)]
        {
            let mut sandbox = Sandbox::new();
            let (task, start) = (Task::new(), sandbox.clock.start());
            let mut interval = sandbox.timer.interval(period).unwrap();
            interval.set_missed_tick_behavior(missed);
            sandbox.advance(MS * 100);
            let context = &mut task.context();
            assert_eq!(interval.poll_tick(context), Poll::Ready(Ok(start)));
            assert!(interval.poll_tick(context).is_pending());
            sandbox.advance(Duration::from_secs(100 * 365 * 86_400));
            assert!(interval.poll_tick(context).is_pending());
        }
    }
}

#[test]
fn a_tick_that_is_dropped_is_not_lost() {
    let mut ticking = Ticking::new(MissedTickBehavior::Burst);
    let Ticking { sandbox, task, interval } = &mut ticking;
    let start = sandbox.clock.start();
    assert!(pin!(interval.tick()).poll(&mut task.context()).is_ready());
    for dropped_after in [0, 100, 200] {
        assert!(pin!(interval.tick()).poll(&mut task.context()).is_pending(), "{dropped_after}");
        sandbox.advance(MS * 100);
    }
    // The task was woken, and the future that was to return the tick was dropped. The next one
    // returns it.
    drop(interval.tick());
    let context = &mut task.context();
    assert_eq!(pin!(interval.tick()).poll(context), Poll::Ready(Ok(start + MS * 300)));
    assert!(pin!(interval.tick()).poll(context).is_pending());
    assert_eq!(task.wakes(), 1);
}

#[test]
fn an_interval_ends_with_its_timer() {
    let mut ticking = Ticking::new(MissedTickBehavior::Burst);
    assert_eq!(ticking.after(0), [0]);
    ticking.sandbox.timer.shutdown();
    assert_eq!(ticking.task.wakes(), 1);
    let Ticking { task, interval, .. } = &mut ticking;
    let closed = Poll::Ready(Err(Refusal::Closed));
    assert_eq!(interval.poll_tick(&mut task.context()), closed, "it has waited");
    // A loop that ignores the error does not spin.
    for _ in 0..3 {
        assert!(pin!(interval.tick()).poll(&mut task.context()).is_pending());
        assert_eq!(task.wakes(), 0);
    }
}

#[test]
fn a_tick_that_was_refused_is_still_to_come() {
    let mut sandbox = Sandbox::of(Builder::new().capacity(1));
    let task = Task::new();
    let mut interval = sandbox.timer.interval(MS * 5).unwrap();
    assert!(interval.poll_tick(&mut task.context()).is_ready());
    let mut other = sandbox.timer.sleep(MS * 30);
    assert!(task.poll(&mut other).is_pending());
    let refused = task.refused(&mut pin!(interval.tick()));
    assert_eq!(refused, Poll::Ready(Err(Refusal::AtCapacity { capacity: 1 })));
    // A loop that ignores the error does not spin, though there is still no place.
    for _ in 0..3 {
        assert!(interval.poll_tick(&mut task.context()).is_pending());
        assert_eq!((task.wakes(), sandbox.armed()), (0, 2));
        sandbox.advance(MS * 5);
        assert_eq!(task.wakes(), 1);
        assert!(matches!(interval.poll_tick(&mut task.context()), Poll::Ready(Ok(_))));
    }
}

#[test]
fn ticks_coarser_than_the_period_are_skipped() {
    let mut sandbox = Sandbox::of(Builder::new().resolution(Duration::from_secs(1)));
    let task = Task::new();
    let mut interval = sandbox.timer.interval(MS * 100).unwrap();
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    assert!(interval.poll_tick(&mut task.context()).is_ready());
    assert!(interval.poll_tick(&mut task.context()).is_pending());
    sandbox.advance(Duration::from_secs(1));
    assert!(interval.poll_tick(&mut task.context()).is_ready());
    assert!(interval.poll_tick(&mut task.context()).is_pending(), "the others were missed");
}
