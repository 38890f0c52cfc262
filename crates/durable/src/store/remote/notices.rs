//! [`Listener`], a store whose server forwards notices of changes, and [`listen`], which listens to
//! them without end.
//!
//! A notice tells a worker of a timer in its window that another process has inserted. Notices are
//! hints, so a duplicated notice costs at most a rejected lease. A lost notice would make a timer
//! late. **All windows are loaded again when a subscription breaks, each second until another is
//! established, and once more then.** Once a minute all windows are loaded again in any case.

#![forbid(unsafe_code)]

use crate::model::event::Event;
use crate::store::ownership::Ownership;
use crate::store::remote::host::Host;
use crate::store::remote::sender::Transport;
use futures_util::future::{Either, join, select};
use futures_util::{Stream, StreamExt};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// The interval between pings of a subscription, and the timeout of each. If the server has become
/// unresponsive, notices are late by at most both.
pub(crate) const PING: Duration = Duration::from_secs(1);

/// The wait before another attempt to subscribe.
const PAUSE: Duration = Duration::from_millis(200);

/// How often windows are loaded again while there is no subscription.
const UNSUBSCRIBED: Duration = Duration::from_secs(1);

/// How often windows are loaded again.
const AGAIN: Duration = Duration::from_secs(60);

/// A store that listens to notices.
pub(crate) trait Listener: Transport {
    type Subscription: Send;

    /// Returns the workers of this process.
    fn ownership(&self) -> &Ownership;

    /// Forgets what is known about keys, because notices may have been lost.
    fn forget(&self) {}

    /// Begins to listen.
    fn subscribe(&self) -> impl Future<Output = Option<Self::Subscription>> + Send;

    /// Forwards notices until the subscription ends or is silent. Returns `false` if notices were
    /// lost before, which was reported.
    fn follow(&self, subscription: Self::Subscription) -> impl Future<Output = bool> + Send;

    /// Reports to workers that notices do not arrive any more, or arrive again.
    fn report(&self, arrive: bool) {
        self.ownership().tell(if arrive { &Event::NoticesRestored } else { &Event::NoticesLost });
    }

    /// Has all windows loaded again, because notices may have been lost.
    fn notices_lost(&self) {
        self.forget();
        self.ownership().invalidate();
    }

    /// Has all windows loaded again from time to time, while notices are being lost.
    fn unsubscribed(&self) {
        self.forget();
        self.ownership().reload();
    }
}

/// Forwards notices forever. The first subscription may exist already.
pub(crate) async fn listen<L: Listener>(listener: Arc<L>, first: Option<L::Subscription>) {
    let regularly = async {
        loop {
            listener.engine().host.sleep(AGAIN).await;
            listener.notices_lost();
        }
    };
    join(regularly, resume(&*listener, first)).await;
}

/// Has windows loaded once a second, forever.
#[cfg(feature = "postgres")]
pub(crate) async fn poll(listener: Arc<impl Listener>) {
    loop {
        listener.engine().host.sleep(UNSUBSCRIBED).await;
        listener.unsubscribed();
    }
}

/// Waits for a reply to a request of a subscription, and passes notices that arrive meanwhile to
/// `take`. Returns `None` if the subscription has ended.
pub(crate) async fn beside<N, T>(
    notices: &mut (impl Stream<Item = N> + Unpin),
    reply: impl Future<Output = T>,
    mut take: impl FnMut(N),
) -> Option<T> {
    let mut reply = pin!(reply);
    loop {
        match select(&mut reply, notices.next()).await {
            Either::Left((reply, _)) => return Some(reply),
            Either::Right((Some(notice), _)) => take(notice),
            Either::Right((None, _)) => return None,
        }
    }
}

async fn resume<L: Listener>(listener: &L, first: Option<L::Subscription>) {
    let mut subscription = match first {
        Some(subscription) => subscription,
        None => {
            let subscription = next(listener, Duration::ZERO).await;
            listener.notices_lost();
            subscription
        }
    };
    loop {
        if listener.follow(subscription).await {
            listener.report(false);
        }
        listener.notices_lost();
        subscription = next(listener, PAUSE).await;
        listener.report(true);
        listener.notices_lost();
    }
}

/// Waits for a subscription, and has windows loaded again each second until then.
async fn next<L: Listener>(listener: &L, mut pause: Duration) -> L::Subscription {
    let host = &listener.engine().host;
    let mut subscribed = pin!(async {
        loop {
            host.sleep(pause).await;
            if let Some(subscription) = listener.subscribe().await {
                return subscription;
            }
            pause = PAUSE;
        }
    });
    loop {
        match select(&mut subscribed, pin!(host.sleep(UNSUBSCRIBED))).await {
            Either::Left((subscription, _)) => return subscription,
            Either::Right(_) => listener.unsubscribed(),
        }
    }
}
