//! [`run`], which simulates a fleet: servers, workers, callers and faults.

use super::audit::{Audit, PermitChange, Summary};
use super::faults::{Fault, Kind, MOST_AHEAD};
use super::network::{Cluster, Way};
use super::plan::{Plan, Setting};
use super::process::Process;
use super::server::{Server, ServerClock};
use super::store::Simulated;
use super::workload::{Handling, handle};
use super::world::{MILLISECOND, Nanos, SECOND, World};
use crate::api::timers::DurableTimers;
use crate::model::event::{Event, Outcome};
use crate::panics::ignore_poison;
use futures_channel::oneshot;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The interval between two looks at the servers.
pub(crate) const LOOK: Nanos = 250 * MILLISECOND;

/// The time within which all workers start.
const STARTED: Nanos = 3 * SECOND;

/// The greatest drift of a clock, in parts per million.
const DRIFT: i64 = 200;

/// Simulates a fleet. Returns the first violation of a promise, if there is one.
pub(crate) fn run(plan: &Plan) -> Result<Summary, String> {
    Fleet::new(plan).go(plan)
}

/// The parts of a simulation.
pub(crate) struct Fleet {
    pub(crate) world: World,
    pub(crate) audit: Arc<Audit>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) setting: Setting,
    concurrency: usize,
    faults: Vec<Fault>,
    workers: Vec<Mutex<Option<RunningWorker>>>,
}

/// A worker in its process.
struct RunningWorker {
    process: Arc<Process>,
    /// Dropped to ask the worker to end.
    end: Option<oneshot::Sender<()>>,
    /// The additional time of each handler.
    drag: Arc<AtomicU64>,
}

impl Fleet {
    /// Creates a fleet with idle servers.
    pub(crate) fn new(plan: &Plan) -> Arc<Self> {
        let world = World::new(plan.seed);
        let audit = Audit::new(&world, plan, STARTED);
        let server = |place| {
            let clock = world.draw(|random| ServerClock {
                ahead: random.i64(-MOST_AHEAD / 2..=MOST_AHEAD / 2),
                drift: random.i64(-DRIFT..=DRIFT),
            });
            Server::new(&world, &audit, place, clock)
        };
        let servers: Vec<Server> = (0..plan.setting.servers).map(server).collect();
        audit.set_reference(servers[0].clock);
        let cluster = Cluster::new(&world, &audit, servers, plan.latency);
        let workers = (0..plan.setting.workers).map(|_| Mutex::new(None)).collect();
        let (setting, concurrency) = (plan.setting, plan.concurrency);
        let faults = plan.faults.clone();
        Arc::new(Self { world, audit, cluster, setting, concurrency, faults, workers })
    }

    fn go(self: Arc<Self>, plan: &Plan) -> Result<Summary, String> {
        let callers = self.start_all(plan);
        for step in 1..=self.setting.length / LOOK {
            self.world.run_until(step * LOOK);
            self.look();
            if self.audit.has_failed() {
                break;
            }
        }
        self.end_all(&callers)
    }

    /// Starts the workers and the callers, and plans the faults. Returns the callers.
    pub(crate) fn start_all(self: &Arc<Self>, plan: &Plan) -> Arc<Process> {
        for worker in 0..plan.starts {
            let (fleet, delay) =
                (Arc::clone(self), self.world.draw(|random| random.u64(..STARTED)));
            self.world.after(delay, move || fleet.start(worker));
        }
        self.plan_faults();
        self.start_callers(plan)
    }

    /// Ends all processes. Returns the first violation of a promise, if there is one.
    pub(crate) fn end_all(&self, callers: &Process) -> Result<Summary, String> {
        if !self.audit.has_failed() {
            let left = (0..self.cluster.servers())
                .flat_map(|server| self.cluster.with(server, |server| server.timers()));
            self.audit.check_end(&left.collect::<Vec<_>>());
        }
        callers.kill();
        for worker in 0..self.setting.workers {
            self.kill(worker);
        }
        self.audit.verdict()
    }

    /// Looks at the servers.
    pub(crate) fn look(&self) {
        let live: BTreeSet<u64> = (0..self.setting.workers)
            .filter_map(|worker| {
                let worker = self.worker(worker);
                let process = &worker.as_ref()?.process;
                let lives = !process.is_dead() && !process.is_paused();
                lives.then_some(process.number)
            })
            .collect();
        let may_be_orphaned = live.is_empty() || self.heartbeats_fail();
        let now = self.world.now();
        let recent = self.faults.iter().filter(|fault| fault.is_recent(now)).count();
        for partition in 0..self.setting.partitions {
            let place = self.cluster.server_of(partition);
            let oldest = self.cluster.with(place, |server| {
                server.oldest(partition).map(|oldest| (oldest, server.clock))
            });
            if let Some((oldest, clock)) = oldest {
                self.audit.check_oldest(&oldest.id, oldest.late, (place, clock), oldest.written);
            }
            let owner = self.cluster.with(0, |server| server.owner(partition));
            let lives = owner.is_some_and(|process| live.contains(&process));
            match lives || may_be_orphaned {
                true => self.audit.has_owner(partition),
                false => self.audit.check_orphan(partition, owner, recent),
            }
        }
    }

    /// Returns `true` if workers cannot take over partitions.
    fn heartbeats_fail(&self) -> bool {
        let now = self.world.now();
        let mut faults = self.faults.iter();
        let fails = faults.any(|fault| {
            let after = fault.stops_heartbeats();
            after.is_some_and(|after| (fault.begin..fault.end() + after).contains(&now))
        });
        fails || now < 2 * STARTED
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
                audit.reported(&attempt.id, attempt.planned);
            }
        };
        let until = async move {
            let _ = ends.await;
        };
        let runs = timers.worker().concurrency(self.concurrency).observe(observe).until(until);
        let (audit, timer) = (Arc::clone(&self.audit), process.timer.clone());
        let (number, ends) = (process.number, Arc::clone(&process));
        let drag = Arc::new(AtomicU64::new(0));
        let drags = Arc::clone(&drag);
        let run = runs.run(move |delivery| {
            let handling = Handling::begin(&audit, number, &delivery);
            handle(handling, timer.clone(), delivery, Duration::from_nanos(drags.load(Relaxed)))
        });
        let fleet = Arc::clone(self);
        process.spawn(async move {
            if let Err(error) = run.await {
                fleet.audit.violated(format!("a worker has failed: {error}"));
            }
            if !fleet.heartbeats_fail() {
                fleet.audit.check_left(number);
            }
            drop(timers);
            fleet.world.after(0, move || ends.kill());
        });
        *place = Some(RunningWorker { process, end: Some(end), drag });
    }

    fn kill(&self, worker: usize) {
        if let Some(worker) = self.worker(worker).take() {
            worker.process.kill();
            self.audit.permit(worker.process.number, PermitChange::Gone);
            self.audit.check_tasks(worker.process.most_tasks(), self.setting.partitions);
        }
    }

    /// Asks a worker to end.
    fn end(&self, worker: usize) {
        if let Some(worker) = &mut *self.worker(worker) {
            worker.end = None;
            self.audit.permit(worker.process.number, PermitChange::Gone);
        }
    }

    /// Makes a worker slow.
    fn drag(&self, worker: usize, handlers: Nanos, network: Nanos) {
        if let Some(worker) = &*self.worker(worker) {
            worker.drag.store(handlers, Relaxed);
            self.cluster.set_slow_process(worker.process.number, network);
        }
    }

    /// Returns the processes of the workers that run and were not asked to end.
    pub(crate) fn members(&self) -> BTreeSet<u64> {
        let workers = (0..self.setting.workers).filter_map(|worker| {
            let worker = self.worker(worker);
            let worker = worker.as_ref()?;
            let is_member = worker.end.is_some() && !worker.process.is_dead();
            is_member.then_some(worker.process.number)
        });
        workers.collect()
    }

    /// Suspends a worker until a time.
    fn suspend(self: &Arc<Self>, worker: usize, end: Nanos) {
        let process = self.worker(worker).as_ref().map(|it| Arc::clone(&it.process));
        let Some(process) = process else { return };
        process.set_paused(true);
        self.audit.suspended(process.number, true);
        let fleet = Arc::clone(self);
        self.world.at(end, move || {
            fleet.audit.suspended(process.number, false);
            process.set_paused(false);
        });
    }

    fn plan_faults(self: &Arc<Self>) {
        for fault in &self.faults {
            let (fleet, kind, end) = (Arc::clone(self), fault.kind, fault.end());
            if let Kind::Lose { server, lag } = kind {
                let cluster = Arc::clone(&self.cluster);
                self.world.at(fault.begin.saturating_sub(lag), move || {
                    cluster.with(server, Server::replicate);
                });
            }
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
                self.end(worker);
                world.at(end, move || fleet.start(worker));
            }
            Kind::Drag { worker, handlers, network } => self.drag(worker, handlers, network),
            Kind::Suspend { worker } => self.suspend(worker, end),
            Kind::Cut { worker, server } => self.cut(worker, &[server], &[Way::To, Way::Back], end),
            Kind::Mute { worker, server } => self.cut(worker, &[server], &[Way::Back], end),
            Kind::Isolate { worker } => {
                let servers: Vec<usize> = (0..cluster.servers()).collect();
                self.cut(worker, &servers, &[Way::To, Way::Back], end);
            }
            Kind::Faulty { share } => {
                cluster.set_faulty(share);
                world.at(end, move || cluster.set_faulty(0));
            }
            Kind::Slow { most } => {
                cluster.set_slow(most);
                world.at(end, move || cluster.set_slow(0));
            }
            Kind::Unsubscribe { server } => cluster.unsubscribe(server),
            Kind::Stall { server } => cluster.stand_until(server, end),
            Kind::Crash { server } => {
                cluster.set_down(server, true);
                world.at(end, move || cluster.set_down(server, false));
            }
            Kind::FailOver { server, ahead } => {
                cluster.set_down(server, true);
                world.at(end, move || {
                    fleet.set_clock(server, ahead);
                    fleet.cluster.set_down(server, false);
                });
            }
            Kind::Lose { server, .. } => {
                cluster.set_down(server, true);
                world.at(end, move || {
                    cluster.with(server, Server::take_over);
                    cluster.set_down(server, false);
                });
            }
            Kind::Step { server, ahead } => self.set_clock(server, ahead),
            Kind::Full { server } => {
                cluster.with(server, |server| server.is_full = true);
                world.at(end, move || cluster.with(server, |server| server.is_full = false));
            }
            // A caller does that.
            Kind::Pause { .. } => {}
        }
    }

    fn set_clock(&self, place: usize, ahead: i64) {
        let clock = self.cluster.with(place, |server| {
            server.clock.ahead = ahead;
            server.clock
        });
        if place == 0 {
            self.audit.set_reference(clock);
        }
    }

    fn cut(&self, worker: usize, servers: &[usize], ways: &'static [Way], end: Nanos) {
        let Some(number) = self.worker(worker).as_ref().map(|it| it.process.number) else { return };
        let set = move |cluster: &Cluster, servers: &[usize], cut| {
            for server in servers {
                ways.iter().for_each(|way| cluster.set_cut(number, *server, *way, cut));
            }
        };
        set(&self.cluster, servers, true);
        let (cluster, servers) = (Arc::clone(&self.cluster), servers.to_vec());
        self.world.at(end, move || set(&cluster, &servers, false));
    }
}
