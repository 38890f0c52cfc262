//! [`LogFile`], the log of attempts in a file beside the store.
//!
//! It has a database of its own, so that a damaged log can be set aside alone. The file is opened
//! when it is first used, and again after a failure, because a database that has failed rejects
//! everything.

#![forbid(unsafe_code)]

use super::error::{TransitionError, asserted, io};
use super::file::{make, private, remove_leftovers};
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::log::{LogBounds, LoggedAttempt};
use crate::panics::{ignore_poison, quietly};
use redb::backends::FileBackend;
use redb::{
    Builder, Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
    TableError,
};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The attempts by number, each with the time when it was added, its id, and its JSON. The time is
/// not the key, because a clock that is set back would then reuse a key.
const ATTEMPTS: TableDefinition<'_, u64, (u64, &str, &str)> = TableDefinition::new("attempts");

/// The numbers of the attempts of each timer.
const OF_TIMERS: TableDefinition<'_, (&str, u64), ()> = TableDefinition::new("of_timers");

/// The number of bytes of the file that are cached in memory.
const CACHE: usize = 8 << 20;

/// The new names of damaged files.
pub(super) type SetAside = Arc<Mutex<Vec<PathBuf>>>;

pub(super) struct LogFile {
    path: PathBuf,
    /// The database and its file. `None` until it is used, and after a failure.
    opened: Option<(Database, Identity)>,
    aside: SetAside,
}

impl LogFile {
    /// Returns the log of the store in a file.
    pub(super) fn new(store: &Path, aside: SetAside) -> Self {
        let mut path = store.as_os_str().to_owned();
        path.push(".history");
        Self { path: path.into(), opened: None, aside }
    }

    /// Returns the path of the file for messages.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    pub(super) fn add(
        &mut self,
        attempts: &[LoggedAttempt],
        bounds: LogBounds,
        now: Millis,
    ) -> Result<(), DurableError> {
        self.with(|database| add(database, attempts, bounds, now))
    }

    pub(super) fn latest(
        &mut self,
        id: Option<&str>,
        limit: usize,
    ) -> Result<Vec<LoggedAttempt>, DurableError> {
        self.with(|database| latest(database, id, limit))
    }

    /// Runs an operation on the database. If the file is damaged, sets it aside and uses a new
    /// file.
    fn with<T>(
        &mut self,
        operation: impl Fn(&Database) -> Result<T, TransitionError>,
    ) -> Result<T, DurableError> {
        let done = self.work(&operation);
        let Err(DurableError::Corrupt { .. }) = done else { return done };
        let aside = set_aside(&self.path).map_err(io)?;
        ignore_poison(self.aside.lock()).push(aside);
        self.work(&operation)
    }

    /// Runs an operation, and closes the database if it fails.
    fn work<T>(
        &mut self,
        operation: impl Fn(&Database) -> Result<T, TransitionError>,
    ) -> Result<T, DurableError> {
        let done = asserted(|| {
            let opened = match self.opened.take() {
                Some(opened) if opened.1 == identity(&self.path) => opened,
                moved => {
                    drop(moved);
                    (open(&self.path)?, identity(&self.path))
                }
            };
            operation(&self.opened.insert(opened).0)
        });
        if done.is_err() {
            // A database that has failed may panic.
            let failed = self.opened.take();
            quietly(|| drop(failed));
        }
        done
    }
}

/// The device and the number of a file, or `None` if there is no file.
type Identity = Option<(u64, u64)>;

/// Returns the identity of a file, so that a log that was deleted or renamed is noticed.
#[cfg(unix)]
fn identity(path: &Path) -> Identity {
    use std::os::unix::fs::MetadataExt;
    path.metadata().ok().map(|file| (file.dev(), file.ino()))
}

/// Returns `None`, because an open file cannot be deleted or renamed.
#[cfg(not(unix))]
fn identity(_: &Path) -> Identity {
    None
}

/// Opens the file. A new one has another name until it is complete, so an interrupted creation is
/// never taken for damage.
fn open(path: &Path) -> Result<Database, TransitionError> {
    if !path.exists() {
        make(path, |new| create(new).map(drop).map_err(DurableError::from))?;
    }
    let database = create(path)?;
    remove_leftovers(path);
    Ok(database)
}

fn create(path: &Path) -> Result<Database, TransitionError> {
    let file = private().create(true).open(path).map_err(io)?;
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE).set_check_integrity_on_open(true);
    Ok(builder.create_with_backend(FileBackend::new(file)?)?)
}

/// Renames a file, and returns its new name. Replaces no other file.
fn set_aside(path: &Path) -> std::io::Result<PathBuf> {
    let names = (1_u64..).map(|number| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{number}"));
        PathBuf::from(name)
    });
    for name in names {
        match std::fs::hard_link(path, &name) {
            Ok(()) => return std::fs::remove_file(path).map(|()| name),
            Err(_) if name.symlink_metadata().is_ok() => {}
            // A file system without links.
            Err(_) => return std::fs::rename(path, &name).map(|()| name),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

fn add(
    database: &Database,
    added: &[LoggedAttempt],
    bounds: LogBounds,
    now: Millis,
) -> Result<(), TransitionError> {
    let transaction = database.begin_write()?;
    {
        let mut attempts = transaction.open_table(ATTEMPTS)?;
        let mut of_timers = transaction.open_table(OF_TIMERS)?;
        let mut number = attempts.last()?.map_or(0, |(number, _)| number.value());
        for attempt in added {
            number += 1;
            attempts.insert(number, (now, &*attempt.id, &*attempt.to_json()))?;
            of_timers.insert((&*attempt.id, number), ())?;
        }
        let before = now.saturating_sub(bounds.age);
        loop {
            let excess = attempts.len()? > bounds.most;
            let is_beyond = |oldest: (u64, &str, &str)| excess || oldest.0 < before;
            if !attempts.first()?.is_some_and(|(_, oldest)| is_beyond(oldest.value())) {
                break;
            }
            let Some((number, oldest)) = attempts.pop_first()? else { break };
            of_timers.remove((oldest.value().1, number.value()))?;
        }
    }
    Ok(transaction.commit()?)
}

fn latest(
    database: &Database,
    id: Option<&str>,
    limit: usize,
) -> Result<Vec<LoggedAttempt>, TransitionError> {
    let transaction = database.begin_read()?;
    let attempts = match transaction.open_table(ATTEMPTS) {
        // Nothing was added yet.
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        attempts => attempts?,
    };
    let mut found = Vec::new();
    let mut read = |text: &str| found.extend(LoggedAttempt::of_json(text.as_bytes()));
    let Some(id) = id else {
        for attempt in attempts.iter()?.rev().take(limit) {
            read(attempt?.1.value().2);
        }
        return Ok(found);
    };
    let of_timers = transaction.open_table(OF_TIMERS)?;
    for key in of_timers.range((id, 0)..=(id, u64::MAX))?.rev().take(limit) {
        if let Some(attempt) = attempts.get(key?.0.value().1)? {
            read(attempt.value().2);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::clock::system;
    use std::time::Duration;

    fn example(id: &str, ended: Millis) -> LoggedAttempt {
        LoggedAttempt {
            id: id.to_owned(),
            planned: system(7),
            ended: system(ended),
            duration: Some(Duration::from_millis(7)),
            attempt: 1,
            outcome: "acknowledged".to_owned(),
            status: Some(204),
            error: String::new(),
        }
    }

    /// A folder that is removed with its test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("tourbillon-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).expect("a folder");
            Self(folder)
        }

        fn log(&self) -> LogFile {
            LogFile::new(&self.0.join("timers"), SetAside::default())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn attempts_are_kept_as_they_are() {
        let attempts = [
            example("a", 1000),
            LoggedAttempt { duration: None, status: None, ..example("b", 0) },
            LoggedAttempt { error: "\"no\0\n".to_owned(), ..example("…", 0) },
        ];
        for attempt in attempts {
            assert_eq!(LoggedAttempt::of_json(attempt.to_json().as_bytes()), Some(attempt));
        }
        assert_eq!(LoggedAttempt::of_json(b"1970"), None);
    }

    #[test]
    fn a_clock_that_is_set_back_replaces_no_attempt() -> Result<(), DurableError> {
        let folder = Folder::new("log-back");
        let mut log = folder.log();
        for ended in [2000, 1000, 1000, 1001, 1000] {
            log.add(&[example("a", ended)], LogBounds::new(), ended)?;
        }
        let latest_first = [1000, 1001, 1000, 1000, 2000].map(|ended| example("a", ended));
        for id in [None, Some("a")] {
            assert_eq!(log.latest(id, 9)?, latest_first);
        }
        Ok(())
    }

    #[test]
    fn a_log_is_bounded_by_number_and_age() -> Result<(), DurableError> {
        let folder = Folder::new("log-bounds");
        let mut log = folder.log();
        let bounds = LogBounds::new().max_attempts(4).max_age(Duration::from_millis(100));
        assert_eq!(log.latest(None, 9)?, []);
        assert_eq!(log.latest(Some("a"), 9)?, []);
        let attempts: Vec<_> = (0..6).map(|number| example(["a", "b"][number % 2], 1000)).collect();
        log.add(&attempts, bounds, 1000)?;
        assert_eq!(log.latest(None, 9)?.len(), 4);
        assert_eq!(log.latest(Some("a"), 9)?.len(), 2);
        // A wrong clock beside the store does not count.
        log.add(&[example("a", 9000)], bounds, 1100)?;
        assert_eq!(log.latest(None, 9)?.len(), 4);
        log.add(&[example("b", 0)], bounds, 1101)?;
        let latest_first = [example("b", 0), example("a", 9000)];
        assert_eq!(log.latest(None, 9)?, latest_first);
        assert_eq!(log.latest(None, 1)?, latest_first[..1]);
        assert_eq!(log.latest(Some("a"), 9)?, latest_first[1..]);
        assert_eq!(log.latest(Some("aa"), 9)?, []);
        Ok(())
    }

    #[test]
    fn a_damaged_log_is_set_aside_and_a_new_one_goes_on() -> Result<(), DurableError> {
        const PAGE: usize = 4096;
        let (folder, bounds) = (Folder::new("log-damaged"), LogBounds::new());
        let path = folder.log().path;
        let attempts: Vec<_> = (0..2000).map(|number| example("a", number)).collect();
        folder.log().add(&attempts, bounds, 5000)?;
        let sound = std::fs::read(&path).map_err(io)?;
        let pages = sound.len() / PAGE;
        assert!(pages > 64, "{pages} pages");
        let damaged = (0..pages).map(|page| {
            let mut bytes = sound.clone();
            bytes[page * PAGE..][..PAGE].fill(0xa5);
            bytes
        });
        let others =
            [b"something else".to_vec(), sound[..PAGE].to_vec(), sound[..PAGE * 9].to_vec()];
        let mut aside = 0;
        for (number, bytes) in others.into_iter().chain(damaged).enumerate() {
            std::fs::write(&path, &bytes).map_err(io)?;
            let (mut log, last) = (folder.log(), example("b", 5000));
            log.add(std::slice::from_ref(&last), bounds, 5000)?;
            let latest = log.latest(None, 3000)?;
            assert_eq!(latest[0], last);
            // The damaged file is kept as it was.
            let name = folder.0.join(format!("timers.history.damaged-{}", aside + 1));
            if name.exists() {
                aside += 1;
                assert_eq!(latest.len(), 1, "{number}");
                assert_eq!(std::fs::read(&name).map_err(io)?.len(), bytes.len());
                assert_eq!(*ignore_poison(log.aside.lock()), [name]);
            } else {
                assert_eq!(latest.len(), 2001, "{number}: a page that is not used");
            }
        }
        // Most pages are in use.
        assert!(aside > pages / 2, "{aside} of {pages}");
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn a_log_that_was_renamed_or_deleted_begins_again() -> Result<(), DurableError> {
        let folder = Folder::new("log-renamed");
        let (mut log, bounds) = (folder.log(), LogBounds::new());
        let path = log.path.clone();
        log.add(&[example("a", 1000)], bounds, 1000)?;
        std::fs::rename(&path, path.with_extension("old")).map_err(io)?;
        assert_eq!(log.latest(None, 9)?, []);
        log.add(&[example("b", 1000)], bounds, 1000)?;
        assert_eq!(log.latest(None, 9)?, [example("b", 1000)]);
        std::fs::remove_file(path).map_err(io)?;
        log.add(&[example("c", 1000)], bounds, 1000)?;
        assert_eq!(log.latest(None, 9)?, [example("c", 1000)]);
        Ok(())
    }

    #[test]
    fn the_remains_of_a_creation_are_removed() -> Result<(), DurableError> {
        let folder = Folder::new("log-remains");
        let left = folder.0.join("timers.history.new-0123456789abcdef");
        std::fs::write(&left, [0; 4096]).map_err(io)?;
        folder.log().add(&[example("a", 1000)], LogBounds::new(), 1000)?;
        let names = std::fs::read_dir(&folder.0).map_err(io)?.flatten();
        let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["timers.history"]);
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_reads_a_log() -> Result<(), DurableError> {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new("log-private");
        let mut log = folder.log();
        log.add(&[], LogBounds::new(), 1000)?;
        let mode = log.path.metadata().map_err(io)?.permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        Ok(())
    }
}
