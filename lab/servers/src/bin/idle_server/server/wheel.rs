//! The timers on a wheel, either one per loop that the loop sweeps, or a shared one with a driver.

use super::config::{Config, Failure};
use super::mailbox::{Mailbox, Message};
use super::timers::{Batch, Store, Timers, Token};
use humantime::format_duration;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Driver, Expired, Inline, Pinned, Sweeper, TimerId, Wheel};

/// A wheel, and its sweeper if the loop sweeps it.
pub(crate) struct OnWheel {
    wheel: Wheel<Token>,
    sweeper: Option<Sweeper<Token>>,
}

/// The timers of every loop, in the order of the loops.
pub(crate) type Made = (Vec<OnWheel>, Box<dyn Store>);

/// A wheel of one shard per loop. Only the loop arms timers, between its sweep and its next poll,
/// so it needs no wake-up.
pub(crate) fn own(config: &Config) -> Result<Made, Failure> {
    let mut timers = Vec::new();
    for _ in 0..config.loops {
        let (wheel, sweeper) = Builder::new().resolution(config.resolution).shards(1).build()?;
        timers.push(OnWheel { wheel, sweeper: Some(sweeper) });
    }
    let wheels: Vec<_> = timers.iter().map(|timers| timers.wheel.clone()).collect();
    check(config, &wheels[0])?;
    Ok((timers, Box::new(wheels)))
}

/// One wheel, whose driver notifies each loop of its idle connections. The handler is short, so it
/// runs on the tick thread.
pub(crate) fn shared(config: &Config, mailboxes: &Arc<[Mailbox]>) -> Result<Made, Failure> {
    let mailboxes = Arc::clone(mailboxes);
    let driver = Builder::new()
        .resolution(config.resolution)
        .shards(config.loops.min(MAX_SHARDS))
        .driver()
        .executor(Inline)
        .spawn(move |timer: Expired<Token>| {
            mailboxes[timer.value.owner].post(Message::Idle(timer.value));
        })?;
    check(config, driver.wheel())?;
    let timers = || OnWheel { wheel: driver.wheel().clone(), sweeper: None };
    Ok(((0..config.loops).map(|_| timers()).collect(), Box::new(driver)))
}

/// The maximum number of shards of a wheel.
const MAX_SHARDS: usize = 256;

/// Returns an error if the idle timeout is out of range of the wheel.
fn check(config: &Config, wheel: &Wheel<Token>) -> Result<(), Failure> {
    let (idle, longest) = (config.idle, wheel.longest_delay());
    if idle <= longest {
        return Ok(());
    }
    let [tick, longest, idle] = [config.resolution, longest, idle].map(format_duration);
    let error = format!("with a tick of {tick}, {longest} can be waited, not {idle}");
    Err(error.into())
}

impl Timers for OnWheel {
    type Id = TimerId;
    type Batch<'a> = Pinned<'a, Token>;

    fn batch(&mut self) -> Pinned<'_, Token> {
        self.wheel.pin()
    }

    fn sweep(&mut self, limit: usize, due: &mut Vec<Token>) {
        if let Some(sweeper) = &mut self.sweeper {
            let _ = sweeper.sweep_some(limit, |timer| due.push(timer.value));
        }
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        self.sweeper.as_mut()?.next_deadline()
    }
}

impl Batch for Pinned<'_, Token> {
    type Id = TimerId;

    fn prefetch(&self, id: TimerId) {
        Pinned::prefetch(self, id);
    }

    fn insert(&mut self, token: Token, delay: Duration) -> Option<TimerId> {
        Pinned::insert(self, token, delay).ok()
    }

    fn reset(&mut self, id: &mut TimerId, delay: Duration) -> bool {
        // The delay is in the wheel's range, which was checked.
        Pinned::reset(self, *id, delay).unwrap_or(false)
    }

    fn cancel(&mut self, id: TimerId) {
        let _ = Pinned::cancel(self, id);
    }
}

impl Store for Vec<Wheel<Token>> {
    fn armed(&self) -> u64 {
        self.iter().map(|wheel| wheel.len() as u64).sum()
    }

    fn stop(&mut self) {}
}

impl Store for Driver<Token> {
    fn armed(&self) -> u64 {
        self.wheel().len() as u64
    }

    fn stop(&mut self) {
        drop(self.shutdown());
    }
}
