//! Inserts and cancels per second with many callers in flight, beside bare `ZADD` and `ZREM`, and
//! beside two bare commands that also keep a payload. All use the same ids and due times, as many
//! sorted sets as the store has partitions, and one multiplexed connection. All begin empty, or
//! with as many resting timers.

use crate::report::{Beside, Pipelining, Taken};
use crate::servers::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, cmd};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tourbillon_durable::Cancelled;
use tourbillon_durable_measure::each;
use tourbillon_durable_measure::subject::{Figures, PAYLOAD, Subject, after, due, id, own_cpu};

/// As many as a store has partitions.
const SETS: usize = 16;

/// The extent of the comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// The number of resting timers on both sides. Their ids come before the ids of the rounds.
    pub(crate) resting: usize,
    pub(crate) rounds: usize,
    /// The number of calls in a round.
    pub(crate) count: usize,
}

/// The same timers in a store and in bare sorted sets of one server.
struct Trial<'a> {
    subject: &'a Subject<Server>,
    bare: MultiplexedConnection,
    start: SystemTime,
    callers: usize,
    first: usize,
    count: usize,
}

fn set(number: usize) -> String {
    format!("{{set:{}}}", number % SETS)
}

fn hash(number: usize) -> String {
    format!("{{set:{}}}:payloads", number % SETS)
}

fn hset(number: usize) -> Cmd {
    let mut command = cmd("HSET");
    command.arg(hash(number)).arg(id(number)).arg(PAYLOAD.as_slice());
    command
}

fn hdel(number: usize) -> Cmd {
    let mut command = cmd("HDEL");
    command.arg(hash(number)).arg(id(number));
    command
}

fn zadd(start: SystemTime, number: usize) -> Cmd {
    let score = after(start, due(number)).duration_since(UNIX_EPOCH).unwrap();
    let mut command = cmd("ZADD");
    command.arg(set(number)).arg(u64::try_from(score.as_millis()).unwrap()).arg(id(number));
    command
}

fn zrem(number: usize) -> Cmd {
    let mut command = cmd("ZREM");
    command.arg(set(number)).arg(id(number));
    command
}

impl Trial<'_> {
    async fn take(&self, work: impl Future<Output = ()>) -> Taken {
        let (server, client, begun) = (self.subject.server.cpu(), own_cpu(), Instant::now());
        work.await;
        let (elapsed, calls) = (begun.elapsed().as_secs_f64(), self.count as f64);
        Taken {
            a_second: calls / elapsed,
            server: (self.subject.server.cpu() - server) * 1e6 / calls,
            client: (own_cpu() - client) * 1e6 / calls,
        }
    }

    async fn bare(&self, command: impl Fn(usize) -> Vec<Cmd> + Send + Sync + 'static) -> Taken {
        self.take(run(&self.bare, self.callers, self.first, self.count, command)).await
    }

    /// Runs one round of all sides, in reverse order if `back` is set.
    async fn round(&self, back: bool, schedule: &mut Beside, cancel: &mut Beside) {
        let start = self.start;
        for side in if back { [2, 1, 0] } else { [0, 1, 2] } {
            let (scheduled, cancelled) = match side {
                0 => (self.insert().await, self.cancel().await),
                1 => {
                    let scheduled = self.bare(move |number| vec![zadd(start, number)]).await;
                    (scheduled, self.bare(|number| vec![zrem(number)]).await)
                }
                _ => {
                    let both = move |number| vec![zadd(start, number), hset(number)];
                    let scheduled = self.bare(both).await;
                    (scheduled, self.bare(|number| vec![zrem(number), hdel(number)]).await)
                }
            };
            schedule.0[side].push(scheduled);
            cancel.0[side].push(cancelled);
        }
    }

    async fn insert(&self) -> Taken {
        let (start, first) = (self.start, self.first);
        let due = move |number| after(start, due(first + number));
        self.take(self.subject.schedule_from(first, self.callers, self.count, due)).await
    }

    async fn cancel(&self) -> Taken {
        let (timers, first) = (self.subject.timers.clone(), self.first);
        let call = move |number| {
            let timers = timers.clone();
            async move {
                let cancelled = timers.cancel(&id(first + number)).await.unwrap();
                assert_eq!(cancelled, Cancelled::Removed);
            }
        };
        self.take(each(self.callers, self.count, call)).await
    }
}

/// Runs bare commands with each of so many numbers, from `first` on.
async fn run(
    bare: &MultiplexedConnection,
    callers: usize,
    first: usize,
    count: usize,
    commands: impl Fn(usize) -> Vec<Cmd> + Send + Sync + 'static,
) {
    let bare = bare.clone();
    let call = move |number| {
        let (mut bare, mut pipeline) = (bare.clone(), redis::Pipeline::new());
        for command in commands(first + number) {
            pipeline.add_command(command);
        }
        async move {
            let done: Vec<u64> = pipeline.query_async(&mut bare).await.unwrap();
            assert!(done.iter().all(|&done| done == 1));
        }
    };
    each(callers, count, call).await;
}

async fn connect(subject: &Subject<Server>) -> MultiplexedConnection {
    let client = Client::open(subject.server.url()).unwrap();
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// Fills the bare sorted sets with the resting timers of the store.
pub(crate) async fn fill(subject: &Subject<Server>, callers: usize, resting: usize) {
    let start = SystemTime::now();
    let both = move |number| vec![zadd(start, number), hset(number)];
    run(&connect(subject).await, callers, 0, resting, both).await;
}

/// Measures rounds of all sides, in alternating order.
pub(crate) async fn measure(
    subject: &Subject<Server>,
    callers: usize,
    extent: Extent,
) -> Pipelining {
    let Extent { resting, rounds, count } = extent;
    let (bare, start) = (connect(subject).await, SystemTime::now());
    let trial = Trial { subject, bare, start, callers, first: resting, count };
    let (mut schedule, mut cancel) = (Beside::default(), Beside::default());
    for round in 0..rounds {
        trial.round(round % 2 == 1, &mut schedule, &mut cancel).await;
    }
    Pipelining { resting, callers, schedule, cancel }
}
