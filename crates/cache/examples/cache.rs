//! A service that answers from a cache in front of a slow store, in the manner of go-zero's `Take`.
//! Callers that miss together share one load, entries expire, and a listener counts the causes of
//! removals. It runs in real time and ends in less than a second.
//!
//! ```text
//! cargo run --release -p tourbillon-cache --example cache
//! ```

#![allow(clippy::print_stdout, reason = "a program that reports to a person")]
#![allow(clippy::disallowed_methods, reason = "a program in real time, with threads of its own")]

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::Builder;
use tourbillon_cache::{Cache, Cause};

/// Loads the page of a user. Unknown users are an error.
fn from_the_store(user: u32) -> Result<Arc<str>, String> {
    thread::sleep(Duration::from_millis(2));
    match user {
        0..50 => Ok(format!("the page of user {user}").into()),
        _ => Err(format!("nobody knows user {user}")),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let cache = Cache::builder(Duration::from_millis(100))
        .capacity(1000)
        .jitter(5)
        .listener(move |gone| {
            if gone.cause == Cause::Expired {
                count.fetch_add(1, Relaxed);
            }
        })
        .spawn(Builder::new().driver())?;

    let end = Instant::now() + Duration::from_millis(400);
    let asked: u64 = thread::scope(|scope| {
        let serve = |caller: u64| {
            let mut users = fastrand::Rng::with_seed(caller);
            let mut asked = 0;
            while Instant::now() < end {
                let user = users.u32(..51);
                let page = cache.get_or_load(&user, || from_the_store(user));
                assert_eq!(page.is_ok(), user < 50);
                asked += 1;
            }
            asked
        };
        let callers: Vec<_> = (0..4).map(|caller| scope.spawn(move || serve(caller))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap_or_default()).sum()
    });

    let stats = cache.stats();
    println!("{asked} requests: {} from the cache, {} loaded", stats.hits, stats.loaded);
    println!("{} loads failed, and none of them is kept", stats.loads - stats.loaded);
    println!("{} entries expired, {} of them told", stats.expired, told.load(Relaxed));

    // Without a load, the remaining entries expire by themselves, without any call.
    thread::sleep(Duration::from_millis(150));
    println!("after a while without requests: {} entries", cache.len());
    Ok(())
}
