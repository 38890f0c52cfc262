//! Futures that connect, deep inside a program's futures, as behind the layers of a web framework.
//! If they nest too deeply, this does not compile.

use crate::common::bench::wait;
use crate::common::process::runtime;
use tourbillon_durable::{DurableError, Redis};

/// Wraps a future in one more for each word.
macro_rules! nested {
    ($future:expr;) => { $future };
    ($future:expr; $level:ident $($levels:ident)*) => {
        async move { nested!($future; $($levels)*).await }
    };
}

macro_rules! deep {
    ($future:expr) => {
        nested!($future; a b c d e f g h i j k l m n o p q r s t u v w x)
    };
}

#[test]
fn a_program_can_connect_inside_many_futures() {
    let runtime = runtime();
    // Their addresses are wrong, so no server is needed.
    let one = runtime.spawn(deep!(Redis::connect("nonsense", "timers")));
    let cluster = runtime.spawn(deep!(Redis::connect_cluster(["nonsense"], "timers")));
    let master = runtime.spawn(deep!(Redis::connect_sentinel("nonsense", ["nonsense"], "timers")));
    for connected in [one, cluster, master] {
        let refused = wait(connected).unwrap();
        assert!(matches!(refused, Err(DurableError::Address(_))), "{refused:?}");
    }
}
