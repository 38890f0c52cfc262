// The script of `same_as_tokio`, whose `time` is tokio's or this crate's.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use time::MissedTickBehavior::{Burst, Delay, Skip};

fn micros(micros: u64) -> time::Duration {
    time::Duration::from_micros(micros)
}

/// A future that some steps poll.
enum Polled {
    Sleep(Pin<Box<time::Sleep>>),
    Timeout(Pin<Box<time::Timeout<time::Sleep>>>),
}

impl Polled {
    fn sleep(sleep: time::Sleep) -> Self {
        Self::Sleep(Box::pin(sleep))
    }

    fn timeout(after: u64, ready_after: u64) -> Self {
        Self::Timeout(Box::pin(time::timeout(micros(after), time::sleep(micros(ready_after)))))
    }

    fn poll(&mut self) -> String {
        let mut context = Context::from_waker(Waker::noop());
        match self {
            Self::Sleep(sleep) => format!("{:?}", sleep.as_mut().poll(&mut context)),
            Self::Timeout(timeout) => {
                let done = timeout.as_mut().poll(&mut context);
                format!("{:?}", done.map(|done| done.is_ok()))
            }
        }
    }

    fn reset(&mut self, deadline: time::Instant) {
        if let Self::Sleep(sleep) = self {
            sleep.as_mut().reset(deadline);
        }
    }

    fn is_elapsed(&self, start: time::Instant) -> String {
        match self {
            Self::Sleep(sleep) => format!("{} {:?}", sleep.is_elapsed(), sleep.deadline() - start),
            Self::Timeout(_) => String::new(),
        }
    }
}

fn reset(interval: &mut time::Interval, how: usize, by: u64) {
    match how {
        0 => interval.reset(),
        1 => interval.reset_immediately(),
        2 => interval.reset_after(micros(by)),
        _ => interval.reset_at(time::Instant::now() + micros(by)),
    }
}

fn poll_tick(interval: &mut time::Interval, start: time::Instant) -> String {
    let tick = interval.poll_tick(&mut Context::from_waker(Waker::noop()));
    format!("{:?}", tick.map(|tick| tick.saturating_duration_since(start)))
}

fn at(which: usize, polled: &mut [Polled]) -> Option<&mut Polled> {
    let count = polled.len().max(1);
    polled.get_mut(which % count)
}

/// Returns what the steps have returned. Instants are counted from the start.
pub(super) async fn run(steps: &[super::Step]) -> Vec<String> {
    use super::Step;
    let start = time::Instant::now();
    let (mut log, mut polled): (Vec<String>, Vec<Polled>) = (Vec::new(), Vec::new());
    let mut interval = time::interval(micros(3_000));
    for step in steps {
        let now = time::Instant::now();
        match *step {
            Step::Advance { by } => time::advance(micros(by)).await,
            Step::Sleep { after } => polled.push(Polled::sleep(time::sleep(micros(after)))),
            Step::SleepUntil { ago } => {
                polled.push(Polled::sleep(time::sleep_until(now - micros(ago))));
            }
            Step::Timeout { after, ready_after } => {
                polled.push(Polled::timeout(after, ready_after));
            }
            Step::Poll { which } => log.extend(at(which, &mut polled).map(Polled::poll)),
            Step::IsElapsed { which } => {
                log.extend(at(which, &mut polled).map(|one| one.is_elapsed(start)));
            }
            Step::Reset { which, after } => {
                let _done = at(which, &mut polled).map(|one| one.reset(now + micros(after)));
            }
            Step::Drop { which } if polled.is_empty() => log.push(format!("none of {which}")),
            Step::Drop { which } => {
                let which = which % polled.len();
                drop(polled.swap_remove(which));
            }
            Step::Interval { in_time, period, missed } => {
                interval = time::interval_at(now + micros(in_time), micros(period));
                interval.set_missed_tick_behavior([Burst, Delay, Skip][missed]);
            }
            Step::Tick => log.push(poll_tick(&mut interval, start)),
            Step::ResetInterval { how, by } => reset(&mut interval, how, by),
            Step::Await { after } => {
                let limited = pin!(time::timeout(micros(after), interval.tick()));
                log.push(format!("{:?}", limited.await.map(|tick| tick - start).is_ok()));
                log.push(format!("{:?}", start.elapsed()));
            }
        }
    }
    log
}
