//! [`DeadLetter`], a timer that was given up, with the methods for dead letters.

#![forbid(unsafe_code)]

use crate::api::timers::{DurableTimers, check_id};
use crate::delivery::trim::trim;
use crate::error::DurableError;
use crate::model::bounds::LetterBounds;
use crate::model::clock::{Millis, system};
use crate::model::label::Label;
use crate::model::options::{Existing, Options};
use crate::model::record::{Dead, DeadReason, Record};
use crate::store::{Answer, Due, Insert, Letters, LettersOf, MAX_LIST_BYTES, MAX_PAGE};
use futures_util::stream::{self, StreamExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The number of letters that are redriven at a time.
const AT_ONCE: usize = 64;

/// How many letters of a timer or a label are read at a time, and therefore how many may be read in
/// excess of a page.
const READ_AT_ONCE: usize = 8;

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
///     worker.run(|_| async { Err::<(), _>("there is no such customer") }).await?;
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
    /// The planned time of the delivery.
    pub planned: SystemTime,
    /// When the timer was given up.
    pub died: SystemTime,
    /// The number of attempts that were counted.
    pub attempts: u32,
    /// The reason for giving up.
    pub reason: DeadReason,
    /// The error of the last failed attempt, or an empty string.
    pub error: String,
    /// The options that were passed to [`insert`](DurableTimers::insert), without its policy for
    /// [existing](crate::Options::existing) timers. There is no rule unless the rule is the reason,
    /// because the repetition continues without this delivery.
    pub options: Options,
}

/// The result of [`DurableTimers::redrive_dead_letters`].
///
/// # Examples
///
/// ```
/// use tourbillon_durable::Redriven;
///
/// let nothing = Redriven::default();
/// assert_eq!((nothing.redriven, nothing.last), (0, None));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redriven {
    /// The number of letters that were redriven.
    pub redriven: u64,
    /// The number of letters that stay because a timer with their id exists.
    pub existing: u64,
    /// The number of letters that stay because they cannot be read.
    pub unreadable: u64,
    /// The number of the last letter of the page, or `None` if there was no letter.
    pub last: Option<u64>,
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
    /// All dead letters, page by page:
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers};
    ///
    /// async fn show(timers: &DurableTimers) -> Result<(), DurableError> {
    ///     let mut last = None;
    ///     loop {
    ///         let page = timers.dead_letters(last, 100).await?;
    ///         let Some(letter) = page.last() else { return Ok(()) };
    ///         last = Some(letter.number);
    ///         for letter in page {
    ///             println!("{} failed: {}", letter.id, letter.error);
    ///         }
    ///     }
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-dead-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # pollster::block_on(show(&timers))?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn dead_letters(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        self.letters(Letters::After(after), limit).await
    }

    /// Returns up to `limit` dead letters with numbers smaller than `before`, newest first. In all
    /// other respects it is like [`dead_letters`](Self::dead_letters), which returns the letters
    /// after a number.
    ///
    /// # Errors
    ///
    /// Fails if the store fails, or if a letter cannot be read. The error then names the letter,
    /// and the list can continue before it.
    ///
    /// # Examples
    ///
    /// The newest dead letters, and the page after them:
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers};
    ///
    /// async fn show(timers: &DurableTimers) -> Result<(), DurableError> {
    ///     let page = timers.newest_dead_letters(None, 50).await?;
    ///     let Some(oldest) = page.last() else { return Ok(()) };
    ///     let older = timers.newest_dead_letters(Some(oldest.number), 50).await?;
    ///     for letter in page.iter().chain(&older) {
    ///         println!("{} failed: {}", letter.id, letter.error);
    ///     }
    ///     Ok(())
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-newest-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # pollster::block_on(show(&timers))?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn newest_dead_letters(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        self.letters(Letters::Before(before), limit).await
    }

    /// Returns up to `limit` dead letters of timers with a label and with numbers greater than
    /// `after`, oldest first. In all other respects it is like
    /// [`dead_letters`](Self::dead_letters).
    ///
    /// The store finds the letters by their label, so the cost depends on the page and, in Redis,
    /// on the number of partitions.
    ///
    /// # Errors
    ///
    /// Fails like [`dead_letters`](Self::dead_letters).
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers, Label};
    ///
    /// async fn show(timers: &DurableTimers, label: &Label) -> Result<(), DurableError> {
    ///     for letter in timers.dead_letters_with_label(label, None, 100).await? {
    ///         println!("{} failed: {}", letter.id, letter.error);
    ///     }
    ///     Ok(())
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-with-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # pollster::block_on(show(&timers, &Label::new("shop")?))?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn dead_letters_with_label(
        &self,
        label: &Label,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        self.letters_of(LettersOf::Label(label.clone()), Letters::After(after), limit).await
    }

    /// Returns up to `limit` dead letters of timers with a label and with numbers smaller than
    /// `before`, newest first. In all other respects it is like
    /// [`dead_letters_with_label`](Self::dead_letters_with_label).
    ///
    /// # Errors
    ///
    /// Fails like [`dead_letters`](Self::dead_letters).
    pub async fn newest_dead_letters_with_label(
        &self,
        label: &Label,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        self.letters_of(LettersOf::Label(label.clone()), Letters::Before(before), limit).await
    }

    /// Returns up to `limit` dead letters of timers with an id and with numbers smaller than
    /// `before`, newest first. In all other respects it is like
    /// [`newest_dead_letters`](Self::newest_dead_letters).
    ///
    /// The store finds the letters by their id, so the cost depends on the page.
    ///
    /// # Errors
    ///
    /// Fails like [`dead_letters`](Self::dead_letters).
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers};
    ///
    /// async fn fate(timers: &DurableTimers, id: &str) -> Result<String, DurableError> {
    ///     if let Some(timer) = timers.get(id).await? {
    ///         return Ok(format!("due {:?}", timer.due));
    ///     }
    ///     let letter = timers.newest_dead_letters_of(id, None, 1).await?.pop();
    ///     Ok(letter.map_or("delivered".to_owned(), |letter| letter.error))
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-of-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # assert_eq!(pollster::block_on(fate(&timers, "order 7"))?, "delivered");
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn newest_dead_letters_of(
        &self,
        id: &str,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        self.letters_of(LettersOf::Id(id.to_owned()), Letters::Before(before), limit).await
    }

    /// Reads the letters that the index of letters lists. A page is empty only at the end of the
    /// list.
    async fn letters_of(
        &self,
        of: LettersOf,
        mut letters: Letters,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        let limit = limit.min(MAX_PAGE);
        loop {
            let numbers = self.store.letters_of(of.clone(), letters, limit).await?;
            let Some(last) = numbers.last() else { return Ok(Vec::new()) };
            letters = letters.beyond(*last);
            let each = numbers.into_iter().map(|number| {
                let letter = self.store.letter(number);
                async move { Ok::<_, DurableError>((number, letter.await?)) }
            });
            let mut each = stream::iter(each).buffered(READ_AT_ONCE);
            let (mut page, mut length) = (Vec::new(), 0);
            while length < MAX_LIST_BYTES
                && let Some(next) = each.next().await
            {
                let (number, found) = next?;
                let Some(dead) = found.filter(|dead| of.includes(dead)) else { continue };
                length += dead.record.payload.len();
                page.push(DeadLetter::new((number, dead)));
            }
            if !page.is_empty() {
                return Ok(page);
            }
        }
    }

    async fn letters(
        &self,
        letters: Letters,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        let list = self.store.dead(letters, limit.min(MAX_PAGE)).await?;
        Ok(list.into_iter().map(DeadLetter::new).collect())
    }

    /// Redrives a dead letter. The timer is due at once, under its old id and planned time, with
    /// all its attempts and no time to live. Returns `false` if the number does not exist.
    ///
    /// # Errors
    ///
    /// Fails with [`DurableError::Exists`] if a timer with its id exists, such as its own next
    /// repetition. The letter stays, and can be redriven [under another id](Self::redrive_as). Also
    /// fails if the store fails.
    pub async fn redrive(&self, number: u64) -> Result<bool, DurableError> {
        self.store.redrive(number).await
    }

    /// Redrives a dead letter like [`redrive`](Self::redrive), but under another id, and so with
    /// another token. Returns `false` if the number does not exist.
    ///
    /// The timer is inserted before the letter is deleted. If the process is killed in between, a
    /// repeated call with the same id finishes it, unless the timer was delivered meanwhile. The
    /// timer is then delivered again.
    ///
    /// # Errors
    ///
    /// Fails with [`DurableError::Exists`] if another timer with the new id exists, and like
    /// [`insert`](Self::insert) if the id is too long. The letter stays.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers};
    ///
    /// /// Redrives an occurrence of a nightly timer, whose id has the next occurrence already.
    /// async fn redrive(timers: &DurableTimers, number: u64) -> Result<bool, DurableError> {
    ///     let Some(letter) = timers.dead_letter(number).await? else { return Ok(false) };
    ///     timers.redrive_as(number, &format!("{} again", letter.id)).await
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-as-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # assert!(!pollster::block_on(redrive(&timers, 1))?);
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn redrive_as(&self, number: u64, id: &str) -> Result<bool, DurableError> {
        check_id(id)?;
        let Some(dead) = self.store.letter(number).await? else { return Ok(false) };
        if dead.id == id {
            return self.redrive(number).await;
        }
        let Record { planned, mut settings, payload, .. } = dead.record;
        settings.time_to_live = None;
        let (id, due, payload) = (id.to_owned(), Due::At(planned), Arc::new(payload));
        let existing = Existing::Refuse;
        let timer = Insert { id, payload, due, existing, over: None, settings };
        match self.store.insert(timer.clone()).await {
            Err(DurableError::Exists) if self.has(&timer, planned).await? => {}
            inserted => drop(inserted?),
        }
        self.store.delete_dead_letter(number).await?;
        Ok(true)
    }

    /// Returns `true` if a call that was interrupted has inserted the timer already.
    async fn has(&self, timer: &Insert, planned: Millis) -> Result<bool, DurableError> {
        let found = self.store.get(&timer.id).await?;
        Ok(found.is_some_and(|found| found.planned == planned && found.payload == *timer.payload))
    }

    /// Redrives up to `limit` dead letters with numbers greater than `after`, oldest first, each
    /// like [`redrive`](Self::redrive). To redrive all of them, pass the
    /// [last](Redriven::last) number of each page until it is `None`. A page has at most 1000
    /// letters. Letters that cannot be redriven stay.
    ///
    /// # Errors
    ///
    /// Fails if the store fails. A part of the page may have been redriven. Repeat it with the same
    /// `after`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers};
    ///
    /// /// Returns the number of letters that were redriven.
    /// async fn redrive_all(timers: &DurableTimers) -> Result<u64, DurableError> {
    ///     let (mut all, mut after) = (0, None);
    ///     loop {
    ///         let page = timers.redrive_dead_letters(after, 1000).await?;
    ///         all += page.redriven;
    ///         match page.last {
    ///             Some(last) => after = Some(last),
    ///             None => return Ok(all),
    ///         }
    ///     }
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-all-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # assert_eq!(pollster::block_on(redrive_all(&timers))?, 0);
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn redrive_dead_letters(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Redriven, DurableError> {
        let page = self.store.letter_ages(after, limit.min(MAX_PAGE)).await?;
        let numbers = page.into_iter().map(|(number, _)| number).collect();
        self.redrive_each(numbers, |number| self.store.redrive(number)).await
    }

    /// Redrives up to `limit` dead letters of timers with a label and with numbers greater than
    /// `after`. In all other respects it is like
    /// [`redrive_dead_letters`](Self::redrive_dead_letters). The store finds the letters by their
    /// label.
    ///
    /// # Errors
    ///
    /// Fails like [`redrive_dead_letters`](Self::redrive_dead_letters).
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers, Label};
    ///
    /// /// Returns the number of letters that were redriven.
    /// async fn redrive(timers: &DurableTimers, label: &Label) -> Result<u64, DurableError> {
    ///     let (mut all, mut after) = (0, None);
    ///     loop {
    ///         let page = timers.redrive_label(label, after, 1000).await?;
    ///         all += page.redriven;
    ///         match page.last {
    ///             Some(last) => after = Some(last),
    ///             None => return Ok(all),
    ///         }
    ///     }
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-again-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # assert_eq!(pollster::block_on(redrive(&timers, &Label::new("shop")?))?, 0);
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn redrive_label(
        &self,
        label: &Label,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Redriven, DurableError> {
        let of = LettersOf::Label(label.clone());
        let numbers = self.store.letters_of(of.clone(), Letters::After(after), limit.min(MAX_PAGE));
        let redrive = |number| -> Answer<bool> {
            let (store, of) = (Arc::clone(&self.store), of.clone());
            Box::pin(async move {
                // The labels of a letter never change.
                match store.letter(number).await? {
                    Some(dead) if of.includes(&dead) => store.redrive(number).await,
                    _ => Ok(false),
                }
            })
        };
        self.redrive_each(numbers.await?, redrive).await
    }

    /// Redrives a page of dead letters by a function that returns `false` for a letter that it
    /// leaves out.
    async fn redrive_each(
        &self,
        numbers: Vec<u64>,
        redrive: impl Fn(u64) -> Answer<bool>,
    ) -> Result<Redriven, DurableError> {
        let mut redriven = Redriven { last: numbers.last().copied(), ..Redriven::default() };
        let each = numbers.into_iter().map(redrive);
        let mut each = stream::iter(each).buffered(AT_ONCE);
        while let Some(done) = each.next().await {
            match done {
                Ok(done) => redriven.redriven += u64::from(done),
                Err(DurableError::Exists) => redriven.existing += 1,
                Err(DurableError::Corrupt { .. }) => redriven.unreadable += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(redriven)
    }

    /// Deletes the oldest dead letters until at most `most` are left, and no letter was given up
    /// more than `age` ago. Pass `u64::MAX` or [`Duration::MAX`] for no limit. Returns the number
    /// of deleted letters.
    ///
    /// To have its workers apply such bounds, open the store with
    /// [`max_dead_letters`](crate::StoreOptions::max_dead_letters). This call deletes up to 1000
    /// letters at a time, and other calls continue in between. The age counts from
    /// [`died`](DeadLetter::died). If the clock was set back since, a letter whose time lies ahead
    /// stays until that time has come and `age` has passed, unless there are more than `most`.
    ///
    /// # Errors
    ///
    /// Fails if the store fails. Some letters may have been deleted.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::DurableTimers;
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-trim-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// let month = Duration::from_secs(30 * 86_400);
    /// let deleted = pollster::block_on(timers.trim_dead_letters(10_000, month))?;
    /// assert_eq!(deleted, 0);
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn trim_dead_letters(&self, most: u64, age: Duration) -> Result<u64, DurableError> {
        let (bounds, mut deleted) = (LetterBounds::new(most, age), 0);
        loop {
            let (some, more) = trim(Arc::clone(&self.store), bounds).await?;
            deleted += some;
            if !more {
                return Ok(deleted);
            }
        }
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
