//! [`File`]: the open database, how it is opened, and when it is made smaller.

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use super::fault::{Fault, asserted};
use super::tables::{DEAD, DUE, META, Snapshot, TIMERS, Transaction};
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    TableError,
};
use std::path::Path;

/// The version of the tables.
const LAYOUT: u64 = 2;

/// A file shorter than this is not made smaller.
const SMALL: u64 = 16 << 20;

/// What a row needs at most beside its value, in bytes: a page of the database.
const ROW: u64 = 4096;

/// Opens the database, or makes a new one if that is allowed.
type Opening = dyn Fn(bool) -> Result<Database, DatabaseError> + Send + Sync;

/// Where the database is.
pub(super) struct Place(Box<Opening>);

impl Place {
    pub(super) fn new(
        open: impl Fn(bool) -> Result<Database, DatabaseError> + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(open))
    }

    /// In a file, of which so many bytes are kept in memory.
    pub(super) fn file(path: &Path, cache: usize) -> Self {
        let path = path.to_owned();
        Self::new(move |new| {
            let mut builder = Builder::new();
            builder.set_cache_size(cache);
            if new { builder.create(&path) } else { builder.open(&path) }
        })
    }

    /// Opens it; `new`: and makes one if there is none.
    pub(super) fn open(&self, new: bool) -> Result<File, DurableError> {
        asserted(|| {
            let database = (self.0)(new)?;
            prepare(&database)?;
            Ok(File(database))
        })
    }

    /// Opens the file for the first time, and makes it smaller if most of it is free.
    pub(super) fn first(path: &Path, cache: usize) -> Result<(Self, File), DurableError> {
        let new = !path.exists();
        if new {
            make(path, cache)?;
        }
        let place = Self::file(path, cache);
        let mut file = place.open(true)?;
        if new {
            keep_name(path).map_err(|error| DurableError::Io(error.to_string()))?;
        }
        let length = std::fs::metadata(path).map_or(0, |found| found.len());
        let much = length >= SMALL && asserted(|| file.needs_less_than(length / 2))?;
        if much && asserted(|| Ok(file.0.compact()?)).is_err() {
            // It is as good as it was; a database that has failed has to be opened again.
            drop(file);
            file = place.open(false)?;
        }
        Ok((place, file))
    }
}

/// Makes a new file, under another name until it is whole: a process that is killed leaves none
/// that is half made.
fn make(path: &Path, cache: usize) -> Result<(), DurableError> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let new = Path::new(&name);
    drop(Place::file(new, cache).open(true)?);
    // Somebody else may have made one since, which stays. Where there are no links, it is made
    // under its own name after all.
    let _ = std::fs::hard_link(new, path);
    std::fs::remove_file(new).map_err(|error| DurableError::Io(error.to_string()))
}

/// Makes the name of a new file as durable as what is in it.
fn keep_name(path: &Path) -> std::io::Result<()> {
    // Elsewhere a folder cannot be opened, and its names are durable without.
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        std::fs::File::open(folder.unwrap_or(Path::new(".")))
            .and_then(|folder| folder.sync_all())?;
    }
    Ok(())
}

/// Makes the tables, or sees that they are ours. A store that is one already is only read: that
/// works on a full disk, too.
fn prepare(database: &Database) -> Result<(), Fault> {
    let read = database.begin_read()?;
    let empty =
        read.list_tables()?.next().is_none() && read.list_multimap_tables()?.next().is_none();
    let found = match read.open_table(META) {
        Ok(meta) => meta.get("layout")?.map(|found| found.value()),
        Err(TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(error.into()),
    };
    match found {
        Some(LAYOUT) => return Ok(()),
        Some(found) => return Err(DurableError::Format { found, known: LAYOUT }.into()),
        None if empty => {}
        None => return Err(DurableError::corrupt("it holds the tables of something else").into()),
    }
    let transaction = database.begin_write()?;
    transaction.open_table(META)?.insert("layout", LAYOUT)?;
    transaction.open_table(TIMERS)?;
    transaction.open_table(DUE)?;
    transaction.open_table(DEAD)?;
    Ok(transaction.commit()?)
}

/// The open database.
#[derive(Debug)]
pub(super) struct File(Database);

impl File {
    pub(super) fn begin(&self) -> Result<Transaction, Fault> {
        Ok(Transaction::new(self.0.begin_write()?))
    }

    pub(super) fn snapshot(&self) -> Result<Snapshot, Fault> {
        Ok(Snapshot::new(self.0.begin_read()?))
    }

    /// Whether all rows need less than so many bytes. Only values of few rows are looked at.
    fn needs_less_than(&self, enough: u64) -> Result<bool, Fault> {
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
    use super::super::super::options::{Existing, Options};
    use super::super::super::store::{Due, Insert};
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_a_file_needs_is_what_its_rows_take() -> Result<(), Fault> {
        const MEGABYTE: u64 = 1 << 20;
        let path = std::env::temp_dir().join(format!("tourbillon-needs-{}", std::process::id()));
        let file = Place::file(&path, 1 << 20).open(true)?;
        assert!(!file.needs_less_than(0)?);
        assert!(file.needs_less_than(1)?);
        let mut transaction = file.begin()?;
        let (payload, settings) = (Arc::new(vec![7; 1 << 20]), Options::new().settings);
        let (due, existing) = (Due::After(1), Existing::Keep);
        let insert = Insert { id: "id".to_owned(), payload, due, existing, settings };
        transaction.insert(&insert, 0)?;
        transaction.commit()?;
        assert!(!file.needs_less_than(MEGABYTE)?);
        assert!(file.needs_less_than(2 * MEGABYTE)?);
        drop(file);
        let _ = std::fs::remove_file(path);
        Ok(())
    }
}
