//! [`IntoKey`]: converts a borrowed form of a key into a key, if a load needs one.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::path::Path;

/// A reference that a cache can create its key `K` from.
/// [`Cache::get_or_load`](super::Cache::get_or_load) looks keys up by such references.
///
/// It is implemented for `&K`, and for `&str`, `&[T]`, `&Path` and `&OsStr` if `K` implements
/// [`From`] for one of these, as `String`, `Arc<str>`, `&'static str`, `Vec<T>` and `PathBuf` do.
/// Implement it for your own forms.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_cache::Cache;
///
/// let cache = Cache::<Arc<str>, u32>::builder(Duration::from_secs(60));
/// let cache = cache.spawn(Builder::new().driver())?;
/// // Only the call that loads makes an `Arc`.
/// assert_eq!(cache.get_or_load("key", || Ok::<_, std::io::Error>(7))?, 7);
/// assert_eq!(cache.get_or_load("key", || Err::<u32, _>(std::io::Error::other("down")))?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a key `{K}` cannot be made of `{Self}`",
    note = "look it up by `&{K}`, or implement `tourbillon_cache::IntoKey<{K}>` for `{Self}`"
)]
pub trait IntoKey<K> {
    /// Creates the key. It must be equal to the reference and have the same hash.
    fn into_key(self) -> K;
}

impl<K: Clone> IntoKey<K> for &K {
    fn into_key(self) -> K {
        self.clone()
    }
}

impl<'q, K: From<&'q str>> IntoKey<K> for &'q str {
    fn into_key(self) -> K {
        self.into()
    }
}

impl<'q, T, K: From<&'q [T]>> IntoKey<K> for &'q [T] {
    fn into_key(self) -> K {
        self.into()
    }
}

impl<'q, K: From<&'q Path>> IntoKey<K> for &'q Path {
    fn into_key(self) -> K {
        self.into()
    }
}

impl<'q, K: From<&'q OsStr>> IntoKey<K> for &'q OsStr {
    fn into_key(self) -> K {
        self.into()
    }
}
