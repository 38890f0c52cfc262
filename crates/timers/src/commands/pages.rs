//! [`join`], which reads a list of any length from the pages of a store.

#![forbid(unsafe_code)]

use tourbillon_durable::DurableError;

/// Reads pages until there are `limit` items or no items are left, because the store also limits
/// the bytes of a page. Returns the items, and the `position` of the last one if there are more.
///
/// `page` returns up to a number of items after a position.
///
/// # Errors
///
/// Fails if `page` does.
pub(crate) async fn join<T, P>(
    after: Option<P>,
    limit: usize,
    position: impl Fn(&T) -> P,
    page: impl AsyncFn(Option<P>, usize) -> Result<Vec<T>, DurableError>,
) -> Result<(Vec<T>, Option<P>), DurableError> {
    // One more item than requested, to learn whether there are more.
    let enough = limit.saturating_add(1);
    let (mut found, mut last) = (Vec::new(), after);
    while found.len() < enough {
        let next = page(last, enough - found.len()).await?;
        if next.is_empty() {
            return Ok((found, None));
        }
        found.extend(next);
        last = found.last().map(&position);
    }
    found.truncate(limit);
    let next = found.last().map(position);
    Ok((found, next))
}
