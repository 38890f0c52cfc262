//! [`Reporter`], the one place to which a worker reports its events.

#![forbid(unsafe_code)]

use super::event::Event;
use crate::panics::quietly;

/// Receives events.
pub(super) type Observe = dyn Fn(&Event) + Send + Sync;

/// The receivers of a worker's events.
#[derive(Default)]
pub(super) struct Reporter {
    pub(super) observe: Option<Box<Observe>>,
}

impl Reporter {
    pub(super) fn report(&self, event: &Event) {
        if let Some(observe) = &self.observe {
            quietly(|| observe(event));
        }
    }
}
