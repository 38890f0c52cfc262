//! Payloads as JSON.
//!
//! JSON, because a payload may rest for months. It must then be readable by a later version of the
//! program, with more fields, and by operators that inspect a dead letter.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) fn write<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, DurableError> {
    serde_json::to_vec(value).map_err(|error| DurableError::Json(error.to_string()))
}

pub(crate) fn read<T: DeserializeOwned>(payload: &[u8]) -> Result<T, DurableError> {
    serde_json::from_slice(payload).map_err(|error| DurableError::Json(error.to_string()))
}
