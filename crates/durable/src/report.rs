//! [`Reporter`], the one place to which a worker reports its events.

#![forbid(unsafe_code)]

use super::event::Event;
#[cfg(feature = "metrics")]
use super::export::WorkerMetrics;
use super::trace;
use crate::panics::quietly;

/// Receives events.
pub(super) type Observe = dyn Fn(&Event) + Send + Sync;

/// The receivers of a worker's events.
#[derive(Default)]
pub(super) struct Reporter {
    pub(super) observe: Option<Box<Observe>>,
    #[cfg(feature = "metrics")]
    pub(super) metrics: Option<WorkerMetrics>,
}

impl Reporter {
    pub(super) fn report(&self, event: &Event) {
        // Recorders and subscribers are code of the user as well.
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
