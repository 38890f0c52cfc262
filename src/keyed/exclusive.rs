//! [`Exclusive`]: a value that is reached by `&mut` or by taking it, and so need not be `Sync` to
//! lie in a map whose readers share a lock.

#![allow(unsafe_code, reason = "one bound that the compiler cannot find itself")]

/// A value that a shared reference does not reach.
pub(super) struct Exclusive<T>(T);

// SAFETY: no method gives access to the value through `&Exclusive`, so that sharing one between
// threads shares nothing of the value. It has no bound, for that reason; whoever has `&mut` or the
// whole on another thread was sent it, which asks for `T: Send`.
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
