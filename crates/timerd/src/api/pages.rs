//! The pages of lists.

#![forbid(unsafe_code)]

use tourbillon_durable::DurableError;

/// The number of rows in a response, unless the request has a limit.
const ROWS: usize = 100;

/// The maximum number of rows in a response.
const MAX_ROWS: usize = 1000;

/// Returns the maximum number of rows in the response to a request with this limit.
pub(super) fn rows(limit: Option<usize>) -> usize {
    limit.unwrap_or(ROWS).min(MAX_ROWS)
}

/// Reads a page by `page`, which returns up to a number of rows after a position. Returns the rows,
/// and the `position` of the last one if there are more.
///
/// # Errors
///
/// Fails if `page` does.
pub(super) async fn read<T, P, F>(
    after: Option<P>,
    limit: usize,
    position: impl Fn(&T) -> P,
    page: impl Fn(Option<P>, usize) -> F,
) -> Result<(Vec<T>, Option<P>), DurableError>
where
    F: Future<Output = Result<Vec<T>, DurableError>>,
{
    let found = page(after, limit).await?;
    let Some(last) = found.last() else { return Ok((found, None)) };
    // The store may end a page early because of its size, so a second request checks whether there
    // are more.
    let more = page(Some(position(last)), 1).await?;
    let next = (!more.is_empty()).then(|| position(last));
    Ok((found, next))
}
