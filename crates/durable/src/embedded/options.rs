//! [`EmbeddedOptions`], the options of a store in a file.

#![forbid(unsafe_code)]

use crate::store::options::StoreOptions;

/// Options for opening an [`Embedded`](crate::Embedded) store.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::{Embedded, EmbeddedOptions};
///
/// let file = std::env::temp_dir().join(format!("tourbillon-cache-{}", std::process::id()));
/// let store = Embedded::open_with(&file, EmbeddedOptions::new().cache(8 << 20))?;
/// # drop(store);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    pub(super) cache: usize,
    pub(super) store: StoreOptions,
}

impl EmbeddedOptions {
    /// Creates options with a cache of 64 MiB, the system's wall clock, and no bounds on dead
    /// letters.
    #[must_use]
    pub fn new() -> Self {
        Self { cache: 64 << 20, store: StoreOptions::new() }
    }

    /// Sets the number of bytes of the file that are cached in memory. Any number is allowed. A
    /// small cache reads more from the system.
    #[must_use]
    pub fn cache(mut self, bytes: usize) -> Self {
        self.cache = bytes;
        self
    }

    /// Sets the bounds of the dead letters, and the clock.
    #[must_use]
    pub fn store(mut self, options: StoreOptions) -> Self {
        self.store = options;
        self
    }
}

impl From<StoreOptions> for EmbeddedOptions {
    fn from(options: StoreOptions) -> Self {
        Self::new().store(options)
    }
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self::new()
    }
}
