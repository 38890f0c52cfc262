//! [`Pace`], which keeps a worker at a share of the rate that it reaches flat out.
//!
//! A worker first plays without pause, and counts the events. From then on it rests as soon as it
//! is ahead of its share, as the loop of a server waits for the next events.

use std::time::{Duration, Instant};

/// The time for which a worker plays without pause to learn its rate.
pub(crate) const CALIBRATION: Duration = Duration::from_secs(2);

/// The shortest rest. A sleep of less would mostly be the time that the system takes to end it.
const SHORTEST_REST: Duration = Duration::from_micros(300);

/// The greatest time by which a worker may be behind and still catch up. A server that was held up
/// for longer does not get the events it missed.
const LONGEST_DEBT: Duration = Duration::from_millis(10);

/// The pace of one worker.
pub(crate) struct Pace {
    /// The share of the rate, or `None` to play without pause.
    load: Option<f64>,
    /// The instant from which events are counted, and their number.
    since: Instant,
    events: u64,
    /// The seconds for one event, or `None` during the calibration.
    each: Option<f64>,
}

impl Pace {
    pub(crate) fn new(load: Option<f64>, now: Instant) -> Self {
        Self { load, since: now, events: 0, each: None }
    }

    /// Counts events that were played, and returns how long the worker should rest, if it should.
    pub(crate) fn played(&mut self, events: u64, now: Instant) -> Option<Duration> {
        let load = self.load?;
        self.events += events;
        let elapsed = now.saturating_duration_since(self.since);
        let Some(each) = self.each else {
            if elapsed >= CALIBRATION {
                let each = elapsed.as_secs_f64() / self.events as f64 / load;
                *self = Self { each: Some(each), ..Self::new(Some(load), now) };
            }
            return None;
        };
        let scheduled = Duration::from_secs_f64(each * self.events as f64);
        if elapsed > scheduled + LONGEST_DEBT {
            (self.since, self.events) = (now, 0);
        }
        let ahead = scheduled.checked_sub(elapsed)?;
        (ahead >= SHORTEST_REST).then_some(ahead)
    }
}
