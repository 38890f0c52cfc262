//! The locks of code that the models in `loom-tests` compile, where an explorer's take their place.

#![forbid(unsafe_code)]

pub(crate) use std::sync::{Mutex as ModelledMutex, MutexGuard as ModelledGuard};
