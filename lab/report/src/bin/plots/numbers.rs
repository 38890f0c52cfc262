//! The numbers of a run, as `lab/numbers/collect.py` writes them.

use serde_json::Value;
use std::error::Error;
use std::fs;
use std::path::Path;

/// A file of numbers.
pub(crate) struct Numbers(Value);

impl Numbers {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Returns an error that names the file if it cannot be read or is not JSON.
    pub(crate) fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let of = |error: &dyn Error| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| of(&error))?;
        Ok(Self::parse(&text).map_err(|error| of(&error))?)
    }

    /// Parses the content of a file.
    ///
    /// # Errors
    ///
    /// Returns an error if it is not JSON.
    pub(crate) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }

    /// The keys of a section with the medians of their rounds. Empty if there is no such section.
    pub(crate) fn medians(&self, section: &str) -> impl Iterator<Item = (&str, f64)> {
        let values = self.0["sections"][section]["values"].as_object();
        values.into_iter().flatten().filter_map(|(key, rounds)| {
            let rounds = rounds.as_array()?.iter().filter_map(Value::as_f64).collect();
            Some((&**key, median(rounds)?))
        })
    }

    /// The median of one key.
    pub(crate) fn median(&self, section: &str, key: &str) -> Option<f64> {
        self.medians(section).find(|(of, _)| *of == key).map(|(_, median)| median)
    }

    /// The machine, commit and date of a section.
    pub(crate) fn caption(&self, section: &str) -> String {
        let place = self.0["sections"][section]["run"].as_u64().unwrap_or_default();
        let run = usize::try_from(place).map_or(&Value::Null, |place| &self.0["runs"][place]);
        let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
        let (cpu, cores) = (text(&run["machine"]["cpu"]), &run["machine"]["cores"]);
        let (commit, date) = (text(&run["commit"]), text(&run["date"]));
        format!("{cpu}, {cores} cores, commit {commit}, {date}")
    }
}

/// The median, or `None` if there are no values.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) =
        (values.get(values.len().wrapping_sub(1) / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}
