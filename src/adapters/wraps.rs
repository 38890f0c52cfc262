//! `wraps_a_service!`: the methods that all services here have.

#![forbid(unsafe_code)]

/// The way to the service below one that has it as `inner`.
macro_rules! wraps_a_service {
    ($service:ident) => {
        impl<S> $service<S> {
            /// The service.
            pub fn get_ref(&self) -> &S {
                &self.inner
            }

            /// The service.
            pub fn get_mut(&mut self) -> &mut S {
                &mut self.inner
            }

            /// The service, without what this one adds.
            pub fn into_inner(self) -> S {
                self.inner
            }
        }
    };
}

pub(crate) use wraps_a_service;
