//! Sleeps beside tokio's, with many armed, by one thread and by two threads with sleeps of their
//! own. A sleep is created, polled and dropped, or it is reset to a later deadline and polled.
//! tokio's runtime runs its timers on another thread, as our driver does.

use criterion::{Criterion, criterion_group, criterion_main};
use fastrand::Rng;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::runtime::{EnterGuard, Handle};
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon_benches::{Crew, delay, now};

const ARMED: [u32; 2] = [10_000, 1_000_000];

/// A timer of either kind, as used by one thread.
trait Sleeps: Send + Sync {
    type Sleep: Future + Send;

    fn sleep(&self, delay: Duration) -> Self::Sleep;
    /// Resets to `delay` from now.
    fn push_back(sleep: Pin<&mut Self::Sleep>, delay: Duration);
    /// A handle for another thread.
    fn another(&self) -> Self;
    /// A guard that this thread holds while it creates sleeps.
    fn enter(&self) -> Option<EnterGuard<'_>>;
}

impl Sleeps for Timer {
    type Sleep = tourbillon::future::Sleep;

    fn another(&self) -> Self {
        self.clone()
    }

    fn enter(&self) -> Option<EnterGuard<'_>> {
        None
    }

    fn sleep(&self, delay: Duration) -> Self::Sleep {
        self.sleep(delay)
    }

    fn push_back(sleep: Pin<&mut Self::Sleep>, delay: Duration) {
        sleep.get_mut().reset_after(delay);
    }
}

/// tokio's.
struct Tokio(Handle);

impl Sleeps for Tokio {
    type Sleep = tokio::time::Sleep;

    fn another(&self) -> Self {
        Self(self.0.clone())
    }

    fn enter(&self) -> Option<EnterGuard<'_>> {
        Some(self.0.enter())
    }

    fn sleep(&self, delay: Duration) -> Self::Sleep {
        tokio::time::sleep(delay)
    }

    fn push_back(sleep: Pin<&mut Self::Sleep>, delay: Duration) {
        sleep.reset((now() + delay).into());
    }
}

fn poll<F: Future>(sleep: Pin<&mut F>) {
    assert!(sleep.poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// An operation that is timed.
#[derive(Clone, Copy)]
enum Operation {
    Made,
    PushedBack,
    PolledAgain,
}

impl Operation {
    const ALL: [(Self, &str); 3] = [
        (Self::Made, "made, polled and dropped"),
        (Self::PushedBack, "pushed back and polled"),
        (Self::PolledAgain, "polled again"),
    ];
}

/// A thread's timer and its armed sleeps.
struct Armed<S: Sleeps> {
    timer: S,
    sleeps: Vec<Pin<Box<S::Sleep>>>,
    random: Rng,
}

impl<S: Sleeps> Armed<S> {
    fn new(timer: S, armed: u32) -> Self {
        let inside = timer.enter();
        let mut sleeps: Vec<_> = (0..armed).map(|n| Box::pin(timer.sleep(delay(n)))).collect();
        drop(inside);
        sleeps.iter_mut().for_each(|sleep| poll(sleep.as_mut()));
        Self { timer, sleeps, random: Rng::with_seed(7) }
    }

    /// Repeats an operation, on random sleeps if it needs an armed one.
    #[inline]
    fn run(&mut self, operation: Operation, times: u64) {
        let Self { timer, sleeps, random } = self;
        // On this thread's stack, because the stored one shares a line with another thread's.
        let mut random = random.fork();
        let _inside = timer.enter();
        let any = sleeps.len();
        for _ in 0..times {
            match operation {
                Operation::Made => {
                    let mut sleep = std::pin::pin!(timer.sleep(delay(random.u32(..))));
                    poll(sleep.as_mut());
                }
                Operation::PushedBack => {
                    let sleep = &mut sleeps[random.usize(..any)];
                    S::push_back(sleep.as_mut(), Duration::from_secs(90));
                    poll(sleep.as_mut());
                }
                Operation::PolledAgain => poll(sleeps[random.usize(..any)].as_mut()),
            }
        }
    }
}

fn sleeps<S: Sleeps>(criterion: &mut Criterion, name: &str, timer: &S) {
    for (armed, threads) in ARMED.into_iter().flat_map(|armed| [(armed, 1), (armed, 2)]) {
        // Each thread arms its own.
        let mut all = Crew::new(threads as usize, || Armed::new(timer.another(), armed / threads));
        let whose = if threads == 1 { "one thread" } else { "two threads, each its own" };
        let mut group = criterion.benchmark_group(format!("a sleep, {armed} armed, {whose}"));
        for (operation, what) in Operation::ALL {
            group.bench_function(format!("{what}, {name}"), |bencher| {
                bencher.iter_custom(|times| all.run(|armed| armed.run(operation, times)));
            });
        }
    }
}

fn both(criterion: &mut Criterion) {
    let driver = Builder::new().driver();
    sleeps(criterion, "tourbillon", &Timer::spawn(driver).expect("the defaults are in range"));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_time().build().expect("a runtime");
    sleeps(criterion, "tokio", &Tokio(runtime.handle().clone()));
}

criterion_group!(benches, both);
criterion_main!(benches);
