//! Runs a driver on a manual clock, with handlers that panic, an executor that drops jobs, and a
//! shutdown at any point. Every value fires or is handed back, exactly once.

#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tourbillon::{Builder, ExecutorJob, Expired, ManualClock};

#[derive(Debug, arbitrary::Arbitrary)]
enum Op {
    Insert { delay: u8, panics: bool },
    Cancel { which: u8 },
    Reset { which: u8, delay: u8 },
    Advance { millis: u8 },
    Shutdown,
}

#[derive(Debug, arbitrary::Arbitrary)]
struct Input {
    batch: u8,
    in_flight: u8,
    /// The executor drops one job of this number, or none if it is zero.
    drops: u8,
    ops: Vec<Op>,
}

/// A value with the counter of its end. Its handler may panic.
struct Value {
    ends: Arc<Vec<AtomicU32>>,
    number: usize,
    panics: bool,
}

impl Value {
    fn end(&self) {
        assert_eq!(self.ends[self.number].fetch_add(1, Relaxed), 0, "{} ended twice", self.number);
    }
}

fn handle(timer: Expired<Value>) {
    timer.value.end();
    if timer.value.panics {
        // Without the hook, which would print.
        std::panic::resume_unwind(Box::new("a handler that panics"));
    }
}

fuzz_target!(|input: Input| {
    let ends: Arc<Vec<AtomicU32>> = Arc::new(input.ops.iter().map(|_| AtomicU32::new(0)).collect());
    let (clock, jobs) = (ManualClock::new(), AtomicU32::new(0));
    let drops = u32::from(input.drops % 4);
    let driver = Builder::new()
        .shards(2)
        .clock(clock.clone())
        .driver()
        .batch(usize::from(input.batch % 5) + 1)
        .max_in_flight(usize::from(input.in_flight % 9) + 1)
        .executor(move |job: ExecutorJob| {
            let number = jobs.fetch_add(1, Relaxed);
            if drops == 0 || number % drops != 0 {
                job();
            }
        })
        .spawn(handle)
        .expect("the settings are in range");
    let (mut ids, mut inserted) = (Vec::new(), 0);
    for op in input.ops.iter().take(100) {
        let pick = |which: u8| (!ids.is_empty()).then(|| ids[usize::from(which) % ids.len()]);
        match *op {
            Op::Insert { delay, panics } => {
                let value = Value { ends: Arc::clone(&ends), number: inserted, panics };
                match driver.wheel().insert(value, Duration::from_millis(delay.into())) {
                    Ok(id) => ids.push(id),
                    Err(refused) => refused.value.end(),
                }
                inserted += 1;
            }
            Op::Cancel { which } => {
                if let Some(value) = pick(which).and_then(|id| driver.wheel().cancel(id)) {
                    value.end();
                }
            }
            Op::Reset { which, delay } => {
                if let Some(id) = pick(which) {
                    let _ = driver.wheel().reset(id, Duration::from_millis(delay.into()));
                }
            }
            Op::Advance { millis } => clock.advance(Duration::from_millis(millis.into())),
            Op::Shutdown => driver.shutdown().into_iter().for_each(|timer| timer.value.end()),
        }
    }
    driver.shutdown().into_iter().for_each(|timer| timer.value.end());
    driver.wait().expect("this is no handler");
    // One more call returns the values that an executor dropped after the previous check.
    driver.shutdown().into_iter().for_each(|timer| timer.value.end());
    let ended = ends.iter().filter(|end| end.load(Relaxed) == 1).count();
    assert_eq!(ended, inserted);
});
