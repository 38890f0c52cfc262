//! Sleeps beside tokio's: one that is made, polled and dropped, and one that is pushed back and
//! polled, with many armed. tokio's runtime runs its timers on another thread, as our driver does.

use criterion::{Criterion, criterion_group, criterion_main};
use fastrand::Rng;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon_benches::{delay, now};

const ARMED: [u32; 2] = [10_000, 1_000_000];

/// A timer of either kind.
trait Sleeps {
    type Sleep: Future;

    fn sleep(&self, delay: Duration) -> Self::Sleep;
    /// Pushes back to `delay` from now.
    fn push_back(sleep: Pin<&mut Self::Sleep>, delay: Duration);
}

impl Sleeps for Timer {
    type Sleep = tourbillon::future::Sleep;

    fn sleep(&self, delay: Duration) -> Self::Sleep {
        self.sleep(delay)
    }

    fn push_back(sleep: Pin<&mut Self::Sleep>, delay: Duration) {
        sleep.get_mut().reset_after(delay);
    }
}

/// tokio's, in the context of a runtime.
struct Tokio;

impl Sleeps for Tokio {
    type Sleep = tokio::time::Sleep;

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

fn sleeps<S: Sleeps>(criterion: &mut Criterion, name: &str, timer: &S) {
    for armed in ARMED {
        let mut sleeps: Vec<_> = (0..armed).map(|n| Box::pin(timer.sleep(delay(n)))).collect();
        sleeps.iter_mut().for_each(|sleep| poll(sleep.as_mut()));
        let mut random = Rng::with_seed(7);
        let mut group = criterion.benchmark_group(format!("a sleep, {armed} armed"));
        group.bench_function(format!("made, polled and dropped, {name}"), |bencher| {
            bencher.iter(|| {
                let mut sleep = std::pin::pin!(timer.sleep(delay(random.u32(..))));
                poll(sleep.as_mut());
            });
        });
        group.bench_function(format!("pushed back and polled, {name}"), |bencher| {
            bencher.iter(|| {
                let sleep = &mut sleeps[random.usize(..armed as usize)];
                S::push_back(sleep.as_mut(), Duration::from_secs(90));
                poll(sleep.as_mut());
            });
        });
        group.bench_function(format!("polled again, {name}"), |bencher| {
            bencher.iter(|| poll(sleeps[random.usize(..armed as usize)].as_mut()));
        });
    }
}

fn both(criterion: &mut Criterion) {
    let driver = Builder::new().driver();
    sleeps(criterion, "tourbillon", &Timer::spawn(driver).expect("the defaults are in range"));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_time().build().expect("a runtime");
    let _context = runtime.enter();
    sleeps(criterion, "tokio", &Tokio);
}

criterion_group!(benches, both);
criterion_main!(benches);
