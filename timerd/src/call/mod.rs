//! [`Caller`], which makes the request of a timer that is due.

#![forbid(unsafe_code)]

mod own;
mod pool;
mod signature;
mod verdict;

use super::fault::{Fault, OwnFault, ReceiverFault, Refusal};
use super::guard::Guard;
use super::webhook::{Webhook, checked_header};
use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::Full;
pub(crate) use own::OwnFaults;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
pub(crate) use pool::Pool;
pub(crate) use signature::Secrets;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, timeout_at};
use tourbillon_durable::{Delivery, Verdict};

/// The characters of a token that are encoded. The dot is one, because it separates the parts of
/// what is signed.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~').remove(b':');

pub(crate) struct Caller {
    pub(crate) guard: Arc<Guard>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) secrets: Secrets,
    pub(crate) time_limit: Duration,
    pub(crate) faults: OwnFaults,
}

impl Caller {
    /// Makes one attempt, and returns what becomes of the timer.
    pub(crate) async fn deliver(&self, delivery: &Delivery) -> Verdict {
        match self.call(delivery).await {
            Ok(response) => verdict::of(&response, now()),
            Err(Fault::Refused(refusal)) => Verdict::Fail(refusal.to_string()),
            Err(Fault::Own(fault)) => self.faults.give_back(&fault, delivery, now()),
            Err(Fault::Receiver(fault)) => Verdict::Retry(fault.to_string()),
        }
    }

    /// Sends the request. Redirects are not followed.
    async fn call(&self, delivery: &Delivery) -> Result<Response<()>, Fault> {
        let webhook = Webhook::from_payload(&delivery.payload);
        let webhook = webhook.and_then(|webhook| webhook.check().map(|()| webhook));
        let webhook = webhook.map_err(Refusal::Webhook)?;
        let limit = webhook.time_limit().ok().flatten().unwrap_or(self.time_limit);
        let end = Instant::now() + limit;
        let uri = webhook.uri().map_err(Refusal::Webhook)?;
        let request = self.request(&webhook, &uri, delivery, now())?;
        let route = timeout_at(end, self.guard.route(&uri)).await;
        let silent = |_| OwnFault::Resolver {
            host: uri.host().unwrap_or_default().to_owned(),
            why: format!("no answer within {limit:?}"),
        };
        let route = route.map_err(silent)??;
        let sent = timeout_at(end, self.pool.send(&self.guard, &route, request)).await;
        sent.map_err(|_| ReceiverFault::TimedOut(limit))?
    }

    fn request(
        &self,
        webhook: &Webhook,
        uri: &Uri,
        delivery: &Delivery,
        now: SystemTime,
    ) -> Result<Request<Full<Bytes>>, Fault> {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let id = utf8_percent_encode(&delivery.token, PLAIN).to_string();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let host = uri.authority().map_or("", |authority| authority.as_str());
        let mut request = Request::builder()
            .method(&*webhook.method)
            .uri(path)
            .header(HOST, host)
            .header(USER_AGENT, concat!("timerd/", env!("CARGO_PKG_VERSION")))
            .header("idempotency-key", &id)
            .header("webhook-id", &id)
            .header("webhook-timestamp", since);
        let name = webhook.secret.as_deref();
        match (self.secrets.get(name), name) {
            (Some(secret), _) => {
                let signature = secret.sign(&id, since, webhook.body.as_bytes());
                request = request.header("webhook-signature", signature);
            }
            (None, Some(name)) => return Err(OwnFault::Secret(name.to_owned()).into()),
            (None, None) => {}
        }
        let mut request = request
            .body(Full::from(webhook.body.clone()))
            .map_err(|error| Refusal::Webhook(error.to_string()))?;
        let headers = request.headers_mut();
        // Each replaces one of the same name, and none that belongs to the service. Headers of a
        // timer may be written by other programs, and those that cannot be sent are left out.
        let stored = delivery.headers.iter().map(|(name, value)| checked_header(name, value));
        for (name, value) in stored.chain(webhook.header_pairs()).flatten() {
            headers.insert(name, value);
        }
        Ok(request)
    }
}

#[allow(clippy::disallowed_methods, reason = "receivers compare times with their own clocks")]
fn now() -> SystemTime {
    SystemTime::now()
}
