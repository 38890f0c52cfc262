//! [`Caller`], which makes the request of a timer that is due.

#![forbid(unsafe_code)]

mod pool;
mod signature;
mod verdict;

use super::guard::Guard;
use super::webhook::{Webhook, checked_header};
use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::Full;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
pub(crate) use pool::Pool;
use pool::SendError;
pub(crate) use signature::Secrets;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tourbillon_durable::{Delivery, Verdict};

/// The characters of a token that are encoded. The dot is one, because it separates the parts of
/// what is signed.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~').remove(b':');

pub(crate) struct Caller {
    pub(crate) guard: Arc<Guard>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) secrets: Secrets,
    pub(crate) time_limit: Duration,
}

/// The reason for which there is no response.
enum CallError {
    Request(String),
    Secret(String),
    Send(SendError),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(why) => f.write_str(why),
            Self::Secret(name) => write!(f, "the configuration has no secret {name:?}"),
            Self::Send(error) => error.fmt(f),
        }
    }
}

impl Caller {
    /// Makes one attempt, and returns what becomes of the timer.
    pub(crate) async fn deliver(&self, delivery: &Delivery) -> Verdict {
        let webhook = Webhook::from_payload(&delivery.payload);
        let webhook = match webhook.and_then(|webhook| webhook.check().map(|()| webhook)) {
            Ok(webhook) => webhook,
            Err(why) => return Verdict::Fail(why),
        };
        let limit = webhook.time_limit().ok().flatten().unwrap_or(self.time_limit);
        match tokio::time::timeout(limit, self.call(&webhook, delivery)).await {
            Ok(Ok(response)) => verdict::of(&response, now()),
            Ok(Err(error)) => Verdict::Retry(error.to_string()),
            Err(_) => Verdict::Retry(format!("no response from the receiver within {limit:?}")),
        }
    }

    /// Sends the request. Redirects are not followed.
    async fn call(
        &self,
        webhook: &Webhook,
        delivery: &Delivery,
    ) -> Result<Response<()>, CallError> {
        let uri = webhook.uri().map_err(CallError::Request)?;
        let request = self.request(webhook, &uri, delivery, now())?;
        let route = self.guard.route(&uri).await;
        let route = route.map_err(|error| CallError::Send(SendError::Guard(error)))?;
        self.pool.send(&self.guard, &route, request).await.map_err(CallError::Send)
    }

    fn request(
        &self,
        webhook: &Webhook,
        uri: &Uri,
        delivery: &Delivery,
        now: SystemTime,
    ) -> Result<Request<Full<Bytes>>, CallError> {
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
            (None, Some(name)) => return Err(CallError::Secret(name.to_owned())),
            (None, None) => {}
        }
        let mut request = request
            .body(Full::from(webhook.body.clone()))
            .map_err(|error| CallError::Request(error.to_string()))?;
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
