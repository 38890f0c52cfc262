//! The workload on tourbillon-durable. `lab/durable/node/workload.js` runs the same one.

use crate::Settings;
use crate::report::Figures;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon_durable::{AnyStore, DurableTimers, Embedded, Options, Postgres, Redis};
use tourbillon_durable_measure::each;

const HOUR: Duration = Duration::from_secs(3600);

/// The time from the insert of a timer until it is due, while the lateness is measured.
const AHEAD: Duration = Duration::from_secs(2);

/// Runs the workload on the store at the address.
pub(crate) fn run(settings: &Settings) -> Figures {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store: AnyStore = if settings.url.starts_with("redis:") {
            Redis::connect(&settings.url, "timers").await.unwrap().into()
        } else if settings.url.starts_with("postgres:") {
            Postgres::connect(&settings.url, "timers").await.unwrap().into()
        } else {
            Embedded::open(&settings.url).unwrap().into()
        };
        let timer = Timer::spawn(Builder::new().driver()).unwrap();
        let workload =
            Workload { timers: DurableTimers::new(store, &timer), payload: settings.payload };
        workload.run(settings).await
    })
}

#[derive(Clone)]
struct Workload {
    timers: DurableTimers,
    payload: usize,
}

impl Workload {
    async fn run(&self, settings: &Settings) -> Figures {
        let Settings { callers, count, ref rates, seconds, .. } = *settings;
        let due = SystemTime::now() + HOUR;
        let workload = self.clone();
        let insert = rate(callers, count, move |number| {
            let workload = workload.clone();
            async move { workload.insert(&format!("single {number}"), due).await }
        });
        let insert = insert.await;
        let timers = self.timers.clone();
        let cancel = rate(callers, count, move |number| {
            let timers = timers.clone();
            async move { _ = timers.cancel(&format!("single {number}")).await.unwrap() }
        });
        let cancel = cancel.await;
        let (late, (end, ends)) = (Arc::new(Mutex::new(Vec::new())), oneshot::channel::<()>());
        let (seen, worker) = (Arc::clone(&late), self.timers.worker().concurrency(256));
        let worker = worker.until(async move { drop(ends.await) }).run(move |delivery| {
            let late = SystemTime::now().duration_since(delivery.planned).expect("never early");
            seen.lock().unwrap().push(late.as_secs_f64() * 1000.0);
            std::future::ready(Ok::<(), String>(()))
        });
        let worker = tokio::spawn(worker);
        let mut all = Vec::new();
        for &rate in rates {
            all.push(self.lateness(&late, rate, rate * seconds).await);
        }
        drop(end);
        worker.await.unwrap().unwrap();
        Figures { insert, bulk: None, cancel, late: all }
    }

    async fn insert(&self, id: &str, due: SystemTime) {
        let since = due.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let payload =
            format!("{{\"due\":{},\"text\":\"{}\"}}", since.as_millis(), "x".repeat(self.payload));
        self.timers.insert(id, payload, due, Options::new()).await.unwrap();
    }

    /// Inserts timers at a constant rate and waits for their deliveries. Returns the quantiles of
    /// their lateness.
    async fn lateness(&self, late: &Mutex<Vec<f64>>, rate: usize, count: usize) -> [f64; 3] {
        let start = SystemTime::now() + AHEAD;
        let step = Duration::from_secs(1) / u32::try_from(rate).unwrap();
        let (mut due, mut number, mut inserts) = (start, 0, tokio::task::JoinSet::new());
        while number < count {
            while number < count && due < SystemTime::now() + AHEAD {
                let (workload, id) = (self.clone(), format!("late {rate} {number}"));
                inserts.spawn(async move { workload.insert(&id, due).await });
                (due, number) = (due + step, number + 1);
            }
            sleep(Duration::from_millis(5)).await;
        }
        while let Some(inserted) = inserts.join_next().await {
            inserted.unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while late.lock().unwrap().len() < count && Instant::now() < deadline {
            sleep(Duration::from_millis(10)).await;
        }
        let mut late = std::mem::take(&mut *late.lock().unwrap());
        assert_eq!(late.len(), count, "each is delivered once");
        late.sort_unstable_by(f64::total_cmp);
        [late[count / 2], late[count * 99 / 100], late[count - 1]]
    }
}

/// Calls `call` with each number below `count`. Returns the calls per second.
async fn rate<F>(
    callers: usize,
    count: usize,
    call: impl Fn(usize) -> F + Send + Sync + 'static,
) -> f64
where
    F: Future<Output = ()> + Send,
{
    let begun = Instant::now();
    each(callers, count, call).await;
    count as f64 / begun.elapsed().as_secs_f64()
}
