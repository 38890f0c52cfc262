//! [`DeadLetter`], a timer that was given up, with the methods for dead letters.

#![forbid(unsafe_code)]

use super::clock::system;
use super::error::DurableError;
use super::options::Options;
use super::record::{Dead, DeadReason, Record};
use super::timer::LONGEST_PAGE;
use super::timers::DurableTimers;
use std::time::SystemTime;

/// A timer that was given up.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{DurableTimers, Options};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-letter-{}", std::process::id()));
/// # let (done, mut end) = futures_channel::mpsc::unbounded::<()>();
/// # let end = async move { drop(futures_util::StreamExt::next(&mut end).await) };
/// let timers = DurableTimers::open(&file)?;
/// let worker = timers.worker().until(end); // `end` is ready when the program is to end
/// # let worker = worker.observe(move |_| drop(done.unbounded_send(())));
/// pollster::block_on(async {
///     timers.insert("order 7", "unpaid", Duration::ZERO, Options::new().attempts(1)).await?;
///     worker.run(|_| async { Err("there is no such customer") }).await?;
///
///     let letters = timers.dead_letters(None, 100).await?;
///     assert_eq!((letters[0].id.as_str(), letters[0].attempts), ("order 7", 1));
///     assert_eq!(letters[0].error, "there is no such customer");
///     assert!(timers.redrive(letters[0].number).await?); // once the cause is mended
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The number, for [`redrive`](DurableTimers::redrive).
    pub number: u64,
    /// The timer's id.
    pub id: String,
    /// The payload that was passed to [`insert`](DurableTimers::insert).
    pub payload: Vec<u8>,
    /// The time at which the timer should have been delivered.
    pub planned: SystemTime,
    /// The time at which it was given up.
    pub died: SystemTime,
    /// The number of attempts that were counted.
    pub attempts: u32,
    /// The reason for giving up.
    pub reason: DeadReason,
    /// The error of the last failed attempt, or an empty string.
    pub error: String,
    /// The options that were passed to [`insert`](DurableTimers::insert), without its policy for
    /// [existing](super::Options::existing) timers. There is no rule unless it is the reason,
    /// because the repetition continues without this delivery.
    pub options: Options,
}

impl DeadLetter {
    fn new((number, dead): (u64, Dead)) -> Self {
        let Dead { id, died, reason, record } = dead;
        let Record { planned, attempt, settings, error, payload, .. } = record;
        let (planned, died, options) = (system(planned), system(died), Options::of(settings));
        Self { number, id, payload, planned, died, attempts: attempt, reason, error, options }
    }
}

impl DurableTimers {
    /// Returns the number of dead letters.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn dead_len(&self) -> Result<u64, DurableError> {
        Ok(self.store.len().await?.1)
    }

    /// Returns up to `limit` dead letters with numbers greater than `after`, oldest first. To read
    /// all letters, pass the last number of each page for the next page until a page is empty. A
    /// page has at most 1000 letters, and fewer if they are long.
    ///
    /// # Errors
    ///
    /// Fails if the store fails, or if a letter cannot be read. The error then names the letter,
    /// and the list can continue after it.
    ///
    /// # Examples
    ///
    /// All dead letters, redriven page by page:
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers};
    ///
    /// async fn redrive_all(timers: &DurableTimers) -> Result<(), DurableError> {
    ///     let mut last = None;
    ///     loop {
    ///         let page = timers.dead_letters(last, 100).await?;
    ///         let Some(letter) = page.last() else { return Ok(()) };
    ///         last = Some(letter.number);
    ///         for letter in page {
    ///             match timers.redrive(letter.number).await {
    ///                 Ok(_) | Err(DurableError::Exists) => {}
    ///                 Err(error) => return Err(error),
    ///             }
    ///         }
    ///     }
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-dead-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # pollster::block_on(redrive_all(&timers))?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn dead_letters(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        let list = self.store.dead(after, limit.min(LONGEST_PAGE)).await?;
        Ok(list.into_iter().map(DeadLetter::new).collect())
    }

    /// Redrives a dead letter. The timer is due at once, under its old id and planned time, with
    /// all its attempts and no time to live. Returns `false` if the number does not exist.
    ///
    /// # Errors
    ///
    /// Fails with [`DurableError::Exists`] if a timer with its id exists, such as its own next
    /// repetition. The letter stays. To deliver it anyway, insert its [payload](Self::dead_letter)
    /// under another id and [delete](Self::delete_dead_letter) the letter. Also fails if the store
    /// fails.
    pub async fn redrive(&self, number: u64) -> Result<bool, DurableError> {
        self.store.redrive(number).await
    }

    /// Returns the dead letter with this number.
    ///
    /// # Errors
    ///
    /// Fails if the store fails, or if the letter cannot be read.
    ///
    /// # Examples
    ///
    /// A letter that is handled elsewhere and deleted afterwards, so that a crash in between loses
    /// nothing:
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers};
    ///
    /// async fn hand_over(timers: &DurableTimers, number: u64) -> Result<bool, DurableError> {
    ///     let Some(letter) = timers.dead_letter(number).await? else { return Ok(false) };
    ///     println!("{} failed: {}", letter.id, letter.error);
    ///     timers.delete_dead_letter(number).await
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-delete-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # assert!(!pollster::block_on(hand_over(&timers, 1))?);
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn dead_letter(&self, number: u64) -> Result<Option<DeadLetter>, DurableError> {
        let found = self.store.letter(number).await?;
        Ok(found.map(|dead| DeadLetter::new((number, dead))))
    }

    /// Deletes a dead letter, even if it cannot be read. Returns `true` if the number existed.
    ///
    /// # Errors
    ///
    /// Fails if the store fails. If the reply was lost, the letter may have been deleted.
    pub async fn delete_dead_letter(&self, number: u64) -> Result<bool, DurableError> {
        self.store.delete_dead_letter(number).await
    }
}
