//! [`Caller`], which calls the webhook of a due timer.

#![forbid(unsafe_code)]

mod insert;
mod own;
mod places;
mod pool;
mod signature;
mod spans;
mod verdict;

use super::config::Webhooks;
use super::fault::{Fault, OwnFault, ReceiverFault};
use super::guard::Guard;
use super::target::{HeaderError, Target, TargetError};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
pub(crate) use insert::{INSERT, number, numbered};
use own::OwnFaults;
use places::{CallEnd, Places};
pub(crate) use places::{MAX_REMEMBERED, ReceiverState};
pub(crate) use pool::POOLED;
use pool::Pool;
use signature::Secret;
pub use signature::SecretError;
pub(crate) use signature::Secrets;
pub(crate) use spans::Spans;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, timeout_at};
use tourbillon_durable::{Delivery, Options, Verdict};

/// How long the receivers are shown as they were.
const SHOWN: Duration = Duration::from_secs(1);

pub(crate) struct Caller {
    guard: Guard,
    pub(crate) pool: Arc<Pool>,
    /// They can be replaced while calls are made.
    secrets: ArcSwap<Secrets>,
    time_limit: Duration,
    faults: OwnFaults,
    places: Arc<Places>,
    /// The receivers as they were last shown.
    shown: Mutex<Option<(Instant, Arc<[ReceiverState]>)>>,
    pub(crate) spans: Spans,
    /// The statuses that prevent a retry.
    final_statuses: BTreeSet<u16>,
    /// The default options of timers.
    options: Options,
}

impl Caller {
    pub(crate) fn new(settings: &Webhooks, guard: Guard, secrets: Secrets, spans: Spans) -> Self {
        Self {
            guard,
            pool: Arc::default(),
            secrets: ArcSwap::from_pointee(secrets),
            time_limit: settings.timeout,
            faults: OwnFaults::default(),
            places: Arc::new(Places::new(settings.each())),
            shown: Mutex::default(),
            spans,
            final_statuses: settings.final_statuses.clone(),
            options: settings.options(),
        }
    }

    /// Signs further calls with other secrets. Calls that have begun keep the old ones.
    pub(crate) fn reload(&self, secrets: Secrets) {
        self.secrets.store(Arc::new(secrets));
    }

    /// Makes one attempt, and returns its verdict with the status of the response.
    pub(crate) async fn deliver(&self, delivery: &Delivery) -> (Verdict, Option<StatusCode>) {
        let target = match Target::from_payload(&delivery.payload) {
            Ok(target) => target,
            Err(error) => return (Verdict::Fail(error.to_string()), None),
        };
        let place = match self.places.enter(&target).await {
            Ok(place) => place,
            Err(after) => return (own::put_off(after), None),
        };
        let called = self.call(&Message::of(&target, delivery)).await;
        match &called {
            Err(Fault::Receiver(ReceiverFault::TimedOut(_))) => place.note(CallEnd::TimedOut),
            Ok(response) if response.status().is_success() => place.note(CallEnd::Succeeded),
            Ok(_) | Err(Fault::Receiver(_)) => place.note(CallEnd::Failed),
            Err(Fault::Own(_) | Fault::Refused(_)) => {}
        }
        let status = called.as_ref().ok().map(Response::status);
        let verdict = match called {
            Ok(response) => verdict::of(&response, &self.final_statuses, now()),
            Err(Fault::Refused(refusal)) => Verdict::Fail(refusal.to_string()),
            Err(Fault::Own(fault)) => self.faults.give_back(&fault, delivery, now()),
            Err(Fault::Receiver(fault)) => Verdict::Retry(fault.to_string()),
        };
        (verdict, status)
    }

    /// Makes one attempt to call a target that belongs to no timer.
    pub(crate) async fn send(&self, target: &Target, id: &str, attempt: u32) -> Verdict {
        let message = Message { target, id: id.to_owned(), attempt, headers: &[] };
        match self.call(&message).await {
            Ok(response) => verdict::of(&response, &self.final_statuses, now()),
            Err(Fault::Refused(refusal)) => Verdict::Fail(refusal.to_string()),
            Err(fault) => Verdict::Retry(fault.to_string()),
        }
    }

    /// Sends the request. Redirects are not followed.
    async fn call(&self, message: &Message<'_>) -> Result<Response<Bytes>, Fault> {
        let target = message.target;
        let limit = target.time_limit.unwrap_or(self.time_limit);
        let end = Instant::now() + limit;
        let request = self.request(message, now())?;
        let route = timeout_at(end, self.guard.route(target)).await;
        let silent = |_| OwnFault::Resolver {
            host: target.host.to_string(),
            why: format!("no answer within {limit:?}"),
        };
        let route = route.map_err(silent)??;
        let sent = timeout_at(end, self.pool.send(&self.guard, &route, request)).await;
        let answer = sent.map_err(|_| ReceiverFault::TimedOut(limit))??;
        Ok(answer.read_until(end.min(Instant::now() + pool::DRAIN_TIMEOUT)).await)
    }

    /// Returns the state of each receiver, which is at most a second old. However often this is
    /// called, webhooks are not delayed.
    pub(crate) fn receivers(&self) -> Arc<[ReceiverState]> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        match &*shown {
            Some((at, states)) if at.elapsed() < SHOWN => Arc::clone(states),
            _ => {
                let states: Arc<[ReceiverState]> = self.places.states().into();
                *shown = Some((Instant::now(), Arc::clone(&states)));
                states
            }
        }
    }

    /// Returns the number of receivers that are remembered, and the number of receivers whose
    /// deliveries are held back.
    pub(crate) fn count_receivers(&self) -> [usize; 2] {
        self.places.count()
    }

    /// Returns the default options of timers.
    pub(crate) fn options(&self) -> Options {
        self.options.clone()
    }

    /// Checks a target as far as possible without a call.
    pub(crate) fn check(&self, target: &Target) -> Result<(), Fault> {
        self.guard.check(target)?;
        self.secret(target)?;
        Ok(())
    }

    fn request(
        &self,
        message: &Message<'_>,
        now: SystemTime,
    ) -> Result<Request<Full<Bytes>>, Fault> {
        let Message { target, id, attempt, headers } = message;
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let secret = self.secret(target)?;
        let signature = secret.map(|secret| secret.sign(id, since, &target.body));
        let id = own_value("webhook-id", id.clone())?;
        let mut own = vec![
            (HeaderName::from_static("idempotency-key"), id.clone()),
            (HeaderName::from_static("webhook-id"), id),
            (HeaderName::from_static("webhook-timestamp"), since.into()),
            (HeaderName::from_static("webhook-attempt"), (*attempt).into()),
        ];
        if let Some(signature) = signature {
            let name = "webhook-signature";
            own.push((HeaderName::from_static(name), own_value(name, signature)?));
        }
        let of_timer = headers.iter().map(|(name, value)| (&**name, &**value));
        Ok(target.request(of_timer, own))
    }

    /// Returns the secret that signs the calls of a target, if there is one.
    fn secret(&self, target: &Target) -> Result<Option<Arc<Secret>>, OwnFault> {
        let name = target.secret.as_deref();
        match (self.secrets.load().get(name), name) {
            (None, Some(name)) => Err(OwnFault::Secret(name.to_owned())),
            (secret, _) => Ok(secret),
        }
    }
}

/// A call to make, and how its receiver recognises it.
struct Message<'a> {
    target: &'a Target,
    /// The idempotency key.
    id: String,
    attempt: u32,
    /// The headers of the timer.
    headers: &'a [(String, String)],
}

impl<'a> Message<'a> {
    fn of(target: &'a Target, delivery: &'a Delivery) -> Self {
        let (attempt, headers) = (delivery.attempt, &delivery.headers);
        Self { target, id: insert::key(delivery), attempt, headers }
    }
}

/// Converts a value of the service, which has only visible characters, to the value of a header.
fn own_value(name: &str, text: String) -> Result<HeaderValue, TargetError> {
    let wrong = |_| TargetError::Header { name: name.to_owned(), why: HeaderError::Value };
    HeaderValue::try_from(text).map_err(wrong)
}

#[allow(clippy::disallowed_methods, reason = "receivers compare times with their own clocks")]
fn now() -> SystemTime {
    SystemTime::now()
}
