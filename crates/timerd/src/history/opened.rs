//! [`Opened`], a history on a server, which is opened when it is first used.

#![forbid(unsafe_code)]

use super::run::{History, Reply, Run};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Opens a history.
type Open = dyn Fn() -> Reply<Arc<dyn History>> + Send + Sync;

/// A history that each operation tries to open until it is open. Its connections then recover by
/// themselves.
pub(super) struct Opened(Arc<Inner>);

struct Inner {
    open: Box<Open>,
    history: OnceCell<Arc<dyn History>>,
}

impl Opened {
    pub(super) fn new(open: impl Fn() -> Reply<Arc<dyn History>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { open: Box::new(open), history: OnceCell::new() }))
    }

    fn then<T: 'static>(
        &self,
        operation: impl FnOnce(&dyn History) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let history = inner.history.get_or_try_init(|| (inner.open)()).await;
            operation(&**history?).await
        })
    }
}

impl History for Opened {
    fn add(&self, runs: Vec<Run>) -> Reply<()> {
        self.then(move |history| history.add(runs))
    }

    fn latest(&self, id: Option<String>, limit: usize) -> Reply<Vec<Run>> {
        self.then(move |history| history.latest(id, limit))
    }
}
