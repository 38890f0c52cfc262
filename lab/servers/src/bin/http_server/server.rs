//! The server, which accepts connections, serves each with a task, and closes them all.
//!
//! | timeout | counts from | enforced by |
//! |---|---|---|
//! | idle, and head | HTTP/1: the last answer was sent | hyper, `header_read_timeout` |
//! | | before the first request: the connection was accepted | [`Activity`] |
//! | | HTTP/2: the last stream has ended | [`Activity`] |
//! | request: 504 | its head was read | [`Service`] |
//! | stalled body | its last frame | [`Moving`](crate::stall::Moving) |
//! | | a write that waits for the client | [`limit_writes`](Timers::limit_writes) |
//! | HTTP/2 pings | the last frame | hyper, `keep_alive_interval` |
//!
//! With HTTP/1, hyper uses one timeout for an idle connection and for the head of a request. It
//! runs from the flush of the previous answer until the head is complete. An idle connection is
//! therefore never closed earlier, and a slow head has no more time than one that does not arrive.
//! Hyper starts the timeout again for each head.

use crate::activity::Activity;
use crate::service::Service;
use crate::shared::{Limits, Shared};
use crate::tally::Tally;
use crate::timers::{Connection, Timers};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use std::error::Error;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) struct Server<T>(Arc<Shared<T>>);

/// The pause after a failed accept, which happens if descriptors have run out for example.
const BACK_OFF: Duration = Duration::from_millis(10);

impl<T: Timers> Server<T> {
    pub(crate) fn new(limits: Limits, timers: T) -> Self {
        let (tasks, closing) = (TaskTracker::new(), CancellationToken::new());
        Self(Arc::new(Shared { limits, tally: Arc::default(), timers, tasks, closing }))
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.0.tally
    }

    /// Starts to accept connections, until the server is [closed](Self::close).
    pub(crate) fn accept(&self, listener: TcpListener) {
        let (server, closing) = (Self(Arc::clone(&self.0)), self.0.closing.clone());
        self.0.tasks.spawn(async move {
            let accepting = async {
                loop {
                    match listener.accept().await {
                        Ok((stream, _)) => server.take(stream),
                        Err(_) => drop(server.0.timers.sleep(BACK_OFF).await),
                    }
                }
            };
            closing.run_until_cancelled(accepting).await;
        });
    }

    fn take(&self, stream: TcpStream) {
        // A response is one write, so there is nothing to wait for.
        let _ = stream.set_nodelay(true);
        self.serve(stream);
    }

    /// Serves a connection with a task.
    pub(crate) fn serve(&self, stream: impl Connection) {
        let (shared, live) = (Arc::clone(&self.0), self.0.tally.accept());
        self.0.tasks.spawn(async move {
            let _live = live;
            connection(shared, stream).await;
        });
    }

    /// Ends all connections and returns the number of remaining timers. Idle connections end at
    /// once, and others after the answers in progress, which have the time limit of a request.
    pub(crate) async fn close(&self) -> Option<usize> {
        self.0.closing.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
        self.0.timers.left()
    }
}

async fn connection<T: Timers>(shared: Arc<Shared<T>>, stream: impl Connection) {
    // Each connection has a clone, so that they share no counter.
    let (limits, timers) = (shared.limits, Arc::new(shared.timers.clone()));
    let activity = Activity::new(Arc::clone(&timers));
    let io = TokioIo::new(timers.limit_writes(stream, limits.body));
    let service = Service::new(Arc::clone(&shared), Arc::clone(&timers), Arc::clone(&activity));
    let builder = builder(&shared, &timers);
    let mut connection = pin!(builder.serve_connection(io, service));

    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        gracefully = until_it_ends(&shared, &activity) => {
            if !gracefully {
                return;
            }
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                ended = connection => ended,
                _ = timers.sleep(limits.request) => Ok(()),
            }
        }
    };
    if ended.is_err_and(|error| is_timeout(&*error)) {
        shared.tally.fire();
    }
}

/// Waits until the connection has been idle for too long, or the server closes. Returns `true` if
/// the connection should be shut down gracefully.
async fn until_it_ends<T: Timers>(shared: &Shared<T>, activity: &Activity<T>) -> bool {
    tokio::select! {
        began = activity.has_ended(shared.limits.idle) => {
            shared.tally.fire();
            began
        }
        () = shared.closing.cancelled() => true,
    }
}

fn builder<T: Timers>(shared: &Shared<T>, timers: &T) -> auto::Builder<Tracked> {
    let limits = shared.limits;
    let mut builder = auto::Builder::new(Tracked(shared.tasks.clone()));
    builder.http1().timer(timers.hyper()).header_read_timeout(limits.idle);
    builder.http2().timer(timers.hyper()).keep_alive_interval(limits.ping);
    builder.http2().keep_alive_timeout(limits.ping);
    builder
}

/// Returns `true` if a timeout ended the connection, either of hyper or of its stream.
fn is_timeout(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<hyper::Error>().is_some_and(|error| {
        let cause = error.source().and_then(<dyn Error>::downcast_ref::<io::Error>);
        error.is_timeout() || cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
    })
}

/// Runs the streams of HTTP/2 as tasks that the server waits for.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tracked {
    fn execute(&self, stream: F) {
        self.0.spawn(stream);
    }
}
