//! The macro `params!`, which turns values into the parameters of a statement. The types of the
//! parameters follow from the types of the values.

#![forbid(unsafe_code)]

use super::link::Param;
use tokio_postgres::types::{ToSql, Type};

/// A value of Rust with its type in SQL, and the type of an array of such values.
pub(super) trait Typed: ToSql + Send + Sync {
    const TYPE: Type;
    const ARRAY: Type;
}

macro_rules! typed {
    ($($rust:ty: $one:ident $many:ident;)*) => {$(
        impl Typed for $rust {
            const TYPE: Type = Type::$one;
            const ARRAY: Type = Type::$many;
        }
    )*};
}

typed! {
    bool: BOOL BOOL_ARRAY;
    i32: INT4 INT4_ARRAY;
    i64: INT8 INT8_ARRAY;
    &str: TEXT TEXT_ARRAY;
    String: TEXT TEXT_ARRAY;
    &[u8]: BYTEA BYTEA_ARRAY;
}

impl<T: Typed> Typed for Option<T> {
    const TYPE: Type = T::TYPE;
    const ARRAY: Type = T::ARRAY;
}

impl<T: Typed> Typed for Vec<T> {
    const TYPE: Type = T::ARRAY;
    const ARRAY: Type = T::ARRAY;
}

/// Returns a value as a parameter.
pub(super) fn param<T: Typed>(value: &T) -> Param<'_> {
    (value, T::TYPE)
}

/// Returns values as parameters, in order.
macro_rules! params {
    ($($value:expr),*) => { [$($crate::postgres::params::param(&$value)),*] };
}

pub(super) use params;
