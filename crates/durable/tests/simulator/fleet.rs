//! [`run`], which simulates a fleet: servers, workers, callers and faults.

use super::audit::{Audit, CONCURRENCY, Summary};
use super::faults::{Kind, MOST_AHEAD, Plan, Setting};
use super::network::Cluster;
use super::server::Server;
use super::store::Simulated;
use super::world::{MILLISECOND, Nanos, Process, SECOND, World};
use crate::api::timers::DurableTimers;
use crate::delivery::attempt::Delivery;
use crate::error::DurableError;
use crate::model::backoff::Backoff;
use crate::model::event::{Event, Outcome};
use crate::model::options::{Existing, Options};
use crate::model::verdict::Verdict;
use crate::panics::ignore_poison;
use crate::store::{Cancelled, Inserted};
use futures_channel::oneshot;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tourbillon::future::Timer;

/// How often the servers are looked at.
const LOOK: Nanos = 100 * MILLISECOND;

/// The time within which all workers start.
const STARTED: Nanos = 3 * SECOND;

/// The greatest drift of a clock, in parts per million.
const DRIFT: i64 = 200;

/// The handlers, by the first byte of a payload.
const KINDS: u8 = 12;
const SLOW: u8 = 7;
const LONGER_THAN_THE_LEASE: u8 = 8;
const FAILS_ONCE: u8 = 9;
const FAILS: u8 = 10;
const PANICS_ONCE: u8 = 11;

/// The lease of each timer.
const LEASE: Duration = Duration::from_secs(4);

/// Simulates a fleet. Returns the first violation of a promise, if there is one.
pub(crate) fn run(plan: &Plan) -> Result<Summary, String> {
    let world = World::new(plan.seed);
    let disturbances = plan.faults.iter().filter_map(|fault| fault.disturbs());
    let audit = Audit::new(&world, disturbances.chain([(0, STARTED)]).collect());
    let server = |_| {
        let (ahead, drift) = world.draw(|random| {
            (random.i64(-MOST_AHEAD / 2..=MOST_AHEAD / 2), random.i64(-DRIFT..=DRIFT))
        });
        Server::new(&world, &audit, ahead, drift)
    };
    let servers: Vec<Server> = (0..plan.setting.servers).map(server).collect();
    audit.set_reference(servers[0].ahead);
    let cluster = Cluster::new(&world, &audit, servers);
    let workers = (0..plan.setting.workers).map(|_| Mutex::new(None)).collect();
    let fleet = Arc::new(Fleet { world, audit, cluster, setting: plan.setting, workers });
    fleet.go(plan)
}

/// The parts of a simulation.
struct Fleet {
    world: World,
    audit: Arc<Audit>,
    cluster: Arc<Cluster>,
    setting: Setting,
    workers: Vec<Mutex<Option<RunningWorker>>>,
}

/// A worker in its process.
struct RunningWorker {
    process: Arc<Process>,
    /// Dropped to ask the worker to end.
    end: Option<oneshot::Sender<()>>,
}

impl Fleet {
    fn go(self: Arc<Self>, plan: &Plan) -> Result<Summary, String> {
        for worker in 0..self.setting.workers {
            let (fleet, delay) =
                (Arc::clone(&self), self.world.draw(|random| random.u64(..STARTED)));
            self.world.after(delay, move || fleet.start(worker));
        }
        self.plan_faults(plan);
        let callers = self.insert_timers();
        for step in 1..=self.setting.length / LOOK {
            self.world.run_until(step * LOOK);
            self.look(plan);
            if self.audit.has_failed() {
                break;
            }
        }
        if !self.audit.has_failed() {
            let left =
                (0..self.cluster.servers()).map(|server| self.cluster.with(server, |it| it.len()));
            self.audit.check_end(left.sum());
        }
        callers.kill();
        for worker in 0..self.setting.workers {
            self.kill(worker);
        }
        self.audit.verdict()
    }

    /// Looks at the servers.
    fn look(&self, plan: &Plan) {
        let now = self.world.now();
        let stops = plan.faults.iter().any(|fault| {
            fault.stops_heartbeats() && (fault.begin..fault.end() + 3 * SECOND).contains(&now)
        });
        let live: Vec<u64> = (0..self.setting.workers)
            .filter_map(|worker| {
                let worker = self.worker(worker);
                let process = &worker.as_ref()?.process;
                let lives = !process.is_dead() && !process.is_paused();
                lives.then_some(process.number)
            })
            .collect();
        for partition in 0..self.setting.partitions {
            let server = self.cluster.server_of(partition);
            let oldest = self.cluster.with(server, |server| server.oldest(partition));
            if let Some((late, id, ahead)) = oldest {
                self.audit.check_oldest(&id, late, ahead);
            }
            let owner = self.cluster.with(0, |server| server.owner(partition));
            let is_owned = owner.is_some_and(|process| live.contains(&process));
            self.audit.check_owner(
                partition,
                is_owned,
                stops || live.is_empty() || now < 5 * SECOND,
            );
        }
    }

    fn worker(&self, worker: usize) -> MutexGuard<'_, Option<RunningWorker>> {
        ignore_poison(self.workers[worker].lock())
    }

    /// Starts a worker, unless it runs.
    fn start(self: &Arc<Self>, worker: usize) {
        let mut place = self.worker(worker);
        if place.as_ref().is_some_and(|worker| !worker.process.is_dead()) {
            return;
        }
        let drift = self.world.draw(|random| random.i64(-DRIFT..=DRIFT));
        let process = Process::start(&self.world, drift);
        let store = Simulated::connect(&self.cluster, &process, self.setting.partitions);
        let timers = DurableTimers::new(store, &process.timer);
        let (end, ends) = oneshot::channel::<()>();
        let audit = Arc::clone(&self.audit);
        let observe = move |event: &Event| {
            if let Event::Attempt(attempt) = event
                && attempt.outcome == Outcome::Acknowledged
            {
                audit.reported(&attempt.id);
            }
        };
        let until = async move {
            let _ = ends.await;
        };
        let runs = timers.worker().concurrency(CONCURRENCY).observe(observe).until(until);
        let (audit, timer) = (Arc::clone(&self.audit), process.timer.clone());
        let (number, ends) = (process.number, Arc::clone(&process));
        let run = runs.run(move |delivery| {
            handle(Handling::begin(&audit, number, &delivery), timer.clone(), delivery)
        });
        let (audit, world) = (Arc::clone(&self.audit), self.world.clone());
        process.spawn(async move {
            if let Err(error) = run.await {
                audit.violated(format!("a worker has failed: {error}"));
            }
            drop(timers);
            world.after(0, move || ends.kill());
        });
        *place = Some(RunningWorker { process, end: Some(end) });
    }

    fn kill(&self, worker: usize) {
        if let Some(worker) = self.worker(worker).take() {
            worker.process.kill();
            self.audit.check_tasks(worker.process.most_tasks(), self.setting.partitions);
        }
    }

    fn plan_faults(self: &Arc<Self>, plan: &Plan) {
        for fault in &plan.faults {
            let (fleet, kind, end) = (Arc::clone(self), fault.kind, fault.end());
            self.world.at(fault.begin, move || fleet.begin(kind, end));
        }
    }

    /// Begins a fault, and plans its end.
    fn begin(self: &Arc<Self>, kind: Kind, end: Nanos) {
        self.world.note(("fault", format!("{kind:?}")));
        let (fleet, world, cluster) = (Arc::clone(self), &self.world, Arc::clone(&self.cluster));
        match kind {
            Kind::Kill { worker } => {
                self.kill(worker);
                world.at(end, move || fleet.start(worker));
            }
            Kind::Leave { worker } => {
                if let Some(worker) = &mut *self.worker(worker) {
                    worker.end = None;
                }
                world.at(end, move || fleet.start(worker));
            }
            Kind::Suspend { worker } => {
                let process = self.worker(worker).as_ref().map(|it| Arc::clone(&it.process));
                let Some(process) = process else { return };
                process.set_paused(true);
                self.audit.suspended(process.number, true);
                world.at(end, move || {
                    fleet.audit.suspended(process.number, false);
                    process.set_paused(false);
                });
            }
            Kind::Cut { worker, server } => self.cut(worker, &[server], end),
            Kind::Isolate { worker } => {
                let servers: Vec<usize> = (0..cluster.servers()).collect();
                self.cut(worker, &servers, end);
            }
            Kind::Faulty { share } => {
                cluster.set_faulty(share);
                world.at(end, move || cluster.set_faulty(0));
            }
            Kind::Slow { most } => {
                cluster.set_slow(most);
                world.at(end, move || cluster.set_slow(0));
            }
            Kind::Stall { server } => cluster.stand_until(server, end),
            Kind::Crash { server } => {
                cluster.set_down(server, true);
                world.at(end, move || cluster.set_down(server, false));
            }
            Kind::FailOver { server, ahead } => {
                cluster.set_down(server, true);
                world.at(end, move || {
                    cluster.with(server, |server| server.ahead = ahead);
                    if server == 0 {
                        fleet.audit.set_reference(ahead);
                    }
                    cluster.set_down(server, false);
                });
            }
            Kind::Full { server } => {
                cluster.with(server, |server| server.is_full = true);
                world.at(end, move || cluster.with(server, |server| server.is_full = false));
            }
        }
    }

    fn cut(&self, worker: usize, servers: &[usize], end: Nanos) {
        let Some(number) = self.worker(worker).as_ref().map(|it| it.process.number) else { return };
        let set = move |cluster: &Cluster, servers: &[usize], cut| {
            servers.iter().for_each(|server| cluster.set_cut(number, *server, cut));
        };
        set(&self.cluster, servers, true);
        let (cluster, servers) = (Arc::clone(&self.cluster), servers.to_vec());
        self.world.at(end, move || set(&cluster, &servers, false));
    }

    /// Starts the process that inserts timers, and changes some of them.
    fn insert_timers(self: &Arc<Self>) -> Arc<Process> {
        let process = Process::start(&self.world, 0);
        let store = Simulated::connect(&self.cluster, &process, self.setting.partitions);
        let timers = DurableTimers::new(store, &process.timer);
        let seconds = self.setting.length / SECOND - 120;
        for number in 0..self.setting.timers {
            let (inserted, delay, kind, change) = self.world.draw(|random| {
                let due = random.u64(..seconds * 1000);
                // Some are due soon, and some about where the windows of workers end.
                let delay = match random.u32(..3) {
                    0 => random.u64(..5000),
                    1 => random.u64(9000..12_000),
                    _ => random.u64(..=due),
                };
                let delay = delay.min(due);
                let change = (random.u32(..5) == 0).then(|| random.u64(..=delay + 100));
                (due - delay, delay, random.u8(..KINDS), change)
            });
            let (timers, timer) = (timers.clone(), process.timer.clone());
            let audit = Arc::clone(&self.audit);
            let resets = self.world.draw(|random| random.bool());
            process.spawn(async move {
                let millis = Duration::from_millis;
                let _ = timer.sleep(millis(inserted)).await;
                let id = format!("timer {number}");
                insert(&timers, &audit, &id, kind, millis(delay)).await;
                let Some(change) = change else { return };
                let _ = timer.sleep(millis(change)).await;
                match resets {
                    true => drop(timers.reset(&id, millis(delay.min(20_000) / 2)).await),
                    false => cancel(&timers, &audit, &id).await,
                }
            });
        }
        process
    }
}

async fn insert(timers: &DurableTimers, audit: &Audit, id: &str, kind: u8, delay: Duration) {
    let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(2));
    let options = Options::new().existing(Existing::Refuse).lease(LEASE).backoff(backoff);
    // So many attempts fail because of faults.
    let options = options.attempts(if kind == FAILS { 2 } else { 1000 });
    match timers.insert(id, vec![kind], delay, options).await.map_err(|error| error.reason) {
        Ok(Inserted::New) => audit.inserted(id),
        Err(DurableError::Unreachable(_) | DurableError::ReadOnly(_)) => {}
        other => audit.violated(format!("the insert of {id} was answered with {other:?}")),
    }
}

async fn cancel(timers: &DurableTimers, audit: &Audit, id: &str) {
    match timers.cancel(id).await {
        Ok(Cancelled::Removed) => audit.cancelled(id, true),
        Ok(Cancelled::Running) => audit.cancelled(id, false),
        Ok(Cancelled::NotFound) => audit.not_found(id),
        Err(_) => audit.may_be_cancelled(id),
    }
}

/// A handler that runs.
struct Handling {
    audit: Arc<Audit>,
    process: u64,
    id: Arc<str>,
    attempt: u32,
}

impl Handling {
    fn begin(audit: &Arc<Audit>, process: u64, delivery: &Delivery) -> Self {
        let (id, attempt) = (Arc::from(&*delivery.id), delivery.attempt);
        audit.begun(process, &id, attempt);
        Self { audit: Arc::clone(audit), process, id, attempt }
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        self.audit.ended(self.process, &self.id, self.attempt);
    }
}

async fn handle(_handling: Handling, timer: Timer, delivery: Delivery) -> Verdict {
    let kind = delivery.payload.first().copied().unwrap_or(0);
    let is_first = delivery.attempt == 1;
    let takes = match kind {
        SLOW => 2500,
        LONGER_THAN_THE_LEASE => 9000,
        kind => u64::from(kind) * 5,
    };
    let _ = timer.sleep(Duration::from_millis(takes)).await;
    match kind {
        FAILS => Verdict::Retry("fails".to_owned()),
        FAILS_ONCE if is_first => Verdict::Retry("fails once".to_owned()),
        PANICS_ONCE if is_first => std::panic::resume_unwind(Box::new("panics once")),
        _ => Verdict::Done,
    }
}
