//! [`FileHistory`], in a file beside the store.

#![forbid(unsafe_code)]

use super::super::config::HistoryBounds;
use super::{History, HistoryError, Reply, Run};
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use std::path::PathBuf;
use std::sync::Arc;

/// Runs by their time of end and a number.
const RUNS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("runs");

/// The same by the id of their timer.
const OF_TIMERS: TableDefinition<'_, (&str, u64, u64), ()> = TableDefinition::new("of_timers");

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
        let mut number = runs.last()?.map_or(0, |(key, _)| key.value().1);
        let mut now = 0;
        for run in added {
            number += 1;
            now = now.max(run.ended_millis);
            let bytes = serde_json::to_vec(run).unwrap_or_default();
            runs.insert((run.ended_millis, number), &*bytes)?;
            of_timers.insert((&*run.id, run.ended_millis, number), ())?;
        }
        let age = bounds.age.as_millis().try_into().unwrap_or(u64::MAX);
        let before = now.saturating_sub(age);
        loop {
            let oldest = runs.first()?.map(|(key, _)| key.value());
            let Some((ended, number)) = oldest else { break };
            if runs.len()? <= bounds.most && ended >= before {
                break;
            }
            let run =
                runs.pop_first()?.map(|(_, bytes)| serde_json::from_slice::<Run>(bytes.value()));
            if let Some(Ok(run)) = run {
                of_timers.remove((&*run.id, ended, number))?;
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
                read(run?.1.value());
            }
        }
        Some(id) => {
            let of_timers = transaction.open_table(OF_TIMERS)?;
            let all = of_timers.range((id, 0, 0)..=(id, u64::MAX, u64::MAX))?;
            for key in all.rev().take(limit) {
                let key = key?.0;
                let (_, ended, number) = key.value();
                if let Some(run) = runs.get((ended, number))? {
                    read(run.value());
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

    #[test]
    fn a_history_is_bounded_by_number_and_age() {
        let backend = redb::backends::InMemoryBackend::new();
        let database = Database::builder().create_with_backend(backend).expect("a database");
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
