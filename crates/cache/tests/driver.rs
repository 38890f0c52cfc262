//! The threads of a cache with its own driver, and the events of its end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, ManualClock};
use tourbillon_cache::Cache;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

const TICK: Duration = Duration::from_millis(1);

/// The limit is for a broken build, which would hang.
fn receive<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(Duration::from_secs(60)).expect("nothing is lost")
}

/// Entries expire one after the other. The first call of the listener on the worker keeps it busy,
/// and the program keeps rayon's global pool busy. The listener is still called for the other
/// entries.
#[test]
fn listeners_hear_while_the_worker_and_the_program_are_busy() {
    let clock = ManualClock::new();
    let (send, heard) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let cache = Cache::<u32, ()>::builder(TICK)
        .listener(move |gone| {
            let thread = thread::current().name().unwrap_or_default().to_owned();
            let by_worker = thread == "tourbillon-worker";
            send.send((gone.key, thread)).unwrap();
            if by_worker {
                let _ = released.lock().unwrap().recv();
            }
        })
        .spawn(Builder::new().clock(clock.clone()).driver())
        .unwrap();
    let (release_pool, pool_released) = mpsc::channel::<()>();
    let pool_released = Mutex::new(pool_released);
    let (holds, held) = mpsc::channel();
    rayon::spawn_broadcast(move |_| {
        holds.send(()).unwrap();
        let _ = pool_released.lock().unwrap().recv();
    });
    (0..rayon::current_num_threads()).for_each(|_| receive(&held));
    let expire = |key| {
        cache.insert(key, ()).unwrap();
        clock.advance(TICK);
        let (heard, thread) = receive(&heard);
        assert_eq!(heard, key);
        thread
    };
    // Until the worker waits for batches.
    while expire(0) != "tourbillon-worker" {}
    for key in 1..4 {
        let thread = expire(key);
        assert!(thread.starts_with("tourbillon-worker-"), "{thread}");
    }
    drop((release, release_pool));
}

/// The name of the driver whose events are recorded.
const DRIVER: &str = "goes";

struct Event {
    level: Level,
    text: String,
    is_ours: bool,
}

impl Visit for Event {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text += &format!("{field}={value:?} ");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.is_ours |= field.name() == "driver" && value == DRIVER;
    }
}

/// Sends the events of the driver.
struct Recorder(Mutex<Sender<Event>>);

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tourbillon"
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let level = *event.metadata().level();
        let mut seen = Event { level, text: String::new(), is_ours: false };
        event.record(&mut seen);
        if seen.is_ours {
            let _ = self.0.lock().unwrap().send(seen);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A cache cancels its timers itself, so the values that are dropped with it cause no warning.
#[test]
fn a_cache_that_is_dropped_with_its_values_does_not_warn() {
    let (send, events) = mpsc::channel();
    tracing::subscriber::set_global_default(Recorder(Mutex::new(send))).unwrap();
    let driver = Builder::new().clock(ManualClock::new()).driver().thread_name(DRIVER);
    let cache = Cache::builder(TICK * 1000).spawn(driver).unwrap();
    cache.insert(7, "seven").unwrap();
    drop(cache);
    loop {
        let Event { level, text, .. } = receive(&events);
        assert_eq!(level, Level::DEBUG, "{text}");
        if text.contains("driver stopped") {
            assert!(text.contains("handed_back=0") && text.contains("dropped=0"), "{text}");
            break;
        }
    }
}
