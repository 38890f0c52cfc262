//! [`Done`], the outcome of a change of several timers or dead letters, which is a part of the
//! address of the next page.

#![forbid(unsafe_code)]

/// How many timers or dead letters were changed, and how many could not be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) changed: u64,
    pub(super) left: u64,
}

impl Done {
    /// Formats the outcome for an address. Hosts read the number of changes from it.
    pub(super) fn show(self, verb: &str) -> String {
        format!("{verb}.{}.{}", self.changed, self.left)
    }

    /// Parses the verb and the outcome of a change.
    pub(super) fn parse(text: &str) -> Option<(&str, Self)> {
        let mut parts = text.split('.');
        let verb = parts.next()?;
        let mut number = || parts.next()?.parse().ok();
        Some((verb, Self { changed: number()?, left: number()? }))
    }
}
