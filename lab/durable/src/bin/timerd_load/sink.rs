//! [`Sink`], the receiver of webhooks.

use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;

/// A receiver on a free port of this machine.
pub(crate) struct Sink {
    port: u16,
    seen: Arc<Mutex<Seen>>,
}

/// The calls by their idempotency keys, and how late they were in microseconds.
struct Seen {
    calls: HashMap<String, u32>,
    late: Histogram<u64>,
}

/// The calls of all deliveries.
pub(crate) struct Audit {
    pub(crate) once: usize,
    pub(crate) more: usize,
    pub(crate) lost: usize,
    pub(crate) late: Histogram<u64>,
}

impl Sink {
    pub(crate) async fn start(expected: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let late = Histogram::new_with_max(600_000_000, 3).unwrap();
        let seen = Arc::new(Mutex::new(Seen { calls: HashMap::with_capacity(expected), late }));
        tokio::spawn(serve(listener, Arc::clone(&seen)));
        Self { port, seen }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of calls.
    pub(crate) fn calls(&self) -> u64 {
        self.seen.lock().unwrap().late.len()
    }

    /// Looks up the calls of a number of deliveries by their keys.
    pub(crate) fn audit(&self, keys: impl Iterator<Item = String>) -> Audit {
        let seen = self.seen.lock().unwrap();
        let (mut once, mut more, mut lost) = (0, 0, 0);
        for key in keys {
            match seen.calls.get(&key) {
                None => lost += 1,
                Some(1) => once += 1,
                Some(_) => more += 1,
            }
        }
        assert_eq!(once + more, seen.calls.len(), "a key is of no delivery");
        Audit { once, more, lost, late: seen.late.clone() }
    }
}

async fn serve(listener: TcpListener, seen: Arc<Mutex<Seen>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            let receive = service_fn(|request| receive(request, &seen));
            // A connection that breaks is seen in the counts.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), receive).await;
        });
    }
}

async fn receive(
    request: Request<Incoming>,
    seen: &Mutex<Seen>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let key = request.headers()["idempotency-key"].to_str().unwrap();
    // The last part is the number of the insert.
    let key = key.rsplit_once(':').unwrap().0.to_owned();
    let planned = key.split(':').next().unwrap().parse().unwrap();
    let late = now.checked_sub(Duration::from_millis(planned)).expect("never early");
    {
        let mut seen = seen.lock().unwrap();
        *seen.calls.entry(key).or_default() += 1;
        seen.late.saturating_record(late.as_micros().try_into().unwrap());
    }
    // The connection can be used again only if the body was read.
    let _ = request.into_body().collect().await;
    Ok(Response::new(Empty::new()))
}
