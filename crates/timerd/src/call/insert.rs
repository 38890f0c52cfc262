//! The identity of a delivery, which lets receivers recognise repeated calls.
//!
//! A timer can be inserted again under the same id and for the same time. Each insert therefore has
//! a number, which is stored in a header of the timer and becomes a part of the key. Retries,
//! redrives and copies keep the number. The number also distinguishes the versions of a timer.

#![forbid(unsafe_code)]

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tourbillon_durable::{Delivery, Options};

/// The header of a timer that holds the number of its insert. It is not sent to receivers.
pub(crate) const INSERT: &str = "webhook-insert";

/// The characters of a token that are percent-encoded. The dot is among them because it separates
/// the fields of the signed message.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~').remove(b':');

/// Adds a random number to the options of an insert.
pub(crate) fn numbered(options: Options) -> Result<Options, getrandom::Error> {
    let mut number = [0; 8];
    getrandom::fill(&mut number)?;
    Ok(options.header(INSERT, hex::encode(number)))
}

/// Returns the number of the insert that set these options.
pub(crate) fn number(options: &Options) -> Option<&str> {
    options.get_headers().find(|(name, _)| *name == INSERT).map(|(_, number)| number)
}

/// Returns the idempotency key of a delivery. Timers that other programs insert have no number.
pub(super) fn key(delivery: &Delivery) -> String {
    let key = utf8_percent_encode(&delivery.token, PLAIN).to_string();
    match delivery.headers.iter().find(|(name, _)| name == INSERT) {
        Some((_, number)) => format!("{key}:{}", utf8_percent_encode(number, PLAIN)),
        None => key,
    }
}
