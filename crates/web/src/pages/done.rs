//! [`Done`], the outcome of a change of many, which the address of the next page carries.

#![forbid(unsafe_code)]

/// The number of timers or dead letters that were changed, and that stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) changed: u64,
    pub(super) left: u64,
}

impl Done {
    /// Writes what has been done for an address. Hosts read the number of changes there.
    pub(super) fn show(self, verb: &str) -> String {
        format!("{verb}.{}.{}", self.changed, self.left)
    }

    /// Reads what has been done, and its verb.
    pub(super) fn parse(text: &str) -> Option<(&str, Self)> {
        let mut parts = text.split('.');
        let verb = parts.next()?;
        let mut number = || parts.next()?.parse().ok();
        Some((verb, Self { changed: number()?, left: number()? }))
    }
}
