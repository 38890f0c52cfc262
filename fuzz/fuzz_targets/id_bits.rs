//! Uses arbitrary numbers as ids on a live wheel. Each refers to no timer, or to the timer whose id
//! it is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::time::Duration;
use tourbillon::{Builder, TimerId};

fuzz_target!(|input: (Vec<u8>, Vec<u64>)| {
    let (history, numbers) = input;
    let (wheel, _sweeper) =
        Builder::new().shards(3).build::<usize>().expect("the defaults are in range");
    let mut armed = std::collections::HashMap::new();
    for (n, byte) in history.iter().enumerate() {
        let id = wheel.insert(n, Duration::from_secs(60)).expect("the wheel is open");
        if byte % 2 == 0 {
            assert_eq!(wheel.cancel(id), Some(n));
        } else {
            armed.insert(id, n);
        }
    }
    for bits in numbers {
        let Some(id) = TimerId::from_bits(bits) else {
            continue;
        };
        assert_eq!(id.to_bits(), bits);
        assert_eq!(wheel.contains(id), armed.contains_key(&id));
        assert_eq!(wheel.deadline(id).is_some(), armed.contains_key(&id));
        let known = armed.remove(&id);
        assert_eq!(wheel.reset(id, Duration::from_secs(9)), Ok(known.is_some()));
        assert_eq!(wheel.cancel(id), known);
    }
    assert_eq!(wheel.len(), armed.len());
});
