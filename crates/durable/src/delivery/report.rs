//! [`Reporter`], which passes on the events of a worker.

#![forbid(unsafe_code)]

#[cfg(feature = "metrics")]
use crate::delivery::export::WorkerMetrics;
use crate::delivery::trace;
use crate::model::event::Event;
use crate::panics::quietly;

/// Receives events.
pub(crate) type Observe = dyn Fn(&Event) + Send + Sync;

/// The receivers of a worker's events.
#[derive(Default)]
pub(crate) struct Reporter {
    pub(crate) observe: Option<Box<Observe>>,
    #[cfg(feature = "metrics")]
    pub(crate) metrics: Option<WorkerMetrics>,
}

impl Reporter {
    pub(crate) fn report(&self, event: &Event) {
        // Recorders and subscribers are user code as well.
        quietly(|| trace::emit(event));
        #[cfg(feature = "metrics")]
        if let Some(metrics) = &self.metrics {
            quietly(|| metrics.record(event));
        }
        if let Some(observe) = &self.observe {
            quietly(|| observe(event));
        }
    }
}
