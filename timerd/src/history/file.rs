//! [`FileHistory`], in a file beside the store.

#![forbid(unsafe_code)]

use super::super::config::HistoryBounds;
use super::run::{History, HistoryError, Reply, Run};
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use std::path::PathBuf;
use std::sync::Arc;

/// The time at which each run ended in milliseconds, and the run, by its number. The time is not
/// the key, because a clock that is set back would then use a key again.
const RUNS: TableDefinition<'_, u64, (u64, &[u8])> = TableDefinition::new("runs");

/// The numbers of the runs of each timer.
const OF_TIMERS: TableDefinition<'_, (&str, u64), ()> = TableDefinition::new("of_timers");

pub(crate) struct FileHistory {
    database: Arc<Database>,
    bounds: HistoryBounds,
}

impl FileHistory {
    pub(crate) fn open(file: PathBuf, bounds: HistoryBounds) -> Result<Self, HistoryError> {
        let database = Database::create(&file);
        let database =
            database.map_err(|error| HistoryError::of(format!("{}: {error}", file.display())))?;
        Ok(Self { database: Arc::new(database), bounds })
    }
}

impl History for FileHistory {
    fn add(&self, runs: Vec<Run>) -> Reply<()> {
        let (database, bounds) = (Arc::clone(&self.database), self.bounds.clone());
        run_blocking(move || add(&database, &bounds, &runs))
    }

    fn latest(&self, id: Option<String>, limit: usize) -> Reply<Vec<Run>> {
        let database = Arc::clone(&self.database);
        run_blocking(move || latest(&database, id.as_deref(), limit))
    }
}

fn run_blocking<T: Send + 'static>(
    operation: impl FnOnce() -> Result<T, redb::Error> + Send + 'static,
) -> Reply<T> {
    let task = tokio::task::spawn_blocking(operation);
    Box::pin(async move { task.await.map_err(HistoryError::of)?.map_err(HistoryError::of) })
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
            if runs.len()? <= bounds.most && ended >= before {
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
    use std::time::Duration;

    fn run(id: &str, ended_millis: u64) -> Run {
        Run {
            id: id.to_owned(),
            planned: String::new(),
            ended: ended_millis.to_string(),
            ended_millis,
            millis: 7,
            attempt: 1,
            outcome: "acknowledged".to_owned(),
            error: String::new(),
        }
    }

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
            add(&database, &bounds, &[run("a", ended)]).expect("added");
        }
        let latest_first = ["1000", "1001", "1000", "1000", "2000"];
        for id in [None, Some("a")] {
            assert_eq!(ended(&latest(&database, id, 9).expect("a page")), latest_first);
        }
    }

    #[test]
    fn a_history_is_bounded_by_number_and_age() {
        let database = database();
        let bounds = HistoryBounds { most: 4, age: Duration::from_millis(100) };
        assert_eq!(latest(&database, None, 9).expect("a page"), []);
        let runs: Vec<Run> = (0..6).map(|number| run(["a", "b"][number % 2], 1000)).collect();
        add(&database, &bounds, &runs).expect("added");
        assert_eq!(latest(&database, None, 9).expect("a page").len(), 4);
        assert_eq!(latest(&database, Some("a"), 9).expect("a page").len(), 2);
        add(&database, &bounds, &[run("a", 1099), run("b", 1101)]).expect("added");
        assert_eq!(ended(&latest(&database, None, 9).expect("a page")), ["1101", "1099"]);
        assert_eq!(ended(&latest(&database, Some("a"), 9).expect("a page")), ["1099"]);
        assert_eq!(latest(&database, None, 1).expect("a page").len(), 1);
        assert_eq!(latest(&database, Some("aa"), 9).expect("a page"), []);
    }
}
