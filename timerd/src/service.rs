//! [`Service`], the parts put together and running.

#![forbid(unsafe_code)]

use super::api::{App, router};
use super::call::{Caller, POOLED};
use super::config::{Arguments, Config, DeadLetterBounds, Limits};
use super::figures;
use super::guard::{Resolver, system_resolver};
use super::health::Health;
use super::history;
use super::limits::{Gate, count};
use super::page::{self, Sessions};
use super::runs::Runs;
use super::serve::{Bounds, Listener, serve};
use super::tasks::{keep, stopped};
use super::tokens::{NewToken, TokenError, Tokens};
use axum::Router;
use axum::middleware::from_fn;
use metrics_exporter_prometheus::PrometheusHandle;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use timers::{Address, AddressText, LetterBounds};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tourbillon_durable::{DurableError, DurableTimers};

/// The store of a service to which none was named.
const STORE: &str = "timers.db";

/// The time for which a stopping service waits for requests and calls.
const STOP: Duration = Duration::from_secs(10);

/// The time after which a stopping service ends in any case.
const END: Duration = Duration::from_secs(13);

/// The time for which a stopping service waits for its history.
const RECORDED: Duration = Duration::from_secs(1);

/// The number of descriptors that are left for the store, the history and the process itself.
const RESERVED: usize = 128;

/// The smallest number of connections with which a service starts.
const LEAST_CONNECTIONS: usize = 16;

/// The longest duration of an attempt, a minute more than the longest time limit of a call.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(660);

/// A running service.
pub struct Service {
    address: SocketAddr,
    token: Option<String>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    working: JoinHandle<()>,
    runs: Arc<Runs>,
    recording: JoinHandle<()>,
    background: JoinSet<()>,
    timers: DurableTimers,
    health: Arc<Health>,
    caller: Arc<Caller>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The reason for which a service does not start.
#[derive(Debug)]
pub enum StartError {
    /// The store cannot be opened.
    Store(DurableError),
    /// The address cannot be listened on.
    Listen(String, std::io::Error),
    /// The configuration cannot be used.
    Config(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Listen(address, error) => write!(f, "could not listen on {address}: {error}"),
            Self::Config(what) => write!(f, "invalid configuration: {what}"),
        }
    }
}

impl std::error::Error for StartError {}

impl Service {
    /// Opens the store and starts to serve.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be opened, the address cannot be listened on, or the configuration
    /// cannot be used.
    pub async fn start(arguments: &Arguments, config: &Config) -> Result<Self, StartError> {
        Self::start_with(arguments, config, system_resolver()).await
    }

    /// Like [`start`](Self::start), with another resolver for the hosts of webhooks.
    ///
    /// # Errors
    ///
    /// Fails like [`start`](Self::start).
    pub async fn start_with(
        arguments: &Arguments,
        config: &Config,
        resolver: Resolver,
    ) -> Result<Self, StartError> {
        let (tokens, token) = accepted(arguments, config)?;
        let sessions = Sessions::new(arguments, &config.page).map_err(StartError::Config)?;
        let connections = connections(config)?;
        let figures = figures::install();
        let caller = Caller::new(config, resolver).map_err(StartError::Config)?;
        let (pool, caller) = (Arc::clone(&caller.pool), Arc::new(caller));
        let (place, timers) = open_store(arguments, config).await?;
        let history = history::open(&arguments.store, &place, config.history.clone());
        let failed = |error| StartError::Listen(arguments.listen.clone(), error);
        let listener = TcpListener::bind(&arguments.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;

        let health = Arc::new(Health::new());
        let (stop, stops) = watch::channel(false);
        let mut background = JoinSet::new();
        background.spawn(keep("pool", stops.clone(), move || {
            let pool = Arc::clone(&pool);
            async move { pool.watch().await }
        }));
        let store = place.label();
        watch_store(&mut background, &timers, &health, &figures, &store, &stops);

        let (recorder, queue) = history::recorder(Arc::clone(&history));
        let recording = keep("history", stops.clone(), move || queue.clone().write());
        let recording = tokio::spawn(recording);
        let runs = Arc::new(Runs::new(recorder));
        let work = Work {
            timers: timers.clone(),
            caller: Arc::clone(&caller),
            runs: Arc::clone(&runs),
            store,
            concurrency: config.webhooks.concurrency.get(),
            stops: stops.clone(),
        };
        let working = keep("worker", stops.clone(), move || work.clone().run());
        let working = tokio::spawn(working);
        let gate = Arc::new(Gate::new(tokens, &config.limits));
        let app = App {
            timers: timers.clone(),
            health: Arc::clone(&health),
            caller: Arc::clone(&caller),
            history,
            figures,
        };
        let router = routes(app, gate, sessions, &config.limits);
        let bounds = Bounds { connections, timeout: config.limits.timeout };
        let serving = tokio::spawn(serving(listener, router, bounds, stops));
        Ok(Self {
            address,
            token,
            stop,
            serving,
            working,
            runs,
            recording,
            background,
            timers,
            health,
            caller,
        })
    }

    /// The address on which the service listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token that the service has made because none was configured.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Replaces the secrets by the secrets of another configuration, without a gap. Calls that have
    /// begun are signed with the old ones.
    ///
    /// # Errors
    ///
    /// Fails if the configuration cannot be used. The service then keeps what it has.
    pub fn reload(&self, config: &Config) -> Result<(), StartError> {
        self.caller.reload(config).map_err(StartError::Config)?;
        tracing::info!("the configuration was read again");
        Ok(())
    }

    /// Ends the service. Requests and calls that have begun have ten seconds to end. Calls that run
    /// longer are given back to the store, so that they are made again.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        tokio::join!(
            end(&mut self.serving, STOP, "some requests did not end in time"),
            end(
                &mut self.working,
                END,
                "the store did not accept the outcomes of all calls in time"
            ),
        );
        self.runs.close();
        end(&mut self.recording, RECORDED, "the history may lack the last runs").await;
        self.background.shutdown().await;
        // The check of the health may have been in the middle of a write.
        let _ = tokio::time::timeout(RECORDED, self.health.unmark(&self.timers)).await;
    }
}

/// Opens the store, and returns its address.
async fn open_store(
    arguments: &Arguments,
    config: &Config,
) -> Result<(Address, DurableTimers), StartError> {
    let place = arguments.store.store.as_ref().map(AddressText::parse).transpose();
    let place = place.map_err(StartError::Config)?;
    let place = place.unwrap_or_else(|| Address::File(STORE.into()));
    let DeadLetterBounds { most, age } = config.dead_letters;
    let letters = LetterBounds { most, age };
    let timers = arguments.store.open_bounded(&place, letters).await;
    Ok((place, timers.map_err(StartError::Store)?))
}

/// Watches the health and the figures of the store, until the service stops.
fn watch_store(
    tasks: &mut JoinSet<()>,
    timers: &DurableTimers,
    health: &Arc<Health>,
    figures: &PrometheusHandle,
    store: &str,
    stops: &watch::Receiver<bool>,
) {
    let (watched, health) = (timers.clone(), Arc::clone(health));
    tasks.spawn(keep("health", stops.clone(), move || {
        let (timers, health) = (watched.clone(), Arc::clone(&health));
        async move { health.watch(&timers).await }
    }));
    let (counted, handle, label) = (timers.clone(), figures.clone(), store.to_owned());
    tasks.spawn(keep("figures", stops.clone(), move || {
        let (timers, label, handle) = (counted.clone(), label.clone(), handle.clone());
        async move { figures::watch(&timers, &label, &handle).await }
    }));
}

/// Returns the routes of the API and of the page.
fn routes(app: App, gate: Arc<Gate>, sessions: Sessions, limits: &Limits) -> Router {
    let pages = page::router(app.clone(), Arc::clone(&gate), sessions);
    let router = router(app, gate, limits).merge(pages);
    router.layer(from_fn(page::show_problems)).layer(from_fn(count))
}

/// Serves requests, until the service stops.
fn serving(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    stops: watch::Receiver<bool>,
) -> impl Future<Output = ()> {
    let (listener, ends) = (Listener::new(Some(listener).into()), stops.clone());
    keep("server", stops, move || {
        let served = serve(Arc::clone(&listener), router.clone(), bounds, ends.clone());
        async move {
            served.await;
            Ok(())
        }
    })
}

/// Waits for the end of a task, which is aborted if it takes longer.
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
    runs: Arc<Runs>,
    /// The name of the store in figures.
    store: String,
    concurrency: usize,
    stops: watch::Receiver<bool>,
}

impl Work {
    /// Calls what is due, until the service stops.
    async fn run(self) -> Result<(), String> {
        let Self { timers, caller, runs, store, concurrency, stops } = self;
        let worker = timers.worker().concurrency(concurrency).metrics(&store);
        let worker = worker.time_limit(LONGEST_ATTEMPT);
        let worker = worker.until_within(stopped(stops), STOP);
        let worker = worker.observe(move |event| runs.report(event));
        let run = worker.run(move |delivery| {
            let caller = Arc::clone(&caller);
            async move { caller.deliver(&delivery).await }
        });
        run.await.map_err(|error| error.to_string())
    }
}

/// Returns the maximum number of connections. It leaves enough descriptors for the store and for
/// calls, each of which may have a connection and a resolver.
fn connections(config: &Config) -> Result<usize, StartError> {
    let failed = |error: std::io::Error| StartError::Config(error.to_string());
    let (open, _) = rlimit::Resource::NOFILE.get().map_err(failed)?;
    let calls = config.webhooks.concurrency.get();
    let others = calls.saturating_mul(2).saturating_add(POOLED + RESERVED);
    let left = usize::try_from(open).unwrap_or(usize::MAX).saturating_sub(others);
    if left < LEAST_CONNECTIONS {
        return Err(StartError::Config(format!(
            "the process may open {open} files, and {calls} calls and the store need {others} of them \
             (raise the limit to {} or lower webhooks.concurrency)",
            others.saturating_add(LEAST_CONNECTIONS)
        )));
    }
    Ok(left.min(config.limits.connections.get()))
}

/// Returns the tokens that are accepted, and the one that was made for that.
fn accepted(
    arguments: &Arguments,
    config: &Config,
) -> Result<(Tokens, Option<String>), StartError> {
    let refused = |error: TokenError| StartError::Config(error.to_string());
    let mut tokens = Tokens::new(&config.tokens).map_err(refused)?;
    if let Some(token) = &arguments.token {
        tokens.add("TIMERD_TOKEN", token).map_err(refused)?;
    }
    if !tokens.is_empty() {
        return Ok((tokens, None));
    }
    let token = NewToken::random().map_err(StartError::Config)?.text;
    tokens.add("start", &token).map_err(refused)?;
    Ok((tokens, Some(token)))
}
