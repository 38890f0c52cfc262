//! [`run`], which simulates a fleet: servers, workers, callers and faults.

use super::audit::{Audit, CONCURRENCY, Summary};
use super::faults::{Kind, MOST_AHEAD, Plan, Setting};
use super::network::Cluster;
use super::process::Process;
use super::server::Server;
use super::store::Simulated;
use super::workload::{Handling, handle};
use super::world::{MILLISECOND, Nanos, SECOND, World};
use crate::api::timers::DurableTimers;
use crate::model::event::{Event, Outcome};
use crate::panics::ignore_poison;
use futures_channel::oneshot;
use std::sync::{Arc, Mutex, MutexGuard};

/// How often the servers are looked at.
const LOOK: Nanos = 100 * MILLISECOND;

/// The time within which all workers start.
const STARTED: Nanos = 3 * SECOND;

/// The greatest drift of a clock, in parts per million.
const DRIFT: i64 = 200;

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
pub(crate) struct Fleet {
    pub(crate) world: World,
    pub(crate) audit: Arc<Audit>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) setting: Setting,
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
}
