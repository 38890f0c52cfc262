//! Payloads as JSON: the only file that names `serde_json`.
//!
//! JSON because a payload may rest for months: it is read by the next version of a program too,
//! whose types may have grown, and by people who look at a dead letter.

#![forbid(unsafe_code)]

use super::error::DurableError;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(super) fn write<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, DurableError> {
    serde_json::to_vec(value).map_err(|error| DurableError::Json(error.to_string()))
}

pub(super) fn read<T: DeserializeOwned>(payload: &[u8]) -> Result<T, DurableError> {
    serde_json::from_slice(payload).map_err(|error| DurableError::Json(error.to_string()))
}
