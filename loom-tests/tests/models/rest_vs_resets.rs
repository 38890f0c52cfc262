//! A sweeper that moves a reference and goes to rest against two resets to one earlier tick. A
//! reset that relies on the other's reference must not return before the sweeper has been woken.

use loom_tests::explorer::sync::Mutex;
use loom_tests::explorer::sync::atomic::AtomicBool;
use loom_tests::explorer::thread;
use loom_tests::{Builder, TICK, World, beside, model, sweep, v};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// One thread sweeps, rests and resets. Its wake-up is held up until the other thread's reset has
/// returned. By then the sweeper knows of the tick, or the other thread has woken it as well.
#[test]
fn the_other_is_held_up_in_its_ring() {
    model(3, || {
        let (woken, returned) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let main = thread::current().id();
        let builder = Builder::new().waker({
            let (woken, returned) = (Arc::clone(&woken), Arc::clone(&returned));
            move || {
                if thread::current().id() == main {
                    woken.store(true, Relaxed);
                }
                while thread::current().id() != main && !returned.load(Relaxed) {
                    thread::park();
                }
            }
        });
        let World { wheel, mut sweeper, clock } = World::of(builder);
        let start = clock.start();
        let id = wheel.insert(v(7), TICK * 2).unwrap();
        assert_eq!(wheel.reset(id, TICK * 6), Ok(true));
        clock.advance(TICK * 2);
        let rests_until = Arc::new(Mutex::new(None));
        let rests = Arc::clone(&rests_until);
        let other = beside(&wheel, move |wheel| {
            assert!(sweep(&mut sweeper).is_empty());
            *rests.lock().unwrap() = sweeper.next_deadline();
            assert_eq!(wheel.reset_at(id, start + TICK * 3), Ok(true));
            sweeper
        });
        assert_eq!(wheel.reset_at(id, start + TICK * 3), Ok(true));
        let until = *rests_until.lock().unwrap();
        let sleeps = until.is_some_and(|until| until > start + TICK * 3);
        assert!(!sleeps || woken.load(Relaxed), "asleep until {until:?}");
        returned.store(true, Relaxed);
        other.thread().unpark();
        drop(other.join().unwrap());
    });
}
