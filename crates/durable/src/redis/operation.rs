//! [`Operation`], an operation as `scripts/batch.lua` takes it.

#![forbid(unsafe_code)]

use crate::store::Due;
use std::io::Write;

/// An operation of `scripts/batch.lua`, with its name and arguments.
pub(super) struct Operation {
    pub(super) partition: u64,
    /// The name and the arguments, each preceded by its length in four bytes.
    pub(super) words: Vec<u8>,
    /// Set if the operation must not be executed once its future was dropped.
    pub(super) skip_if_dropped: bool,
}

impl Operation {
    pub(super) fn new(partition: u64, name: &str) -> Self {
        let words = Vec::with_capacity(160);
        Self { partition, words, skip_if_dropped: false }.text(name.as_bytes())
    }

    /// Skips the operation if its future is dropped before it is sent.
    pub(super) fn skip_if_dropped(mut self) -> Self {
        self.skip_if_dropped = true;
        self
    }

    pub(super) fn text(self, text: &[u8]) -> Self {
        self.word(|words| words.extend(text))
    }

    pub(super) fn number(self, number: u64) -> Self {
        self.written(format_args!("{number}"))
    }

    /// Appends a due time. A delay is preceded by `+`.
    pub(super) fn due(self, due: Due) -> Self {
        match due {
            Due::At(time) | Due::ByRule(time) => self.number(time),
            Due::After(delay) => self.written(format_args!("+{delay}")),
        }
    }

    fn written(self, text: std::fmt::Arguments<'_>) -> Self {
        // Writing to memory does not fail.
        self.word(|words| drop(words.write_fmt(text)))
    }

    fn word(mut self, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let start = self.words.len();
        self.words.extend([0; 4]);
        write(&mut self.words);
        let length = u32::try_from(self.words.len() - start - 4).unwrap_or(u32::MAX);
        self.words[start..start + 4].copy_from_slice(&length.to_le_bytes());
        self
    }
}
