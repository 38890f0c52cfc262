//! [`Reporter`], which passes on the events of a worker.

#![forbid(unsafe_code)]

#[cfg(feature = "metrics")]
use crate::delivery::export::WorkerMetrics;
#[cfg(feature = "log")]
use crate::delivery::log::LogQueue;
use crate::delivery::trace;
use crate::model::event::Event;
use crate::panics::quietly;
#[cfg(feature = "log")]
use std::sync::Arc;

/// Receives events.
pub(crate) type Observe = dyn Fn(&Event) + Send + Sync;

/// The receivers of a worker's events.
#[derive(Default)]
pub(crate) struct Reporter {
    pub(crate) observe: Option<Box<Observe>>,
    #[cfg(feature = "metrics")]
    pub(crate) metrics: Option<WorkerMetrics>,
    #[cfg(feature = "log")]
    pub(crate) log: Option<Arc<LogQueue>>,
}

impl Reporter {
    pub(crate) fn report(&self, event: &Event) {
        // Recorders and subscribers are user code as well.
        quietly(|| trace::emit(event));
        #[cfg(feature = "metrics")]
        if let Some(metrics) = &self.metrics {
            quietly(|| metrics.record(event));
        }
        #[cfg(feature = "log")]
        if let (Some(log), Event::Attempt(attempt)) = (&self.log, event) {
            log.record(attempt);
        }
        if let Some(observe) = &self.observe {
            quietly(|| observe(event));
        }
    }
}
