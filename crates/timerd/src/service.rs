//! [`Service`], which runs all parts together.

#![forbid(unsafe_code)]

use super::alerts::Alerts;
use super::api::{App, router};
use super::audit::Audit;
use super::call::{Caller, POOLED, Secrets, Spans};
use super::config::{Arguments, Config, DeadLetterBounds, Limits};
use super::error::StartError;
use super::gate::{Gate, count};
use super::guard::{Guard, Resolver, system_resolver};
use super::health::Health;
use super::metrics;
use super::page::{self, Sessions};
use super::rights::Store;
use super::runs::History;
use super::serve::{Bounds, Listener, Served, serve};
use super::tasks::{keep, stopped};
use super::tokens::{NewToken, TokenError, Tokens};
use axum::middleware::{from_fn, from_fn_with_state};
use metrics_exporter_prometheus::PrometheusHandle;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tourbillon_durable::text::{Address, AddressText};
use tourbillon_durable::{Delivery, DurableError, DurableTimers, StoreOptions};

/// The default store of a service.
const STORE: &str = "timers.db";

/// How long a stopping service waits for requests and calls.
const STOP: Duration = Duration::from_secs(10);

/// How long a stopping service waits for the store to accept the outcomes of calls.
const END: Duration = Duration::from_secs(13);

/// How long a stopping service sends the alerts that wait, once its calls have ended.
const ALERTS: Duration = Duration::from_secs(1);

/// How long a stopping service waits for its health check.
const UNMARKED: Duration = Duration::from_secs(1);

/// The number of descriptors that are reserved for the store, the history and the process itself.
const RESERVED: usize = 128;

/// The minimum number of connections. A service does not start with fewer.
const MIN_CONNECTIONS: usize = 16;

/// The maximum duration of an attempt, a minute more than the maximum time limit of a call.
const MAX_ATTEMPT: Duration = Duration::from_secs(660);

/// A running service.
pub struct Service {
    address: SocketAddr,
    front: Front,
    served: watch::Sender<Served>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    working: JoinHandle<()>,
    /// Sends alerts, and is empty if there are none.
    alerting: JoinSet<()>,
    background: JoinSet<()>,
}

/// The parts of the API and the page that a reload does not replace.
struct Front {
    app: App,
    timers: DurableTimers,
    sessions: Sessions,
    own_token: Option<OwnToken>,
    alerts: Option<Arc<Alerts>>,
    /// The number of concurrent calls, which the store and the worker have from the start.
    calls: usize,
}

/// A token that is not in the configuration file.
enum OwnToken {
    /// The operator passed the token to the process.
    Given(String),
    /// The service created the token, and accepts it while the configuration has none.
    Made(String),
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Service {
    /// Opens the store and starts serving.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be opened, the service cannot listen on the address, or the
    /// configuration cannot be used.
    pub async fn start(arguments: &Arguments, config: &Config) -> Result<Self, StartError> {
        Self::start_with(arguments, config, system_resolver()).await
    }

    /// Starts like [`start`](Self::start), with another resolver for the hosts of webhooks.
    ///
    /// # Errors
    ///
    /// Fails like [`start`](Self::start).
    pub async fn start_with(
        arguments: &Arguments,
        config: &Config,
        resolver: Resolver,
    ) -> Result<Self, StartError> {
        let own_token = OwnToken::new(arguments, config)?;
        let calls = config.webhooks.concurrency.get();
        let rules = Rules::of(config, own_token.as_ref(), calls)?;
        let sessions = Sessions::new(arguments, &config.page)?;
        let guard = Guard::new(&config.webhooks, &arguments.allow, resolver)?;
        let secrets = Secrets::try_from(&config.secrets)?;
        let metrics = metrics::install();
        let caller = Caller::new(&config.webhooks, guard, secrets, Spans::from_environment()?);
        let alerts = config.alerts.as_ref().map(|settings| Alerts::new(settings, &caller));
        let alerts = alerts.transpose()?.map(Arc::new);
        let (pool, caller) = (Arc::clone(&caller.pool), Arc::new(caller));
        let (place, timers) = open_store(arguments, config).await?;
        let history = History::new(&timers, &config.history);
        let failed = |error| StartError::Listen(arguments.listen.clone(), error);
        let listener = TcpListener::bind(&arguments.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;

        let store = place.label();
        let health = Arc::new(Health::new(&store));
        let (stop, stops) = watch::channel(false);
        let mut background = JoinSet::new();
        background.spawn(keep::<Infallible, _>("pool", stops.clone(), move || {
            let pool = Arc::clone(&pool);
            async move { pool.watch().await }
        }));
        watch_store(&mut background, &timers, &health, &metrics, &store, &stops);
        let mut alerting = JoinSet::new();
        if let Some(alerts) = &alerts {
            watch_runs(&mut background, &timers, alerts, &stops);
            alerting.spawn(send_alerts(alerts, &caller, &timers, &stops));
        }

        let work = Work {
            timers: timers.clone(),
            caller: Arc::clone(&caller),
            history: history.clone(),
            alerts: alerts.clone(),
            store,
            concurrency: calls,
            stops: stops.clone(),
        };
        let working = keep("worker", stops.clone(), move || work.clone().run());
        let working = tokio::spawn(working);
        let audit = Arc::new(Audit::new());
        let app = App { timers: Store::new(&timers), health, caller, history, audit, metrics };
        let front = Front { app, timers, sessions, own_token, alerts, calls };
        let (served, serves) = watch::channel(front.served(rules));
        let serving = tokio::spawn(serving(listener, serves, stops));
        Ok(Self { address, front, served, stop, serving, working, alerting, background })
    }

    /// Returns the address that the service listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the token that the service created, if none was configured.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        match &self.front.own_token {
            Some(OwnToken::Made(token)) => Some(token),
            Some(OwnToken::Given(_)) | None => None,
        }
    }

    /// Applies the tokens, request limits and secrets of another configuration, without
    /// interrupting the service. Requests and calls that have begun end under the old
    /// configuration.
    ///
    /// # Errors
    ///
    /// Fails if the configuration cannot be used. The service then keeps its current configuration.
    pub fn reload(&self, config: &Config) -> Result<(), StartError> {
        let rules = Rules::of(config, self.front.own_token.as_ref(), self.front.calls)?;
        self.front.app.caller.reload(Secrets::try_from(&config.secrets)?);
        self.served.send_replace(self.front.served(rules));
        tracing::info!("the configuration was read again");
        Ok(())
    }

    /// Stops the service. Requests and calls that have begun have ten seconds to end. Calls that
    /// run longer are given back to the store and made again.
    pub async fn stop(mut self) {
        let begun = Instant::now();
        self.stop.send_replace(true);
        tokio::join!(
            end(&mut self.serving, STOP, "some requests did not end in time"),
            end(
                &mut self.working,
                END,
                "the store did not accept the outcomes of all calls in time"
            ),
        );
        self.end_alerts(begun + END).await;
        self.background.shutdown().await;
        let Front { app: App { health, caller, .. }, timers, .. } = &self.front;
        caller.spans.end().await;
        // The health check may have been in the middle of a write.
        let _ = tokio::time::timeout(UNMARKED, health.unmark(timers)).await;
    }

    /// Sends the alerts that wait. A receiver of alerts that is slow does not hold the service up.
    async fn end_alerts(&mut self, until: Instant) {
        if let Some(alerts) = &self.front.alerts {
            alerts.close();
            let limit = until.saturating_duration_since(Instant::now()).min(ALERTS);
            if tokio::time::timeout(limit, self.alerting.join_next()).await.is_err() {
                tracing::warn!("some alerts were not sent in time");
            }
        }
        self.alerting.shutdown().await;
    }
}

/// Opens the store, and returns it with its address.
async fn open_store(
    arguments: &Arguments,
    config: &Config,
) -> Result<(Address, DurableTimers), StartError> {
    let place = arguments.store.store.as_ref().map(AddressText::parse).transpose();
    let place = place?.or_else(|| config.store.clone());
    let place = place.unwrap_or_else(|| Address::File(STORE.into()));
    let DeadLetterBounds { most, age } = config.dead_letters;
    let options = StoreOptions::new().max_dead_letters(most).max_dead_letter_age(age);
    let timers = arguments.store.open_with(&place, options).await?;
    Ok((place, timers))
}

/// Watches the health and the metrics of the store until the service stops.
fn watch_store(
    tasks: &mut JoinSet<()>,
    timers: &DurableTimers,
    health: &Arc<Health>,
    metrics: &PrometheusHandle,
    store: &str,
    stops: &watch::Receiver<bool>,
) {
    let (watched, health) = (timers.clone(), Arc::clone(health));
    tasks.spawn(keep::<Infallible, _>("health", stops.clone(), move || {
        let (timers, health) = (watched.clone(), Arc::clone(&health));
        async move { health.watch(&timers).await }
    }));
    let (counted, handle, label) = (timers.clone(), metrics.clone(), store.to_owned());
    tasks.spawn(keep::<Infallible, _>("metrics", stops.clone(), move || {
        let (timers, label, handle) = (counted.clone(), label.clone(), handle.clone());
        async move { metrics::watch(&timers, &label, &handle).await }
    }));
}

/// Looks for runs that were missed until the service stops.
fn watch_runs(
    tasks: &mut JoinSet<()>,
    timers: &DurableTimers,
    alerts: &Arc<Alerts>,
    stops: &watch::Receiver<bool>,
) {
    let (timers, alerts) = (timers.clone(), Arc::clone(alerts));
    tasks.spawn(keep::<Infallible, _>("missed_runs", stops.clone(), move || {
        let (timers, alerts) = (timers.clone(), Arc::clone(&alerts));
        async move { alerts.watch(timers).await }
    }));
}

/// Sends alerts until all are sent after the service has stopped.
fn send_alerts(
    alerts: &Arc<Alerts>,
    caller: &Arc<Caller>,
    timers: &DurableTimers,
    stops: &watch::Receiver<bool>,
) -> impl Future<Output = ()> + use<> {
    let (alerts, caller, timers) = (Arc::clone(alerts), Arc::clone(caller), timers.clone());
    keep::<Infallible, _>("alerts", stops.clone(), move || {
        let (alerts, caller, timers) = (Arc::clone(&alerts), Arc::clone(&caller), timers.clone());
        async move {
            alerts.send(&caller, &timers).await;
            Ok(())
        }
    })
}

/// The settings of a configuration that apply to requests.
struct Rules {
    tokens: Tokens,
    limits: Limits,
    /// The maximum number of connections.
    connections: usize,
}

impl Rules {
    fn of(config: &Config, own: Option<&OwnToken>, calls: usize) -> Result<Self, StartError> {
        let (tokens, connections) = (accepted(config, own)?, connections(&config.limits, calls)?);
        Ok(Self { tokens, limits: config.limits.clone(), connections })
    }
}

impl Front {
    /// Returns the routes of the API and the page, and their bounds.
    fn served(&self, Rules { tokens, limits, connections }: Rules) -> Served {
        let gate = Arc::new(Gate::new(tokens, &limits, Arc::clone(&self.app.audit)));
        let web = page::web(&self.app, &self.timers);
        let pages = page::router(
            web.clone(),
            Arc::clone(&self.app.caller),
            Arc::clone(&gate),
            self.sessions.clone(),
        );
        let router = router(self.app.clone(), gate, &limits).merge(pages);
        let router = router.layer(from_fn_with_state(web, page::show_problems));
        let router = router.layer(from_fn(count));
        Served { router, bounds: Bounds { connections, timeout: limits.timeout } }
    }
}

/// Serves requests until the service stops.
fn serving(
    listener: TcpListener,
    served: watch::Receiver<Served>,
    stops: watch::Receiver<bool>,
) -> impl Future<Output = ()> {
    let (listener, ends) = (Listener::new(Some(listener).into()), stops.clone());
    keep::<Infallible, _>("server", stops, move || {
        let served = serve(Arc::clone(&listener), served.clone(), ends.clone());
        async move {
            served.await;
            Ok(())
        }
    })
}

/// Waits for a task to end, and aborts it after a time limit.
async fn end<T>(task: &mut JoinHandle<T>, limit: Duration, aborted: &str) {
    if tokio::time::timeout(limit, &mut *task).await.is_err() {
        tracing::warn!("{aborted}");
        task.abort();
    }
}

/// The parts of the service that the worker uses.
#[derive(Clone)]
struct Work {
    timers: DurableTimers,
    caller: Arc<Caller>,
    history: History,
    alerts: Option<Arc<Alerts>>,
    /// The name of the store in metrics.
    store: String,
    concurrency: usize,
    stops: watch::Receiver<bool>,
}

impl Work {
    /// Calls due webhooks until the service stops.
    async fn run(self) -> Result<(), DurableError> {
        let Self { timers, caller, history, alerts, store, concurrency, stops } = self;
        let worker = timers.worker().concurrency(concurrency).metrics(&store);
        let worker = worker.time_limit(MAX_ATTEMPT);
        let worker = worker.until_within(stopped(stops), STOP);
        let called = move |mut delivery: Delivery| {
            let caller = Arc::clone(&caller);
            async move {
                let span = caller.spans.begin(&mut delivery);
                let (verdict, status) = caller.deliver(&delivery).await;
                span.end(&verdict, status);
                if let Some(status) = status {
                    delivery.note_status(status.as_u16());
                }
                verdict
            }
        };
        let worker = worker.log(history.log()).observe(move |event| {
            history.note(event);
            if let Some(alerts) = &alerts {
                alerts.note(event);
            }
        });
        worker.run(called).await
    }
}

/// Returns the maximum number of connections. It leaves enough descriptors for the store and for
/// calls. A call may need a descriptor for its connection and another for its resolver.
fn connections(limits: &Limits, calls: usize) -> Result<usize, StartError> {
    let failed = |error| StartError::System("read the limit of open files", error);
    let (open, _) = rlimit::Resource::NOFILE.get().map_err(failed)?;
    let needed = calls.saturating_mul(2).saturating_add(POOLED + RESERVED);
    let left = usize::try_from(open).unwrap_or(usize::MAX).saturating_sub(needed);
    if left < MIN_CONNECTIONS {
        let least = needed.saturating_add(MIN_CONNECTIONS);
        return Err(StartError::Files { open, calls, needed, least });
    }
    Ok(left.min(limits.connections.get()))
}

/// Returns the accepted tokens. Fails if there is no token.
fn accepted(config: &Config, own: Option<&OwnToken>) -> Result<Tokens, TokenError> {
    let mut tokens = Tokens::new(&config.tokens)?;
    match own {
        Some(OwnToken::Given(token)) => tokens.add("TIMERD_TOKEN", token)?,
        Some(OwnToken::Made(token)) if tokens.is_empty() => tokens.add("start", token)?,
        Some(OwnToken::Made(_)) | None => {}
    }
    match tokens.is_empty() {
        true => Err(TokenError::Missing),
        false => Ok(tokens),
    }
}

impl OwnToken {
    /// Returns the token in the arguments, or creates a token if the configuration has no token
    /// either.
    fn new(arguments: &Arguments, config: &Config) -> Result<Option<Self>, getrandom::Error> {
        if let Some(token) = &arguments.token {
            return Ok(Some(Self::Given(token.clone())));
        }
        if !config.tokens.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self::Made(NewToken::random()?.text)))
    }
}
