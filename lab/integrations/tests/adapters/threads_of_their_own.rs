//! Timers without a thread, on tokio's runtime of one thread in real and in paused time, and on
//! monoio.

use std::future::pending;
use std::rc::Rc;
use std::time::Duration;
use tourbillon::future::{Sleep, TimeoutError, Timer, drive, undriven};
use tourbillon::scheduler::Scheduler;
use tourbillon::tokio::{RuntimeClock, spawn};
use tourbillon::{Builder, Refusal};
use tourbillon_cache::Cache;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

fn on_tokio(paused: bool) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(paused).build().unwrap()
}

/// Uses sleeps, a timeout and ticks in a future that is not `Send`.
async fn uses(timer: Timer, unit: Duration) {
    let kept = Rc::new(());
    let start = timer.now();
    timer.sleep(unit).await.unwrap();
    let silent = timer.timeout(unit, pending::<()>()).await;
    assert_eq!(silent, Err(TimeoutError::Elapsed));
    let mut ticks = timer.interval(unit).unwrap();
    for _ in 0..3 {
        ticks.tick().await.unwrap();
    }
    assert!(timer.now() - start >= unit * 4);
    drop(kept);
}

#[test]
fn tokios_paused_clock_is_followed() {
    on_tokio(true).block_on(async {
        let (timer, sweeping) = spawn(Builder::new()).unwrap();
        let start = tokio::time::Instant::now();
        uses(timer.share(), HOUR).await;
        let past = start.elapsed();
        assert!(past >= HOUR * 4 && past < HOUR * 4 + MS * 20, "{past:?}");

        // Beside tokio's own sleeps, in the order of their deadlines.
        let (ours, theirs) = (timer.sleep(HOUR * 2), tokio::time::sleep(HOUR));
        tokio::pin!(ours, theirs);
        tokio::select! {
            _ = &mut ours => panic!("the later one"),
            () = &mut theirs => {}
        }
        ours.await.unwrap();
        timer.shutdown();
        sweeping.await.unwrap();
    });
}

#[test]
fn a_current_thread_runtime_needs_no_other() {
    on_tokio(false).block_on(async {
        let (timer, driving) = drive(Builder::new(), tokio::time::sleep).unwrap();
        let local = tokio::task::LocalSet::new();
        let sweeping = local.spawn_local(driving);
        local.run_until(uses(timer.share(), MS * 2)).await;
        // From another thread, too.
        let other = timer.clone();
        let elsewhere = tokio::task::spawn_blocking(move || pollster::block_on(other.sleep(MS)));
        assert_eq!(local.run_until(elsewhere).await.unwrap(), Ok(()));
        let mut late = timer.sleep(HOUR);
        timer.shutdown();
        local.run_until(sweeping).await.unwrap();
        assert_eq!((&mut late).await, Err(Refusal::Closed));
    });
}

fn made_in(runtime: &tokio::runtime::Runtime, timer: &Timer) -> Sleep {
    let _entered = runtime.enter();
    timer.sleep(HOUR)
}

/// Timers count from the paused clock, and not from the system's.
#[test]
#[allow(clippy::disallowed_methods, reason = "the test is about other threads")]
fn sleeps_made_outside_of_the_runtime_are_not_early() {
    on_tokio(true).block_on(async {
        let (timer, _sweeping) = spawn(Builder::new()).unwrap();
        tokio::time::advance(HOUR * 24).await;
        let makes: [fn(Timer) -> Sleep; 3] = [
            |timer| timer.sleep(HOUR),
            |timer| made_in(&on_tokio(false), &timer),
            |timer| made_in(&on_tokio(true), &timer),
        ];
        for make in makes {
            let (elsewhere, start) = (timer.clone(), tokio::time::Instant::now());
            let sleep = std::thread::spawn(move || make(elsewhere)).join().unwrap();
            sleep.await.unwrap();
            let past = start.elapsed();
            assert!(past >= HOUR && past < HOUR + MS * 20, "{past:?}");
        }
    });
}

#[test]
fn monoio_drives_one_by_its_own_sleeps() {
    let mut runtime =
        monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().enable_timer().build().unwrap();
    runtime.block_on(async {
        let (timer, driving) = drive(Builder::new(), monoio::time::sleep).unwrap();
        let sweeping = monoio::spawn(driving);
        uses(timer.share(), MS * 2).await;
        drop(timer);
        sweeping.await;
    });
}

/// A scheduler and a cache without a thread, by the paused clock.
#[test]
fn other_wheels_follow_tokios_paused_clock() {
    on_tokio(true).block_on(async {
        let (wheel, undriven_tasks) =
            undriven(Builder::new().clock(RuntimeClock::current())).unwrap();
        let scheduler = Scheduler::new(wheel);
        let fires = scheduler.clone();
        let sweeping = undriven_tasks.drive_by(tokio::time::sleep, move |timer| fires.fire(timer));
        let sweeping = tokio::spawn(sweeping);

        let (wheel, undriven_cache) =
            undriven(Builder::new().clock(RuntimeClock::current())).unwrap();
        let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
        let listener = move |gone: tourbillon_cache::Evicted<_, _>| told.send(gone.key).unwrap();
        let cache = Cache::builder(HOUR).listener(listener).build(wheel).unwrap();
        let fires = cache.clone();
        tokio::spawn(undriven_cache.drive_by(tokio::time::sleep, move |timer| fires.fire(timer)));

        let start = tokio::time::Instant::now();
        let answer = scheduler.after(HOUR * 3, || 42).unwrap();
        cache.insert(7, "seven").unwrap();
        assert_eq!(hears.recv().await, Some(7));
        assert!(start.elapsed() >= HOUR && start.elapsed() < HOUR + MS * 20);
        assert_eq!(answer.await.unwrap(), 42);
        assert!(start.elapsed() >= HOUR * 3 && start.elapsed() < HOUR * 3 + MS * 20);
        drop(scheduler.shutdown());
        sweeping.await.unwrap();
    });
}
