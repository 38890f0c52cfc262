//! `wraps_a_service!`: the methods of every service in this module.

#![forbid(unsafe_code)]

/// Defines access to the inner service of a type that stores it as `inner`.
macro_rules! wraps_a_service {
    ($service:ident) => {
        impl<S> $service<S> {
            /// Returns a reference to the inner service.
            pub fn get_ref(&self) -> &S {
                &self.inner
            }

            /// Returns a mutable reference to the inner service.
            pub fn get_mut(&mut self) -> &mut S {
                &mut self.inner
            }

            /// Returns the inner service, without this wrapper.
            pub fn into_inner(self) -> S {
                self.inner
            }
        }
    };
}

pub(crate) use wraps_a_service;
