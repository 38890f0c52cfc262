//! Loads a key-value server whose keys expire, and audits the expiries.
//!
//! Each thread has keys of its own and sends pipelines of random commands. A missing key has
//! expired *early* if its life has not passed since the instant *before* the pipeline that set it
//! was sent. The *lateness* of a key that is still there counts from the instant after the answer.

use crate::Failure;
use crate::busy::Answers;
use crate::child::Child;
use crate::measure::{Load, Outcome, Window, joined};
use redis::{Connection, Pipeline, Value};
use std::ops::Range;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// The number of threads, each with a connection.
const THREADS: u32 = 2;

/// The number of commands in a pipeline.
const TOGETHER: usize = 64;

const VALUE: [u8; 64] = *b"sixty-four bytes are stored under each key until their time ends";

/// The lateness that makes a key count as lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// The life of a key, as this client knows it.
#[derive(Clone, Copy)]
struct Life {
    /// The key must not expire before.
    from: Instant,
    /// The key should have expired then.
    until: Instant,
}

/// A command that was sent.
#[derive(Clone, Copy)]
enum Sent {
    Set(usize, Duration),
    Expire(usize, Duration),
    Get(usize),
}

/// A client of some of the keys.
struct Client {
    connection: Connection,
    first: u32,
    lives: Vec<Option<Life>>,
    shortest: Duration,
    pause: Duration,
    sent: Vec<Sent>,
    early: u64,
    latest: Duration,
    answers: Answers,
}

/// Loads the server, and stops it once all keys have expired.
pub(crate) fn load(child: Child, load: &Load) -> Result<Outcome, Failure> {
    let address = child.address();
    let server = redis::Client::open(format!("redis://{address}/"))?;
    let filled = Barrier::new(THREADS as usize + 1);
    let mut answers = Answers::none()?;
    let (mut early, mut latest) = (0, Duration::ZERO);
    let cpu = thread::scope(|scope| {
        let (server, filled) = (&server, &filled);
        let start = |thread: u32| {
            let first = |thread| load.timers / THREADS * thread;
            let keys = first(thread)..first(thread + 1);
            scope.spawn(move || {
                let client = Client::new(server, keys, load).and_then(Client::fill);
                filled.wait();
                client?.run(&Window::after(load.timeout, load.window))
            })
        };
        let clients: Vec<_> = (0..THREADS).map(start).collect();
        filled.wait();
        let cpu = Window::after(load.timeout, load.window).cpu(&child);
        for client in clients {
            let client = joined(client)?;
            answers.add(&client.answers)?;
            early += client.early;
            latest = latest.max(client.latest);
        }
        cpu
    })?;
    let lost = until_none_is_left(&mut server.get_connection()?, load.timeout * 2)?;
    Ok(Outcome { answers, cpu, early, latest, lost, report: child.stop()? })
}

/// Waits until all keys have expired, and returns the number of those that have not.
fn until_none_is_left(connection: &mut Connection, longest: Duration) -> Result<u64, Failure> {
    let end = Instant::now() + longest + PATIENCE;
    loop {
        let left = redis::cmd("DBSIZE").query(connection)?;
        if left == 0 || Instant::now() > end {
            return Ok(left);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

impl Client {
    fn new(server: &redis::Client, keys: Range<u32>, load: &Load) -> Result<Self, Failure> {
        Ok(Self {
            connection: server.get_connection()?,
            first: keys.start,
            lives: vec![None; keys.len()],
            shortest: load.timeout,
            pause: load.pause,
            sent: Vec::new(),
            early: 0,
            latest: Duration::ZERO,
            answers: Answers::none()?,
        })
    }

    /// Sets all keys.
    fn fill(mut self) -> Result<Self, Failure> {
        let mut keys = 0..self.lives.len();
        while !keys.is_empty() {
            let sent = keys.by_ref().take(TOGETHER).map(|key| Sent::Set(key, self.life()));
            self.sent = sent.collect();
            self.send(None)?;
        }
        Ok(self)
    }

    /// Sends random commands until the window has passed.
    fn run(mut self, window: &Window) -> Result<Self, Failure> {
        while Instant::now() < window.end() && !self.lives.is_empty() {
            let sent = (0..TOGETHER).map(|_| {
                let key = fastrand::usize(..self.lives.len());
                match fastrand::u32(..100) {
                    0..30 => Sent::Set(key, self.life()),
                    30..60 => Sent::Expire(key, self.life()),
                    _ => Sent::Get(key),
                }
            });
            self.sent = sent.collect();
            self.send(Some(window))?;
            thread::sleep(self.pause);
        }
        Ok(self)
    }

    /// A random life, in whole milliseconds.
    fn life(&self) -> Duration {
        let shortest = u64::try_from(self.shortest.as_millis()).unwrap_or(u64::MAX / 2);
        Duration::from_millis(fastrand::u64(shortest..=shortest * 2))
    }

    /// Sends the commands together and checks the answers.
    fn send(&mut self, window: Option<&Window>) -> Result<(), Failure> {
        let mut pipeline = Pipeline::with_capacity(TOGETHER);
        for &sent in &self.sent {
            let millis = |life: Duration| u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
            let key = |key: usize| format!("key:{:08}", self.first as usize + key);
            match sent {
                Sent::Set(place, life) => {
                    pipeline.cmd("SET").arg(key(place)).arg(&VALUE).arg("PX").arg(millis(life))
                }
                Sent::Expire(place, life) => {
                    pipeline.cmd("PEXPIRE").arg(key(place)).arg(millis(life))
                }
                Sent::Get(place) => pipeline.cmd("GET").arg(key(place)),
            };
        }
        let before = Instant::now();
        let values: Vec<Value> = pipeline.query(&mut self.connection)?;
        let after = Instant::now();
        for (place, value) in values.into_iter().enumerate() {
            let sent = self.sent[place];
            self.check(sent, &value, before, after)?;
        }
        if window.is_some_and(|window| window.contains(after)) {
            let nanos = u64::try_from((after - before).as_nanos())?;
            self.answers.latencies.saturating_record_n(nanos.max(1), self.sent.len() as u64);
        }
        Ok(())
    }

    /// Checks the answer to one command.
    fn check(
        &mut self,
        sent: Sent,
        value: &Value,
        before: Instant,
        after: Instant,
    ) -> Result<(), Failure> {
        let (Sent::Set(key, _) | Sent::Expire(key, _) | Sent::Get(key)) = sent;
        let known = self.lives[key];
        let is_there = match (sent, value) {
            (Sent::Set(..), Value::Okay) | (Sent::Expire(..), Value::Int(1)) => true,
            (Sent::Get(_), Value::BulkString(value)) if value == &VALUE => true,
            (Sent::Expire(..), Value::Int(0)) | (Sent::Get(_), Value::Nil) => false,
            _ => return Err(format!("an unexpected answer: {value:?}").into()),
        };
        match known {
            Some(life) if !is_there => self.early += u64::from(after < life.from),
            Some(life) if !matches!(sent, Sent::Set(..)) => {
                self.latest = self.latest.max(before.saturating_duration_since(life.until));
            }
            _ => {}
        }
        match sent {
            Sent::Set(_, life) | Sent::Expire(_, life) if is_there => {
                self.lives[key] = Some(Life { from: before + life, until: after + life });
            }
            _ => {}
        }
        Ok(())
    }
}
