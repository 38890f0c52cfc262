//! [`Exclusive`]: a value that is accessible only through `&mut` or by value. It is therefore
//! `Sync` even if the value is not, and can be stored in a map whose readers share a lock.

#![allow(unsafe_code, reason = "one bound that the compiler cannot find itself")]

/// A value that a shared reference does not give access to.
pub(super) struct Exclusive<T>(T);

// SAFETY: no method gives access to the value through `&Exclusive`, so sharing one between threads
// shares nothing of the value. Therefore there is no bound. A thread that has `&mut` or the whole
// value was sent it, which requires `T: Send`.
unsafe impl<T> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    pub(super) fn new(value: T) -> Self {
        Self(value)
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        &mut self.0
    }

    pub(super) fn into_inner(self) -> T {
        self.0
    }
}
