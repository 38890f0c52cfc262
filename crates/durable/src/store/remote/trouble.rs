//! [`Trouble`], the reason why the requests to a server are repeated.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::panics::ignore_poison;
use crate::store::remote::error::RequestError;
use std::sync::Mutex;

/// The last error that causes requests to be repeated, until a request succeeds.
#[derive(Default)]
pub(crate) struct Trouble(Mutex<Option<DurableError>>);

impl Trouble {
    /// Notes that a request has succeeded. A request that only reads does not show that the server
    /// can write again.
    pub(crate) fn succeeded(&self, writes: bool) {
        let mut trouble = ignore_poison(self.0.lock());
        if writes || !matches!(*trouble, Some(DurableError::ReadOnly(_))) {
            *trouble = None;
        }
    }

    /// Notes the error of a request.
    pub(crate) fn failed(&self, error: &RequestError) {
        if let Some(error) = error.temporary() {
            *ignore_poison(self.0.lock()) = Some(error.clone());
        }
    }

    /// Returns the last error.
    pub(crate) fn last(&self) -> Option<DurableError> {
        ignore_poison(self.0.lock()).clone()
    }
}
