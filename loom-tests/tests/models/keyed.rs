//! Keyed timers. An operation on a key runs against the sweep that ends its timer, and against
//! another operation. Each value comes out once, from the firing, from an operation, or from the
//! stop.

use loom_tests::explorer::thread::{self, JoinHandle};
use loom_tests::keyed::{Fired, KeyedTimer, KeyedTimers};
use loom_tests::{Builder, ManualClock, Sweeper, TICK, Value, model, tiny, v};

type Timers = KeyedTimers<u8, Value>;

/// The key that all threads use.
const KEY: u8 = 5;

/// Keyed timers of one shard, their sweeper and their clock.
struct Keyed {
    timers: Timers,
    sweeper: Sweeper<KeyedTimer<u8>>,
    clock: ManualClock,
}

impl Keyed {
    fn new() -> Self {
        let clock = ManualClock::new();
        let (wheel, sweeper) = tiny(Builder::new(), &clock).build().unwrap();
        Self { timers: KeyedTimers::new(wheel), sweeper, clock }
    }

    /// Sweeps and returns the values that fire.
    fn sweep(&mut self) -> Vec<u64> {
        let (timers, mut fired) = (&self.timers, Vec::new());
        let _ = self.sweeper.sweep(|timer| fired.extend(timers.fire(timer).map(number)));
        fired
    }

    /// Advances the time and returns the values that fire.
    fn sweep_after(&mut self, ticks: u32) -> Vec<u64> {
        self.clock.advance(TICK * ticks);
        self.sweep()
    }

    /// Runs `run` on another thread of the model.
    fn beside<R: Send + 'static>(
        &self,
        run: impl FnOnce(&Timers) -> R + Send + 'static,
    ) -> JoinHandle<R> {
        let timers = self.timers.clone();
        thread::spawn(move || run(&timers))
    }
}

fn number((_, value): (u8, Value)) -> u64 {
    value.into()
}

/// Sets the key and returns the value that it replaced.
fn set(timers: &Timers, value: u64, ticks: u32) -> Option<u64> {
    timers.insert(KEY, v(value), TICK * ticks).unwrap().map(u64::from)
}

/// The old value fires or is returned. The new one fires at its own deadline.
#[test]
fn set_against_the_firing() {
    model(3, || {
        let mut keyed = Keyed::new();
        assert_eq!(set(&keyed.timers, 1, 1), None);
        keyed.clock.advance(TICK);
        let setter = keyed.beside(|timers| set(timers, 2, 1));
        let mut out = keyed.sweep();
        out.extend(setter.join().unwrap());
        assert_eq!(out, [1]);
        assert_eq!(keyed.sweep_after(1), [2]);
        assert!(keyed.timers.is_empty() && keyed.timers.wheel().is_empty());
    });
}

/// A key that was moved fires at its new deadline. Otherwise it has fired at the old one.
#[test]
fn move_against_the_firing() {
    model(3, || {
        let mut keyed = Keyed::new();
        set(&keyed.timers, 1, 1);
        keyed.clock.advance(TICK);
        let mover = keyed.beside(|timers| timers.reset(&KEY, TICK).unwrap());
        let fired = keyed.sweep();
        let moved = mover.join().unwrap();
        assert_eq!(fired.len(), usize::from(!moved));
        assert_eq!(keyed.sweep_after(1).len(), usize::from(moved));
        assert!(keyed.timers.is_empty() && keyed.timers.wheel().is_empty());
    });
}

#[test]
fn remove_and_set_against_the_firing() {
    model(3, || {
        let mut keyed = Keyed::new();
        set(&keyed.timers, 1, 1);
        keyed.clock.advance(TICK);
        let remover = keyed.beside(|timers| {
            let removed = timers.cancel(&KEY).map(u64::from);
            assert_eq!(set(timers, 2, 1), None);
            removed
        });
        let mut out = keyed.sweep();
        out.extend(remover.join().unwrap());
        assert_eq!(out, [1]);
        assert_eq!(keyed.sweep_after(1), [2]);
    });
}

/// Sweeps, and arms each key that fires again with the next value. Returns the values that fire.
fn sweep_and_rearm(keyed: &mut Keyed) -> Vec<u64> {
    let (timers, mut fired) = (&keyed.timers, Vec::new());
    let _ = keyed.sweeper.sweep(|timer| {
        if let Some(Fired { value, token, .. }) = timers.fire_with_token(timer) {
            let number = u64::from(value);
            let _ = token.rearm(v(number + 1), TICK);
            fired.push(number);
        }
    });
    fired
}

/// A key that arms itself again is not armed after a cancel, in either order.
#[test]
fn cancel_against_a_key_that_arms_itself_again() {
    model(3, || {
        let mut keyed = Keyed::new();
        set(&keyed.timers, 1, 1);
        keyed.clock.advance(TICK);
        let canceller = keyed.beside(|timers| timers.cancel(&KEY).map(u64::from));
        let fired = sweep_and_rearm(&mut keyed);
        let out = canceller.join().unwrap();
        match fired[..] {
            [] => assert_eq!(out, Some(1)),
            _ => assert!(fired == [1] && matches!(out, None | Some(2)), "{fired:?} {out:?}"),
        }
        assert!(keyed.timers.is_empty());
        assert_eq!(keyed.sweep_after(2), []);
        assert!(keyed.timers.wheel().is_empty());
    });
}

/// An insert that races with a key that arms itself again has its value armed at the end.
#[test]
fn set_against_a_key_that_arms_itself_again() {
    model(3, || {
        let mut keyed = Keyed::new();
        set(&keyed.timers, 1, 1);
        keyed.clock.advance(TICK);
        let setter = keyed.beside(|timers| set(timers, 5, 1));
        let fired = sweep_and_rearm(&mut keyed);
        let out = setter.join().unwrap();
        match fired[..] {
            [] => assert_eq!(out, Some(1)),
            _ => assert!(fired == [1] && matches!(out, None | Some(2)), "{fired:?} {out:?}"),
        }
        assert_eq!(keyed.timers.len(), 1);
        assert_eq!(keyed.sweep_after(1), [5]);
        assert!(keyed.timers.is_empty() && keyed.timers.wheel().is_empty());
    });
}

/// The timer is due at once, so the firing may overtake the set that armed it.
#[test]
fn the_firing_against_its_own_set() {
    model(3, || {
        let mut keyed = Keyed::new();
        let setter = keyed.beside(|timers| set(timers, 1, 0));
        let mut fired = keyed.sweep();
        assert_eq!(setter.join().unwrap(), None);
        fired.extend(keyed.sweep());
        assert_eq!(fired, [1]);
        assert!(keyed.timers.is_empty());
    });
}

/// A value that is accepted while the timers are being stopped is handed back. Otherwise it is
/// refused.
#[test]
fn stop_against_a_set() {
    model(3, || {
        let keyed = Keyed::new();
        let setter = keyed.beside(|timers| timers.insert(KEY, v(1), TICK).is_ok());
        let stopped = keyed.timers.shutdown();
        assert_eq!(stopped.len(), usize::from(setter.join().unwrap()));
        assert!(keyed.timers.is_empty() && keyed.timers.wheel().is_empty());
    });
}

/// Larger models, under shuttle only, because loom does not model the locks and condition variables
/// of a drain.
#[cfg(shuttle)]
mod shuttled {
    use super::*;
    use loom_tests::explorer::sync::Mutex;
    use loom_tests::{Executor, ExecutorJob, Inline, random};
    use std::sync::Arc;

    const SCHEDULES: usize = 20_000;

    /// The values that came out.
    #[derive(Clone, Default)]
    struct Out(Arc<Mutex<Vec<u64>>>);

    impl Out {
        fn add(&self, values: impl IntoIterator<Item = Value>) {
            self.0.lock().unwrap().extend(values.into_iter().map(u64::from));
        }

        fn sorted(&self) -> Vec<u64> {
            let mut values = self.0.lock().unwrap().clone();
            values.sort_unstable();
            values
        }
    }

    /// Runs three callers on one key beside the sweeper.
    #[test]
    fn all_verbs_on_one_key() {
        random(SCHEDULES, || {
            let mut keyed = Keyed::new();
            let out = Out::default();
            let callers = [0, 1, 2].map(|caller| {
                let out = out.clone();
                keyed.beside(move |timers| {
                    for round in 0..2 {
                        out.add(timers.insert(KEY, v(caller * 10 + round), TICK).unwrap());
                        match caller {
                            0 => drop(timers.reset(&KEY, TICK * 2).unwrap()),
                            1 => out.add(timers.cancel(&KEY)),
                            _ => drop(timers.deadline(&KEY)),
                        }
                    }
                })
            });
            let (timers, noted) = (keyed.timers.clone(), out.clone());
            for _ in 0..3 {
                keyed.clock.advance(TICK);
                let _ = keyed.sweeper.sweep(|timer| {
                    noted.add(timers.fire(timer).map(|(_, value)| value));
                });
            }
            callers.into_iter().for_each(|caller| caller.join().unwrap());
            out.add(keyed.timers.shutdown().into_iter().map(|unfired| unfired.value));
            assert_eq!(out.sorted(), [0, 1, 10, 11, 20, 21]);
            assert!(keyed.sweep_after(9).is_empty() && keyed.timers.wheel().is_empty());
        });
    }

    /// Runs a drain and a stop beside a driver that fires. A thread that waits forever is a
    /// deadlock.
    fn drained_and_stopped(executor: impl Executor + Copy) {
        random(SCHEDULES, move || {
            let clock = ManualClock::new();
            let (out, fired, drained) = (Out::default(), Out::default(), Out::default());
            let builder = tiny(Builder::new(), &clock).driver().executor(executor).batch(1);
            let noted = fired.clone();
            let timers =
                KeyedTimers::spawn(builder, move |_: u8, value| noted.add([value])).unwrap();
            for key in 1..=3 {
                out.add(timers.insert(key, v(key.into()), TICK * u32::from(key)).unwrap());
            }
            clock.advance(TICK * 2);
            let stopper = thread::spawn({
                let (timers, out) = (timers.clone(), out.clone());
                move || out.add(timers.shutdown().into_iter().map(|unfired| unfired.value))
            });
            let noted = drained.clone();
            let ended = timers.drain(move |_, value| noted.add([value])).wait();
            assert_eq!(ended.keys, drained.sorted().len());
            stopper.join().unwrap();
            timers.driver().unwrap().wait().unwrap();
            let mut all = [out, fired, drained].map(|out| out.sorted()).concat();
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3]);
        });
    }

    /// The handler is on the tick thread, and no other thread runs the job that it waits for.
    #[test]
    fn a_handler_that_waits_for_a_drain() {
        random(SCHEDULES, || {
            let (clock, drained) = (ManualClock::new(), Out::default());
            let builder = tiny(Builder::new(), &clock).driver().executor(Inline);
            let (send, waited) = loom_tests::explorer::sync::mpsc::channel();
            let noted = drained.clone();
            let timers = KeyedTimers::spawn_with(builder, |timers| {
                move |_: Fired<u8, Value>| {
                    let noted = noted.clone();
                    let ended = timers.drain(move |_, value| noted.add([value])).wait();
                    send.send(ended.keys).unwrap();
                }
            })
            .unwrap();
            timers.insert(1, v(1), TICK * 9).unwrap();
            timers.insert(2, v(2), TICK).unwrap();
            clock.advance(TICK);
            assert_eq!((waited.recv().unwrap(), drained.sorted()), (1, vec![1]));
        });
    }

    #[test]
    fn a_drain_and_a_stop_beside_a_pool() {
        drained_and_stopped(|job: ExecutorJob| drop(thread::spawn(job)));
    }

    #[test]
    fn a_drain_and_a_stop_beside_the_tick_thread() {
        drained_and_stopped(Inline);
    }
}
