//! Webhooks as the page shows them.

#![forbid(unsafe_code)]

use crate::webhook::Webhook;
use timers_web::Description;

/// Describes the payload of a timer. The values of headers and the query of the address may be
/// secret, so they are left out.
pub(super) fn describe(payload: &[u8]) -> Description {
    let webhook = match Webhook::from_payload(payload) {
        Ok(webhook) => webhook,
        Err(error) => return Description::new(format!("no webhook: {error}")),
    };
    let Webhook { url, method, headers, body, timeout, secret } = webhook;
    let (plain, query) = url.split_once('?').unwrap_or((&url, ""));
    let mut description = Description::new(format!("{method} {plain}"));
    if !query.is_empty() {
        description = description.field("Query", "not shown");
    }
    let names: Vec<String> = headers.into_keys().collect();
    for (name, value) in [
        ("Headers of the request", names.join(", ")),
        ("Time limit", timeout.unwrap_or_default()),
        ("Signed with the secret", secret.unwrap_or_default()),
    ] {
        if !value.is_empty() {
            description = description.field(name, value);
        }
    }
    description.body(body)
}
