//! Timers in the structures that servers use, behind one trait. All of them are used by one thread
//! at a time, which has them to itself or under a lock.
//!
//! The handle of a timer is part of its owner's record, for example of a connection. A structure
//! may keep more than a reference there, so it [looks the record up](Records) when a timer is due.

mod alarm;
mod delay_queue;
mod heap;
mod on_wheel;
mod ordered_set;
mod sleeps;
mod structure;

pub use structure::{Batch, Name, Records, Timers};

use delay_queue::Queue;
use heap::Heap;
use on_wheel::OnWheel;
use ordered_set::OrderedSet;
use sleeps::Sleeps;

use clap::ValueEnum;
use std::error::Error;

/// The structures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A wheel of tourbillon's that the server sweeps.
    #[default]
    Wheel,
    /// A sleep of tokio's for each timer.
    Tokio,
    /// One `DelayQueue` of tokio-util's.
    DelayQueue,
    /// A binary heap, where a timer that is pushed back stays until its old deadline.
    Heap,
    /// An ordered set, as in mini-redis.
    OrderedSet,
}

/// A server that runs with timers of any kind.
pub trait Server<V: Name> {
    /// The result of the server.
    type Output;

    /// Runs the server.
    fn run<T: Timers<V>>(self, timers: T) -> Self::Output;
}

impl Kind {
    /// Runs a server with timers of this kind.
    ///
    /// # Errors
    ///
    /// Fails if the wheel cannot be built.
    pub fn serve<V: Name, S: Server<V>>(
        self,
        server: S,
    ) -> Result<S::Output, Box<dyn Error + Send + Sync>> {
        Ok(match self {
            Self::Wheel => server.run(OnWheel::new(tourbillon::Builder::new())?),
            Self::Tokio => server.run(Sleeps::new()),
            Self::DelayQueue => server.run(Queue::new()),
            Self::Heap => server.run(Heap::new()),
            Self::OrderedSet => server.run(OrderedSet::new()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Batch, Heap, OnWheel, OrderedSet, Queue, Records, Sleeps, Timers};
    use std::future::poll_fn;
    use std::time::Duration;
    use tokio::time::{Instant, timeout};
    use tourbillon::Builder;
    use tourbillon::tokio::RuntimeClock;

    const MS: Duration = Duration::from_millis(1);

    /// Timers fire late by a tick of the wheel and one of tokio's timer at most, and by the lag of
    /// neither.
    const LATEST: Duration = Duration::from_millis(3);

    /// The timer of each owner, and its deadline.
    struct Owners<Id>(Vec<Option<(Id, Instant)>>);

    impl<Id> Records<u32, Id> for Owners<Id> {
        fn timer(&mut self, name: &u32) -> Option<&mut Id> {
            self.0[*name as usize].as_mut().map(|(id, _)| id)
        }
    }

    impl<Id> Owners<Id> {
        /// Checks that these timers have fired in time, and that no other should have.
        fn check(&mut self, due: Vec<u32>) {
            let now = Instant::now();
            for name in due {
                let owner = self.0[name as usize].take();
                let (_, deadline) = owner.unwrap_or_else(|| panic!("{name} had no timer"));
                assert!(deadline <= now, "{name} fired {:?} early", deadline - now);
                assert!(now <= deadline + LATEST, "{name} fired {:?} late", now - deadline);
            }
            let mut late = self.0.iter().flatten().filter(|(_, at)| *at + LATEST < now);
            assert!(late.next().is_none(), "one did not fire");
        }
    }

    /// Arms, moves and cancels random timers, and checks that each fires at its last deadline.
    async fn audit<T: Timers<u32>>(mut timers: T) {
        let mut random = fastrand::Rng::with_seed(7);
        let mut owners = Owners((0..50).map(|_| None).collect());
        let mut fired = 0;
        for step in 0..2000 {
            for _ in 0..3 {
                let name = random.u32(..50);
                let delay = MS * random.u32(1..100);
                let deadline = Instant::now() + delay;
                let mut batch = timers.batch();
                let owner = &mut owners.0[name as usize];
                match owner {
                    _ if step >= 1900 => {}
                    Some(_) if random.u32(..4) == 0 => {
                        assert!(owner.take().is_some_and(|(id, _)| batch.cancel(id)));
                    }
                    Some((id, last)) => {
                        assert!(batch.reset(id, &name, delay));
                        *last = deadline;
                    }
                    None => *owner = Some((batch.arm(name, delay), deadline)),
                }
            }
            let mut due = Vec::new();
            let pause = MS * random.u32(1..20);
            let polled = poll_fn(|context| timers.poll_due(context, &mut owners, &mut due));
            let _ = timeout(pause, polled).await;
            fired += due.len();
            owners.check(due);
            assert_eq!(timers.armed(), owners.0.iter().flatten().count());
        }
        assert!(fired > 500, "{fired} of the timers fired");
        assert_eq!(timers.armed(), 0);
    }

    fn in_virtual_time<T>(timers: impl FnOnce() -> T, audit: impl AsyncFnOnce(T)) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        runtime.expect("it needs no resources").block_on(async { audit(timers()).await });
    }

    #[test]
    fn timers_on_a_wheel_fire_at_their_last_deadlines() {
        let wheel = || OnWheel::new(Builder::new().clock(RuntimeClock::current()));
        in_virtual_time(|| wheel().expect("the builder is right"), audit);
    }

    #[test]
    fn sleeps_fire_at_their_last_deadlines() {
        in_virtual_time(Sleeps::new, audit);
    }

    #[test]
    fn timers_in_a_delay_queue_fire_at_their_last_deadlines() {
        in_virtual_time(Queue::new, audit);
    }

    #[test]
    fn timers_in_a_heap_fire_at_their_last_deadlines() {
        in_virtual_time(Heap::new, audit);
    }

    #[test]
    fn timers_in_an_ordered_set_fire_at_their_last_deadlines() {
        in_virtual_time(OrderedSet::new, audit);
    }
}
