//! [`StoreOptions`], the options of every store.

#![forbid(unsafe_code)]

use crate::model::bounds::LetterBounds;
use crate::model::clock::{StoreClock, millis_up};
use std::sync::Arc;
use std::time::Duration;

/// Options of every store: the bounds of its dead letters, and its clock.
///
/// They are not kept in the store, and each process applies its own. Set the same options wherever
/// you open the store.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{Embedded, StoreOptions};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-bounds-{}", std::process::id()));
/// let half_a_year = Duration::from_secs(180 * 86_400);
/// let options = StoreOptions::new().max_dead_letters(10_000).max_dead_letter_age(half_a_year);
/// let store = Embedded::open_with(&file, options)?;
/// # drop(store);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A store on a server takes them as `RedisOptions::new("reminders").store(options)`.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct StoreOptions {
    pub(crate) bounds: LetterBounds,
    /// `None` for the clock of the machine that holds the store.
    pub(crate) clock: Option<Arc<dyn StoreClock>>,
}

impl StoreOptions {
    /// Creates options without bounds on dead letters, and with the clock of the machine that holds
    /// the store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of dead letters that are kept. By default all are kept, because a
    /// letter is the only trace of a delivery that failed. Zero is treated as 1.
    ///
    /// When a letter is written, up to two of the oldest letters beyond the bound are deleted with
    /// it. Redis then counts the letters of the partition alone, and PostgreSQL applies no bound
    /// above 1000. Once a minute, workers delete all letters beyond the bound, up to 1000 per
    /// second.
    pub fn max_dead_letters(mut self, most: u64) -> Self {
        self.bounds.most = most.max(1);
        self
    }

    /// Sets how long dead letters are kept, by the store's clock. By default they are kept until
    /// you redrive or delete them. Workers delete older letters once a minute, and up to two of
    /// them are deleted whenever a letter is written.
    pub fn max_dead_letter_age(mut self, age: Duration) -> Self {
        self.bounds.age = millis_up(age);
        self
    }

    /// Sets another clock than the clock of the machine that holds the store, for tests in virtual
    /// time. All users of the store must share it. The functions of PostgreSQL for other clients
    /// keep to the server's clock.
    pub fn clock(mut self, clock: impl StoreClock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }
}
