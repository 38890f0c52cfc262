//! [`Screen`], the standard output as aligned text or as one JSON object per line.

#![forbid(unsafe_code)]

use super::failure::{Failure, complain};
use serde::Serialize;
use std::io::{self, Write};
use tabwriter::TabWriter;
use tourbillon_durable::text::printable;

/// The number of characters of a payload or an error in a table.
const SHOWN: usize = 40;

/// The standard output.
pub(crate) struct Screen {
    json: bool,
}

/// The last line of an incomplete list.
#[derive(Serialize)]
struct More<'a, T> {
    next: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
}

impl Screen {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints rows below their titles, or each object on a line of its own.
    pub(crate) fn table<T: Serialize, const N: usize>(
        &mut self,
        titles: [&str; N],
        objects: &[T],
        row: impl Fn(&T) -> [String; N],
    ) -> Result<(), Failure> {
        if self.json {
            return objects.iter().try_for_each(|object| self.line(object));
        }
        let mut out = TabWriter::new(io::stdout().lock());
        writeln!(out, "{}", titles.join("\t"))?;
        for object in objects {
            writeln!(out, "{}", row(object).map(|cell| printable(&cell)).join("\t"))?;
        }
        Ok(out.flush()?)
    }

    /// Prints the fields of an object, one on each line, or the object on one line.
    pub(crate) fn fields(
        &mut self,
        object: &impl Serialize,
        fields: &[(&str, String)],
    ) -> Result<(), Failure> {
        if self.json {
            return self.line(object);
        }
        let mut out = TabWriter::new(io::stdout().lock());
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            writeln!(out, "{name}\t{}", printable(value))?;
        }
        Ok(out.flush()?)
    }

    /// Prints a sentence, or the object on one line.
    pub(crate) fn say(&mut self, object: &impl Serialize, sentence: &str) -> Result<(), Failure> {
        if self.json {
            return self.line(object);
        }
        Ok(writeln!(io::stdout().lock(), "{}", printable(sentence))?)
    }

    /// Reports that a list is incomplete, with an object in its last line, or with a sentence on
    /// standard error: how to continue it, and its length without a limit, if that is known.
    pub(crate) fn go_on(
        &mut self,
        next: &impl Serialize,
        total: Option<u64>,
        command: &str,
    ) -> Result<(), Failure> {
        if self.json {
            return self.line(&More { next, total });
        }
        let total = total.map_or(String::new(), |total| format!(" ({total} in all)"));
        complain(&format!("there are more{total}: {command}"));
        Ok(())
    }

    fn line(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, object).map_err(io::Error::from)?;
        Ok(out.write_all(b"\n")?)
    }
}

/// Returns the beginning of a payload or an error.
pub(crate) fn beginning(text: &str) -> String {
    // The rest of a long payload is not needed, because no character becomes shorter.
    let text: String = text.chars().take(SHOWN + 1).collect();
    let text = printable(&text);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
