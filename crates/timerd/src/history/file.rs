//! [`FileHistory`], in a file beside the store.

#![forbid(unsafe_code)]

use super::run::{History, HistoryError, Reply, Run};
use crate::config::HistoryBounds;
use redb::backends::FileBackend;
use redb::{
    Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageError, TableDefinition,
};
use std::fs::{File, OpenOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

/// The runs by number, each with its end in milliseconds. The end is not the key, because a clock
/// that is set back would then reuse a key.
const RUNS: TableDefinition<'_, u64, (u64, &[u8])> = TableDefinition::new("runs");

/// The numbers of the runs of each timer.
const OF_TIMERS: TableDefinition<'_, (&str, u64), ()> = TableDefinition::new("of_timers");

/// A history in a file, which is opened when it is first used. A damaged file is renamed, and a new
/// file is created in its place.
pub(super) struct FileHistory(Arc<Inner>);

struct Inner {
    file: PathBuf,
    bounds: HistoryBounds,
    /// `None` until the file is used, and after a failure, because a database that has failed
    /// rejects everything.
    database: Mutex<Option<Arc<Database>>>,
}

/// The reason why the database failed.
enum Trouble {
    /// The file is damaged, or is not a history of this program.
    Damage(String),
    /// A read or a write failed.
    Failure(String),
}

/// An operation that failed, and the database that it used, if the file could be opened.
struct Failed {
    database: Option<Arc<Database>>,
    trouble: Trouble,
}

impl FileHistory {
    pub(super) fn new(file: PathBuf, bounds: HistoryBounds) -> Self {
        Self(Arc::new(Inner { file, bounds, database: Mutex::new(None) }))
    }
}

impl History for FileHistory {
    fn add(&self, runs: Vec<Run>) -> Reply<()> {
        let inner = Arc::clone(&self.0);
        run_blocking(move || inner.with(|database| add(database, &inner.bounds, &runs)))
    }

    fn latest(&self, id: Option<String>, limit: usize) -> Reply<Vec<Run>> {
        let inner = Arc::clone(&self.0);
        run_blocking(move || inner.with(|database| latest(database, id.as_deref(), limit)))
    }
}

fn run_blocking<T: Send + 'static>(
    operation: impl FnOnce() -> Result<T, HistoryError> + Send + 'static,
) -> Reply<T> {
    let task = tokio::task::spawn_blocking(operation);
    Box::pin(async move { task.await.map_err(HistoryError::of)? })
}

impl Inner {
    /// Runs an operation on the database. If the file is damaged, sets it aside and uses a new
    /// file.
    fn with<T>(
        &self,
        operation: impl Fn(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, HistoryError> {
        let mut failed = match self.work(&operation) {
            Ok(done) => return Ok(done),
            Err(failed) => failed,
        };
        if let Trouble::Damage(why) = &failed.trouble {
            if let Some(aside) = self.close(&failed).map_err(|error| self.error(error))? {
                let (file, aside) = (self.file.display(), aside.display());
                tracing::error!(%file, %aside, why, "the history is damaged and was set aside");
            }
            match self.work(&operation) {
                Ok(done) => return Ok(done),
                Err(again) => failed = again,
            }
        }
        self.close(&failed).map_err(|error| self.error(error))?;
        let (Trouble::Damage(why) | Trouble::Failure(why)) = failed.trouble;
        Err(self.error(why))
    }

    fn work<T>(
        &self,
        operation: impl Fn(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, Failed> {
        let database = self.database();
        let database =
            database.map_err(|error| Failed { database: None, trouble: error.into() })?;
        // The database asserts what it reads from a damaged file.
        let worked = catch_unwind(AssertUnwindSafe(|| operation(&database)));
        let panicked = |_| Err(redb::Error::Corrupted("the database panicked".into()));
        worked
            .unwrap_or_else(panicked)
            .map_err(|error| Failed { database: Some(database), trouble: error.into() })
    }

    /// Returns the open database, or opens the file.
    fn database(&self) -> Result<Arc<Database>, redb::Error> {
        let mut open = self.open();
        if let Some(database) = &*open {
            return Ok(Arc::clone(database));
        }
        let file = private().create(true).open(&self.file)?;
        let opened = catch_unwind(|| {
            let mut builder = Database::builder();
            builder.set_check_integrity_on_open(true);
            builder.create_with_backend(FileBackend::new(file)?)
        });
        let corrupted = |_| Err(StorageError::Corrupted("the database panicked".into()).into());
        let database = Arc::new(opened.unwrap_or_else(corrupted)?);
        *open = Some(Arc::clone(&database));
        Ok(database)
    }

    /// Closes the failed database, unless another operation has already closed it, because the file
    /// may then be new. Returns the new name of a damaged file that was set aside.
    fn close(&self, failed: &Failed) -> io::Result<Option<PathBuf>> {
        let mut open = self.open();
        let is_open = match (&*open, &failed.database) {
            (Some(open), Some(failed)) => Arc::ptr_eq(open, failed),
            (None, None) => true,
            _ => false,
        };
        if !is_open {
            return Ok(None);
        }
        let closed = open.take();
        // A database that has failed may panic.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(closed)));
        match failed.trouble {
            Trouble::Damage(_) => self.set_aside(),
            Trouble::Failure(_) => Ok(None),
        }
    }

    /// Renames the file, and returns its new name. Returns `None` if another operation has renamed
    /// it.
    fn set_aside(&self) -> io::Result<Option<PathBuf>> {
        let names = (1_u64..).map(|number| {
            let mut name = self.file.clone().into_os_string();
            name.push(format!(".damaged-{number}"));
            PathBuf::from(name)
        });
        for name in names {
            // No other file is replaced, not even by another process that does the same.
            match std::fs::hard_link(&self.file, &name) {
                Ok(()) => {
                    std::fs::remove_file(&self.file)?;
                    return Ok(Some(name));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn error(&self, why: impl fmt::Display) -> HistoryError {
        HistoryError::of(format!("{}: {why}", self.file.display()))
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<Database>>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns options for a file that only the owner may read, because errors and ids may be secret.
fn private() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

impl From<redb::Error> for Trouble {
    fn from(error: redb::Error) -> Self {
        let why = error.to_string();
        match error {
            redb::Error::Corrupted(_)
            | redb::Error::UpgradeRequired(_)
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TableIsMultimap(_)
            | redb::Error::TypeDefinitionChanged { .. } => Self::Damage(why),
            redb::Error::Io(error) => match error.kind() {
                // The database reports nothing else for a file of another kind.
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Self::Damage(why),
                _ => Self::Failure(why),
            },
            _ => Self::Failure(why),
        }
    }
}

fn add(database: &Database, bounds: &HistoryBounds, added: &[Run]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut runs = transaction.open_table(RUNS)?;
        let mut of_timers = transaction.open_table(OF_TIMERS)?;
        let mut number = runs.last()?.map_or(0, |(number, _)| number.value());
        let mut now = 0;
        for run in added {
            number += 1;
            now = now.max(run.ended_millis);
            let bytes = serde_json::to_vec(run).unwrap_or_default();
            runs.insert(number, (run.ended_millis, &*bytes))?;
            of_timers.insert((&*run.id, number), ())?;
        }
        let age = bounds.age.as_millis().try_into().unwrap_or(u64::MAX);
        let before = now.saturating_sub(age);
        loop {
            let Some((_, oldest)) = runs.first()? else { break };
            let ended = oldest.value().0;
            drop(oldest);
            if runs.len()? <= bounds.most.get() && ended >= before {
                break;
            }
            let Some((number, oldest)) = runs.pop_first()? else { break };
            if let Ok(run) = serde_json::from_slice::<Run>(oldest.value().1) {
                of_timers.remove((&*run.id, number.value()))?;
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

fn latest(database: &Database, id: Option<&str>, limit: usize) -> Result<Vec<Run>, redb::Error> {
    let transaction = database.begin_read()?;
    let runs = match transaction.open_table(RUNS) {
        Ok(runs) => runs,
        // Nothing was added yet.
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    let mut read = |bytes: &[u8]| found.extend(serde_json::from_slice::<Run>(bytes));
    match id {
        None => {
            for run in runs.iter()?.rev().take(limit) {
                read(run?.1.value().1);
            }
        }
        Some(id) => {
            let of_timers = transaction.open_table(OF_TIMERS)?;
            for key in of_timers.range((id, 0)..=(id, u64::MAX))?.rev().take(limit) {
                if let Some(run) = runs.get(key?.0.value().1)? {
                    read(run.value().1);
                }
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::num::NonZeroU64;
    use std::path::Path;
    use std::time::Duration;

    fn ended(runs: &[Run]) -> Vec<&str> {
        runs.iter().map(|run| &*run.ended).collect()
    }

    fn database() -> Database {
        let backend = redb::backends::InMemoryBackend::new();
        Database::builder().create_with_backend(backend).expect("a database")
    }

    #[test]
    fn a_clock_that_is_set_back_replaces_no_run() {
        let (database, bounds) = (database(), HistoryBounds::default());
        for ended in [2000, 1000, 1000, 1001, 1000] {
            add(&database, &bounds, &[Run::example("a", ended)]).expect("added");
        }
        let latest_first = ["1000", "1001", "1000", "1000", "2000"];
        for id in [None, Some("a")] {
            assert_eq!(ended(&latest(&database, id, 9).expect("a page")), latest_first);
        }
    }

    #[test]
    fn a_history_is_bounded_by_number_and_age() {
        let database = database();
        let bounds = HistoryBounds {
            most: NonZeroU64::MIN.saturating_add(3),
            age: Duration::from_millis(100),
        };
        assert_eq!(latest(&database, None, 9).expect("a page"), []);
        let runs: Vec<Run> =
            (0..6).map(|number| Run::example(["a", "b"][number % 2], 1000)).collect();
        add(&database, &bounds, &runs).expect("added");
        assert_eq!(latest(&database, None, 9).expect("a page").len(), 4);
        assert_eq!(latest(&database, Some("a"), 9).expect("a page").len(), 2);
        add(&database, &bounds, &[Run::example("a", 1099), Run::example("b", 1101)])
            .expect("added");
        assert_eq!(ended(&latest(&database, None, 9).expect("a page")), ["1101", "1099"]);
        assert_eq!(ended(&latest(&database, Some("a"), 9).expect("a page")), ["1099"]);
        assert_eq!(latest(&database, None, 1).expect("a page").len(), 1);
        assert_eq!(latest(&database, Some("aa"), 9).expect("a page"), []);
    }

    /// The bytes of a history of 2,000 runs.
    fn file_of(bounds: &HistoryBounds, path: &Path) -> Vec<u8> {
        let inner = FileHistory::new(path.to_owned(), bounds.clone()).0;
        let runs: Vec<Run> = (0..2000).map(|number| Run::example("a", number)).collect();
        inner.with(|database| add(database, bounds, &runs)).expect("added");
        drop(inner);
        std::fs::read(path).expect("a file")
    }

    /// Two operations have the same damaged database, and one of them continues before the other
    /// fails.
    #[test]
    fn a_history_that_is_new_is_not_set_aside() {
        let folder = std::env::temp_dir().join(format!("timerd-together-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let bounds = HistoryBounds::default();
        let inner = FileHistory::new(folder.join("history"), bounds.clone()).0;
        let first = |failed: &Cell<bool>| !failed.replace(true);
        let damage = || Err(redb::Error::Corrupted("damage".into()));
        let (one, other) = (Cell::new(false), Cell::new(false));
        let done = inner.with(|database| {
            if !first(&one) {
                return add(database, &bounds, &[Run::example("a", 2)]);
            }
            let done = inner.with(|database| match first(&other) {
                true => damage(),
                false => add(database, &bounds, &[Run::example("a", 1)]),
            });
            done.expect("the other goes on");
            damage()
        });
        done.expect("it goes on");
        let runs = inner.with(|database| latest(database, None, 9)).expect("a page");
        assert_eq!(ended(&runs), ["2", "1"]);
        let files = std::fs::read_dir(&folder).expect("a folder").count();
        assert_eq!(files, 2, "the history and the damaged one");
        std::fs::remove_dir_all(folder).expect("it is removed");
    }

    #[tokio::test]
    async fn a_damaged_history_is_set_aside_and_a_new_one_goes_on() {
        const PAGE: usize = 4096;
        let folder = std::env::temp_dir().join(format!("timerd-damaged-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (path, bounds) = (folder.join("history"), HistoryBounds::default());
        let sound = file_of(&bounds, &path);
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
            std::fs::write(&path, &bytes).expect("written");
            let history = FileHistory::new(path.clone(), bounds.clone());
            let last = Run::example("b", 5000);
            history.add(vec![last.clone()]).await.expect("the history goes on");
            let latest = history.latest(None, 3000).await.expect("the history is read");
            assert_eq!((&latest[0].id, &latest[0].ended), (&last.id, &last.ended));
            drop(history);
            // The damaged file is kept as it was.
            let name = folder.join(format!("history.damaged-{}", aside + 1));
            if name.exists() {
                aside += 1;
                assert_eq!(latest.len(), 1, "{number}");
                assert_eq!(std::fs::read(name).expect("a file").len(), bytes.len());
            } else {
                assert_eq!(latest.len(), 2001, "{number}: a page that is not used");
            }
        }
        // Most pages are in use.
        assert!(aside > pages / 2, "{aside} of {pages}");
        std::fs::remove_dir_all(folder).expect("it is there");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_reads_a_history() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("timerd-private-{}", std::process::id()));
        file_of(&HistoryBounds::default(), &path);
        let mode = path.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(path).expect("it is there");
    }
}
