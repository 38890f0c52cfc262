//! [`Workers`], the default executor. Its threads belong to the driver and take batches from one
//! queue.
//!
//! The first thread starts with the driver. Another thread starts if a batch is handed over while
//! no thread is free, up to [`max_workers`]. It ends after [`IDLE_LIMIT`] without a batch. Three
//! rules keep batches from waiting behind a handler that blocks:
//!
//! - A thread counts as free from before it checks the queue until it has taken a batch. A new
//!   thread is free from the start. As long as the queue has at most as many batches as there are
//!   free threads, every batch is taken, because a free thread does not wait while the queue has a
//!   batch.
//! - Handing over a batch starts a thread if the queue then has more batches than there are free
//!   threads.
//! - A thread that has run a batch checks the queue before it waits. It therefore takes batches
//!   that were handed over while all threads were busy.
//!
//! Each driver has its own threads, so handlers that block never delay another driver. The threads
//! do not belong to a rayon pool, where a thread that waits in `join` while it holds a lock could
//! run a batch whose handler takes the same lock.

#![forbid(unsafe_code)]

use super::executor::{Executor, ExecutorJob};
use crate::clock::{Clock, MonotonicClock};
use crate::panics::ignore_poison;
use crate::sync::{Condvar, Mutex, MutexGuard, thread};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a thread, except the first, waits for a batch before it ends.
const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// How long the driver waits after a failure to start a thread before it tries again.
const RETRY: Duration = Duration::from_secs(1);

/// The largest capacity that an empty queue keeps.
const SMALL: usize = 64;

/// The default executor.
pub(super) struct Workers {
    queue: Arc<Queue>,
    start: Box<Start>,
    clock: Box<dyn Clock>,
    max_threads: usize,
}

/// Starts the thread with this number, which is 1 for the first thread.
type Start = dyn Fn(usize, Arc<Queue>) -> io::Result<()> + Send + Sync;

impl Workers {
    /// Starts the first thread, which is called `name-worker`. Later threads are called
    /// `name-worker-2` and so on.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    #[allow(clippy::disallowed_methods, reason = "the threads of the executor")]
    pub(super) fn start(name: &str) -> io::Result<Self> {
        let name = format!("{name}-worker");
        let start = move |number: usize, queue: Arc<Queue>| {
            let name = if number == 1 { name.clone() } else { format!("{name}-{number}") };
            let idle_limit = (number > 1).then_some(IDLE_LIMIT);
            thread::Builder::new().name(name).spawn(move || queue.work(idle_limit)).map(drop)
        };
        Self::with(start, MonotonicClock, max_workers())
    }

    fn with(
        start: impl Fn(usize, Arc<Queue>) -> io::Result<()> + Send + Sync + 'static,
        clock: impl Clock,
        max_threads: usize,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        queue.lock().add_thread();
        start(1, Arc::clone(&queue))?;
        Ok(Self { queue, start: Box::new(start), clock: Box::new(clock), max_threads })
    }

    /// Releases the lock and starts another thread. Returns `false` if there are enough threads, or
    /// if no thread could be started, now or less than [`RETRY`] ago.
    fn grow(&self, mut state: MutexGuard<'_, State>) -> bool {
        let recently = |now: Instant, failed| now.saturating_duration_since(failed) < RETRY;
        if state.threads >= self.max_threads
            || state.failed.is_some_and(|failed| recently(self.clock.now(), failed))
        {
            return false;
        }
        let number = state.add_thread();
        // The new thread takes the lock.
        drop(state);
        let started = (self.start)(number, Arc::clone(&self.queue));
        if started.is_err() {
            let mut state = self.queue.lock();
            state.remove_thread();
            state.failed = Some(self.clock.now());
        }
        started.is_ok()
    }
}

impl Executor for Workers {
    fn execute(&self, job: ExecutorJob) {
        let mut state = self.queue.lock();
        state.jobs.push_back(job);
        if state.jobs.len() <= state.free {
            drop(state);
            self.queue.changed.notify_one();
            return;
        }
        if self.grow(state) {
            return;
        }
        // All threads are busy, and the next free thread takes the batch. If no more threads can be
        // started, their handlers may be waiting for this batch.
        let mut state = self.queue.lock();
        if state.free == 0 && state.threads < self.max_threads {
            let oldest = state.take();
            drop(state);
            if let Some(job) = oldest {
                job();
            }
        }
    }
}

impl Drop for Workers {
    /// Lets the threads end when they have run all batches.
    fn drop(&mut self) {
        self.queue.lock().is_closed = true;
        self.queue.changed.notify_all();
    }
}

/// Returns the maximum number of threads of a driver, which is large enough for some handlers to
/// block while others run.
fn max_workers() -> usize {
    1 + std::thread::available_parallelism().map_or(4, |cores| cores.get().clamp(4, 16))
}

/// The batches that no thread has taken.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<ExecutorJob>,
    threads: usize,
    /// The number of threads that wait for a batch or are about to check for one.
    free: usize,
    is_closed: bool,
    /// The time of the last failure to start a thread.
    failed: Option<Instant>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        ignore_poison(self.state.lock())
    }

    /// Runs batches until the executor is dropped and no batch is left, or until no batch has come
    /// for as long as `idle_limit`.
    fn work(&self, idle_limit: Option<Duration>) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.take() {
                state.free -= 1;
                drop(state);
                job();
                state = self.lock();
                state.free += 1;
                continue;
            }
            let mut is_over = state.is_closed;
            if !is_over {
                (state, is_over) = self.wait(state, idle_limit);
            }
            if is_over && state.jobs.is_empty() {
                return state.remove_thread();
            }
        }
    }

    /// Waits for a change, and returns `true` if the wait has lasted as long as `idle_limit`.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        idle_limit: Option<Duration>,
    ) -> (MutexGuard<'a, State>, bool) {
        let Some(idle_limit) = idle_limit else {
            return (ignore_poison(self.changed.wait(state)), false);
        };
        let (state, waited) = ignore_poison(self.changed.wait_timeout(state, idle_limit));
        (state, waited.timed_out())
    }
}

impl State {
    /// Counts a thread that is about to start, and returns its number.
    fn add_thread(&mut self) -> usize {
        self.free += 1;
        self.threads += 1;
        self.threads
    }

    /// Subtracts a free thread that ends or could not be started.
    fn remove_thread(&mut self) {
        self.free -= 1;
        self.threads -= 1;
    }

    /// Takes the oldest batch. If this empties the queue, the memory of a burst is freed.
    fn take(&mut self) -> Option<ExecutorJob> {
        let job = self.jobs.pop_front();
        if self.jobs.is_empty() && self.jobs.capacity() > SMALL {
            self.jobs = VecDeque::new();
        }
        job
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::{Executor, Queue, RETRY, Workers};
    use crate::clock::ManualClock;
    use std::io;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::sync::{Arc, Mutex};
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    /// Workers that can start only their first thread while `refuses` is set, and the number of
    /// attempts to start another.
    struct Scarce {
        workers: Workers,
        clock: ManualClock,
        refuses: Arc<AtomicBool>,
        attempts: Arc<AtomicUsize>,
        /// Receives a message when a thread has ended.
        ended: Receiver<()>,
    }

    #[allow(clippy::disallowed_methods, reason = "threads of an executor")]
    fn scarce(idle_limit: Duration) -> Scarce {
        let clock = ManualClock::new();
        let (refuses, attempts) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (refusing, counted) = (Arc::clone(&refuses), Arc::clone(&attempts));
        let (send, ended) = mpsc::channel();
        let start = move |number, queue: Arc<Queue>| {
            if number > 1 {
                counted.fetch_add(1, Relaxed);
                if refusing.load(Relaxed) {
                    return Err(io::Error::from(io::ErrorKind::OutOfMemory));
                }
            }
            let (send, idle_limit) = (send.clone(), (number > 1).then_some(idle_limit));
            thread::spawn(move || {
                queue.work(idle_limit);
                let _ = send.send(());
            });
            Ok(())
        };
        let workers = Workers::with(start, clock.clone(), 3).unwrap();
        Scarce { workers, clock, refuses, attempts, ended }
    }

    impl Scarce {
        /// Starts the maximum number of threads, and keeps them busy until the returned senders are
        /// dropped.
        fn busy(&self) -> [Sender<()>; 3] {
            self.refuses.store(false, Relaxed);
            let held = [(); 3].map(|()| hand_over(&self.workers));
            held.map(|(began, release)| {
                began.recv().unwrap();
                release
            })
        }
    }

    /// Hands over a batch. The receiver gets the thread that runs it, and dropping the sender ends
    /// it.
    fn hand_over(workers: &Workers) -> (Receiver<ThreadId>, Sender<()>) {
        let (send, began) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        workers.execute(Box::new(move || {
            send.send(thread::current().id()).unwrap();
            let _ = released.lock().unwrap().recv();
        }));
        (began, release)
    }

    /// Runs a batch that ends at once, and returns its thread.
    fn thread_of_a_batch(workers: &Workers) -> ThreadId {
        let (send, ran) = mpsc::channel();
        workers.execute(Box::new(move || send.send(thread::current().id()).unwrap()));
        ran.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn a_thread_that_cannot_be_started_is_tried_again_after_a_second() {
        let scarce = scarce(Duration::from_secs(60));
        let (began, _held) = hand_over(&scarce.workers);
        let first = began.recv().unwrap();
        // The only thread is busy, so each batch runs on the thread that hands it over.
        for _ in 0..3 {
            assert_eq!(thread_of_a_batch(&scarce.workers), thread::current().id());
        }
        assert_eq!(scarce.attempts.load(Relaxed), 1);
        scarce.refuses.store(false, Relaxed);
        scarce.clock.advance(RETRY - Duration::from_nanos(1));
        assert_eq!(thread_of_a_batch(&scarce.workers), thread::current().id());
        scarce.clock.advance(Duration::from_nanos(1));
        let second = thread_of_a_batch(&scarce.workers);
        assert!(second != first && second != thread::current().id());
        assert_eq!(scarce.attempts.load(Relaxed), 2);
    }

    /// The handlers of both threads wait for the batch.
    #[test]
    fn a_batch_runs_where_it_is_handed_over_if_no_more_threads_can_be_started() {
        let scarce = scarce(Duration::from_secs(60));
        scarce.refuses.store(false, Relaxed);
        let held = [(); 2].map(|()| hand_over(&scarce.workers));
        let busy = held.each_ref().map(|(began, _)| began.recv().unwrap());
        scarce.refuses.store(true, Relaxed);
        for _ in 0..2 {
            let thread = thread_of_a_batch(&scarce.workers);
            assert!(thread == thread::current().id() && !busy.contains(&thread));
        }
        drop(held);
    }

    #[test]
    fn a_batch_waits_for_a_thread_if_one_could_be_started() {
        let scarce = scarce(Duration::from_secs(60));
        let held = scarce.busy();
        let (send, ran) = mpsc::channel();
        scarce.workers.execute(Box::new(move || send.send(thread::current().id()).unwrap()));
        assert!(ran.try_recv().is_err());
        drop(held);
        assert_ne!(ran.recv().unwrap(), thread::current().id());
        assert_eq!(scarce.attempts.load(Relaxed), 2);
    }

    #[test]
    fn all_threads_but_the_first_end_when_they_have_nothing_to_do() {
        let scarce = scarce(Duration::ZERO);
        let held = scarce.busy();
        drop(held);
        (0..2).for_each(|_| scarce.ended.recv_timeout(Duration::from_secs(60)).unwrap());
        // The first thread is still there, and ends with the executor.
        assert_eq!(scarce.workers.queue.lock().threads, 1);
        drop(scarce.workers);
        scarce.ended.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    /// A batch comes after the wait has ended, when a notification no longer reaches the worker.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a thread of an executor")]
    fn a_worker_that_is_about_to_end_takes_a_batch() {
        let came_in_time = || {
            let queue = Arc::new(Queue::default());
            let (send, ran) = mpsc::channel();
            let mut state = queue.lock();
            state.add_thread();
            let first = send.clone();
            state.jobs.push_back(Box::new(move || first.send(1).unwrap()));
            drop(state);
            let its = Arc::clone(&queue);
            let worker = thread::spawn(move || its.work(Some(Duration::from_millis(20))));
            assert_eq!(ran.recv(), Ok(1));
            let mut state = queue.lock();
            while state.free == 0 && state.threads > 0 {
                drop(state);
                thread::yield_now();
                state = queue.lock();
            }
            // The worker is waiting, unless this thread was delayed for that long.
            let waits = state.threads > 0;
            state.jobs.push_back(Box::new(move || send.send(2).unwrap()));
            drop(state);
            worker.join().unwrap();
            assert_eq!(ran.try_recv().is_ok(), waits);
            waits
        };
        assert!((0..1000).any(|_| came_in_time()));
    }

    #[test]
    fn batches_that_were_handed_over_run_after_the_executor_is_dropped() {
        let scarce = scarce(Duration::from_secs(60));
        let held = scarce.busy();
        let (send, ran) = mpsc::channel();
        for number in 0..200 {
            let send = send.clone();
            scarce.workers.execute(Box::new(move || send.send(number).unwrap()));
        }
        drop((scarce.workers, send, held));
        let mut numbers: Vec<u32> = ran.into_iter().collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..200));
    }

    #[test]
    fn a_queue_gives_back_the_memory_of_a_burst() {
        let queue = Queue::default();
        let mut state = queue.lock();
        state.jobs.extend((0..1000).map(|_| -> super::ExecutorJob { Box::new(|| ()) }));
        while let Some(job) = state.take() {
            job();
        }
        assert!(state.jobs.capacity() <= super::SMALL);
    }
}
