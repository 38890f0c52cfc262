//! [`Page`], the address of the web page, which makes the link of an alert.

#![forbid(unsafe_code)]

use super::alert::{Alert, Lead};
use crate::config::AlertKind;
use http::Uri;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;
use tourbillon_durable::DurableTimers;

/// The number of newest dead letters of a timer that are searched for the letter of an alert.
const SEARCHED: usize = 100;

/// How long an alert waits for its letter.
const LIMIT: Duration = Duration::from_secs(2);

/// The address of the page, without a slash at its end. `None` if it is not configured.
#[derive(Clone, Debug, Default)]
pub(super) struct Page(Option<String>);

impl Page {
    pub(super) fn new(address: Option<&str>) -> Result<Self, String> {
        let Some(address) = address else { return Ok(Self(None)) };
        let uri = address.parse::<Uri>().ok();
        let is_web = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https"));
        let is_whole = !address.contains(['#', '?', '@']);
        match uri.filter(|uri| is_web(uri) && is_whole) {
            Some(_) => Ok(Self(Some(address.trim_end_matches('/').to_owned()))),
            None => Err(format!("page: {address:?} (expected https://HOST/ or http://HOST/)")),
        }
    }

    /// Returns where an alert leads to. A letter that was redriven or deleted in the meantime has
    /// no number, and neither has a letter behind a hundred newer letters of its timer.
    pub(super) async fn lead(&self, alert: &Alert, timers: &DurableTimers) -> Lead {
        let number = match alert.kind() {
            AlertKind::DeadLetter => number(alert, timers).await,
            _ => None,
        };
        let id = utf8_percent_encode(alert.id(), NON_ALPHANUMERIC);
        let path = number.map_or(format!("timers/{id}"), |number| format!("dead-letters/{number}"));
        Lead { number, link: self.0.as_ref().map(|page| format!("{page}/{path}")) }
    }
}

/// Returns the number of the dead letter of an alert. An alert is sent without it if the store does
/// not reply in time.
async fn number(alert: &Alert, timers: &DurableTimers) -> Option<u64> {
    let letters = timers.newest_dead_letters_of(alert.id(), None, SEARCHED);
    let letters = tokio::time::timeout(LIMIT, letters).await.ok()?.ok()?;
    letters.iter().find(|letter| letter.planned == alert.planned()).map(|letter| letter.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_page_is_that_of_a_web_site() {
        for (address, page) in [
            ("https://timers.example.org", "https://timers.example.org"),
            ("https://example.org/ops/", "https://example.org/ops"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ] {
            assert_eq!(Page::new(Some(address)).map(|page| page.0), Ok(Some(page.to_owned())));
        }
        for address in [
            "",
            "timers",
            "/timers",
            "ftp://example.org/",
            "https://example.org/?a=b",
            "https://example.org/#a",
            "https://a:b@example.org/",
        ] {
            let refused = Page::new(Some(address)).map(|page| page.0);
            assert!(refused.is_err_and(|why| why.starts_with("page: ")), "{address}");
        }
    }
}
