//! Webhooks as the page shows them.

#![forbid(unsafe_code)]

use crate::webhook::Webhook;
use timers_web::Description;

/// Describes the payload of a timer. The query of the address may contain secrets, so it is left
/// out.
pub(super) fn describe(payload: &[u8]) -> Description {
    match Webhook::from_payload(payload) {
        Ok(webhook) => {
            let plain = webhook.url.split('?').next().unwrap_or_default();
            Description::new(format!("{} {plain}", webhook.method))
        }
        Err(error) => Description::new(error.to_string()),
    }
}
