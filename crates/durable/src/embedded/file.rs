//! [`File`], the open database, with opening and compaction.

#![forbid(unsafe_code)]

use super::error::{TransitionError, asserted, io};
use super::snapshot::Snapshot;
use super::tables::{DEAD, DUE, LABELS, LETTERS, META, TIMERS, Transaction};
use crate::error::DurableError;
use crate::model::record::LAYOUT;
use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    TableError,
};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

/// The length below which a file is not compacted.
const SMALL: u64 = 16 << 20;

/// The maximum number of bytes of a row besides its value, which is one page of the database.
const ROW: u64 = 4096;

/// Opens the database, or creates one if the argument is `true`.
type Opening = dyn Fn(bool) -> Result<Database, DatabaseError> + Send + Sync;

/// Opens the database at its location.
pub(super) struct Opener(Box<Opening>);

impl Opener {
    pub(super) fn new(
        open: impl Fn(bool) -> Result<Database, DatabaseError> + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(open))
    }

    /// Creates an opener for a file with a cache of `cache` bytes.
    pub(super) fn file(path: &Path, cache: usize) -> Self {
        let path = path.to_owned();
        Self::new(move |new| {
            let mut builder = Builder::new();
            builder.set_cache_size(cache);
            match new {
                true => {
                    let file = private().create(true).open(&path)?;
                    builder.create_with_backend(FileBackend::new(file)?)
                }
                false => builder.open(&path),
            }
        })
    }

    /// Opens the database. If `new` is set, creates it if there is none.
    pub(super) fn open(&self, new: bool) -> Result<File, DurableError> {
        asserted(|| {
            let database = (self.0)(new)?;
            prepare(&database)?;
            Ok(File(database))
        })
    }

    /// Opens the file for the first time, and compacts it if most of it is free. An error names the
    /// file concerned.
    pub(super) fn first(path: &Path, cache: usize) -> Result<(Self, File), DurableError> {
        let new = !path.exists();
        if new {
            make(path, |new| Self::file(new, cache).open(true).map(drop))?;
        }
        let opener = Self::file(path, cache);
        let opened = opener.open_first(path, new);
        let file = opened.map_err(|error| error.at(&path.display().to_string()))?;
        remove_leftovers(path);
        Ok((opener, file))
    }

    fn open_first(&self, path: &Path, new: bool) -> Result<File, DurableError> {
        let mut file = self.open(true)?;
        if new {
            sync_name(path).map_err(io)?;
        }
        let length = std::fs::metadata(path).map_or(0, |found| found.len());
        let much = length >= SMALL && asserted(|| file.needs_less_than(length / 2))?;
        if much && asserted(|| Ok(file.0.compact()?)).is_err() {
            // The file is unchanged, but a database that has failed has to be opened again.
            drop(file);
            file = self.open(false)?;
        }
        Ok(file)
    }
}

/// The text between the store's name and the random digits in the temporary name of a new store.
const MAKING: &str = ".new-";

/// The number of hexadecimal digits.
const DIGITS: usize = 16;

/// Creates a file with `build` under a temporary name until it is complete, so that a killed
/// process leaves no partial store. Each start uses another temporary name and never continues with
/// the remains of another.
pub(super) fn make(
    path: &Path,
    build: impl FnOnce(&Path) -> Result<(), DurableError>,
) -> Result<(), DurableError> {
    let digits = RandomState::new().hash_one(std::process::id());
    let mut name = path.as_os_str().to_owned();
    name.push(format!("{MAKING}{digits:0DIGITS$x}"));
    let new = PathBuf::from(name);
    let made = private().create_new(true).open(&new).map_err(io).and_then(|_| build(&new));
    if made.is_ok() {
        // Another process may have created the file since, and that file stays. On a file system
        // without links, the store is created under its own name later.
        let _ = std::fs::hard_link(&new, path);
    }
    // If the removal fails, the next start repeats it.
    let _ = std::fs::remove_file(&new);
    made.map_err(|error| error.at(&new.display().to_string()))
}

/// Returns options for a file that only its owner can read as soon as it exists.
/// Payloads and headers may contain credentials.
pub(super) fn private() -> OpenOptions {
    let mut options = std::fs::File::options();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Removes the temporary files of starts that were interrupted. The store is open and locked, so
/// none of these files can still become the store, even if another process is writing it.
pub(super) fn remove_leftovers(path: &Path) {
    let Some(name) = path.file_name() else { return };
    let entries = std::fs::read_dir(folder(path)).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_leftover(&entry.file_name(), name)) {
        let _ = std::fs::remove_file(entry.path());
    }
}

/// Returns `true` if [`make`] could have given this name to a temporary file of the store.
fn is_leftover(file: &OsStr, store: &OsStr) -> bool {
    let rest = file.as_encoded_bytes().strip_prefix(store.as_encoded_bytes());
    let digits = rest.and_then(|rest| rest.strip_prefix(MAKING.as_bytes()));
    digits.is_some_and(|digits| {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        digits.len() == DIGITS && digits.iter().all(is_digit)
    })
}

fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Makes the name of a new file as durable as its contents.
fn sync_name(path: &Path) -> std::io::Result<()> {
    // On other systems a folder cannot be opened, and its names are durable anyway.
    if cfg!(unix) {
        std::fs::File::open(folder(path)).and_then(|folder| folder.sync_all())?;
    }
    Ok(())
}

/// Creates the tables, or checks that they are a timer store. An existing store is only read, which
/// works on a full disk as well.
fn prepare(database: &Database) -> Result<(), TransitionError> {
    let read = database.begin_read()?;
    let empty =
        read.list_tables()?.next().is_none() && read.list_multimap_tables()?.next().is_none();
    let found = match read.open_table(META) {
        Ok(meta) => meta.get("layout")?.map(|found| found.value()),
        Err(TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let known = u64::from(LAYOUT);
    match found {
        Some(found) if found == known => return Ok(()),
        Some(found) => return Err(DurableError::Format { found, known }.into()),
        None if empty => {}
        None => {
            return Err(DurableError::corrupt("the file has the tables of another program").into());
        }
    }
    let transaction = database.begin_write()?;
    let mut meta = transaction.open_table(META)?;
    meta.insert("layout", known)?;
    meta.insert("retried", 0)?;
    drop(meta);
    transaction.open_table(TIMERS)?;
    transaction.open_table(DUE)?;
    transaction.open_table(LABELS)?;
    transaction.open_table(DEAD)?;
    transaction.open_table(LETTERS)?;
    Ok(transaction.commit()?)
}

/// The open database.
#[derive(Debug)]
pub(super) struct File(Database);

impl File {
    pub(super) fn begin(&self) -> Result<Transaction, TransitionError> {
        Ok(Transaction::new(self.0.begin_write()?))
    }

    pub(super) fn snapshot(&self) -> Result<Snapshot, TransitionError> {
        Ok(Snapshot::new(self.0.begin_read()?))
    }

    /// Returns `true` if all rows need less than `enough` bytes. Reads the values of a few rows
    /// only.
    fn needs_less_than(&self, enough: u64) -> Result<bool, TransitionError> {
        let read = self.0.begin_read()?;
        let (timers, dead) = (read.open_table(TIMERS)?, read.open_table(DEAD)?);
        let mut needed = (timers.len()? + dead.len()?) * ROW;
        let timers = timers.iter()?.map(|row| row.map(|(_, value)| value));
        let dead = dead.iter()?.map(|row| row.map(|(_, value)| value));
        for value in timers.chain(dead) {
            if needed >= enough {
                break;
            }
            needed += value?.value().len() as u64;
        }
        Ok(needed < enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::options::{Existing, Options};
    use crate::store::{Due, Insert};
    use std::sync::Arc;

    /// Checks that only the owner can read a file.
    fn assert_private(path: &Path) {
        #[cfg(unix)]
        {
            let found = path.metadata().expect("a file").permissions();
            let mode = std::os::unix::fs::PermissionsExt::mode(&found);
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
        #[cfg(not(unix))]
        let _ = path;
    }

    #[test]
    fn a_first_open_that_failed_can_be_repeated() -> Result<(), DurableError> {
        let name = format!("tourbillon-repeated-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let leftovers = || {
            let files = std::fs::read_dir(folder(&path)).into_iter().flatten().flatten();
            let name = path.file_name().unwrap_or_default();
            files.filter(|file| is_leftover(&file.file_name(), name)).count()
        };
        // The disk is full when half of the file is written.
        let cut_short = |new: &Path| {
            assert_private(new);
            std::fs::write(new, [7; 100]).map_err(io)?;
            Err(DurableError::ReadOnly("no space".to_owned()))
        };
        for _ in 0..2 {
            let error = make(&path, cut_short).expect_err("it is refused");
            let DurableError::ReadOnly(what) = error else { panic!("{error}") };
            // The error names the file that could not be created.
            assert!(what.contains(MAKING) && what.ends_with(": no space"), "{what}");
            assert_eq!((path.exists(), leftovers()), (false, 0));
        }
        // The remains of a start that was killed.
        let mut left = path.clone().into_os_string();
        left.push(".new-0123456789abcdef");
        std::fs::write(left, [7; 100]).map_err(io)?;
        // A file of another program.
        let mut other = path.clone().into_os_string();
        other.push(".new-version");
        std::fs::write(&other, "").map_err(io)?;
        drop(Opener::first(&path, 1 << 20)?);
        assert_private(&path);
        assert_eq!(leftovers(), 0);
        std::fs::remove_file(other).map_err(io)?;
        std::fs::remove_file(path).map_err(io)
    }

    #[test]
    fn what_a_file_needs_is_what_its_rows_take() -> Result<(), TransitionError> {
        const MEGABYTE: u64 = 1 << 20;
        let path = std::env::temp_dir().join(format!("tourbillon-needs-{}", std::process::id()));
        let file = Opener::file(&path, 1 << 20).open(true)?;
        assert!(!file.needs_less_than(0)?);
        assert!(file.needs_less_than(1)?);
        let mut transaction = file.begin()?;
        let (payload, settings) = (Arc::new(vec![7; 1 << 20]), Options::new().settings);
        let (due, existing) = (Due::After(1), Existing::Keep);
        let insert = Insert { id: "id".to_owned(), payload, due, existing, over: None, settings };
        transaction.insert(&insert, 0)?;
        transaction.commit()?;
        assert!(!file.needs_less_than(MEGABYTE)?);
        assert!(file.needs_less_than(2 * MEGABYTE)?);
        drop(file);
        let _ = std::fs::remove_file(path);
        Ok(())
    }
}
