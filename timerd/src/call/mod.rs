//! [`Caller`], which makes the request of a timer that is due.

#![forbid(unsafe_code)]

mod signature;
mod verdict;

use super::guard::{Guard, GuardError};
use super::webhook::{Webhook, checked_header};
use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
pub(crate) use signature::Secrets;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;
use tourbillon_durable::{Delivery, Verdict};

/// The characters of a token that are encoded. The dot is one, because it separates the parts of
/// what is signed.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~').remove(b':');

pub(crate) struct Caller {
    pub(crate) guard: Arc<Guard>,
    pub(crate) secrets: Secrets,
    pub(crate) time_limit: Duration,
}

/// The reason for which there is no response.
enum CallError {
    Guard(GuardError),
    Request(String),
    Secret(String),
    Http(hyper::Error),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guard(error) => error.fmt(f),
            Self::Request(why) => f.write_str(why),
            Self::Secret(name) => write!(f, "the configuration has no secret {name:?}"),
            Self::Http(error) => write!(f, "the receiver has not responded: {error}"),
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
            Err(_) => Verdict::Retry(format!("the receiver has not responded within {limit:?}")),
        }
    }

    /// Sends the request on a connection of its own. Redirects are not followed, and the body of
    /// the response is not read.
    async fn call(
        &self,
        webhook: &Webhook,
        delivery: &Delivery,
    ) -> Result<Response<Incoming>, CallError> {
        let uri = webhook.uri().map_err(CallError::Request)?;
        let request = self.request(webhook, &uri, delivery, now())?;
        let stream = self.guard.connect(&uri).await.map_err(CallError::Guard)?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(CallError::Http)?;
        // The connection ends with this set.
        let mut connections = JoinSet::new();
        connections.spawn(connection);
        sender.send_request(request).await.map_err(CallError::Http)
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
