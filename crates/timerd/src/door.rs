//! [`Door`], the part of the service that receives a request, and what a proxy says of its sender.

#![forbid(unsafe_code)]

use http::HeaderMap;

/// The maximum length in characters of a header in the log.
const LOGGED: usize = 100;
/// The part of the service that receives a token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Door {
    Api,
    Page,
}

impl Door {
    /// Returns the name of the door, for logs and labels.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Page => "page",
        }
    }
}

/// Returns the addresses that a proxy may have added. They are escaped, because a stranger may have
/// written them.
pub(crate) fn forwarded(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("x-forwarded-for")?;
    Some(format!("{value:?}").chars().take(LOGGED).collect())
}
