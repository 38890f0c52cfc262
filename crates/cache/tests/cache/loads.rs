//! The results of callers that wait for a load, the borrowed forms of keys that begin a load, and
//! the operations that take its place.

use std::error::Error;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::ParseIntError;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Sweeper};
use tourbillon_cache::{Cache, CacheTimer, IntoKey, LoadError, Loaded};

const TTL: Duration = Duration::from_secs(60);

type Taken = Result<u64, LoadError<&'static str>>;

/// The results of the caller of a load and of the callers that waited for it.
type Answers<E> = (thread::Result<Taken>, Vec<Result<u64, LoadError<E>>>);

fn failed(error: &'static str) -> Taken {
    Err(LoadError::Failed(Arc::new(error)))
}

/// All instances are one key. It counts its comparisons. While the cache has no value, each caller
/// makes one after it has found the load, under the lock that the end of the load needs too.
#[derive(Clone)]
struct Watched(Arc<AtomicUsize>);

impl PartialEq for Watched {
    fn eq(&self, _: &Self) -> bool {
        self.0.fetch_add(1, SeqCst);
        true
    }
}

impl Eq for Watched {}

impl Hash for Watched {
    fn hash<H: Hasher>(&self, state: &mut H) {
        0.hash(state);
    }
}

/// A cache of one key, and the callers that wait for a load of it.
struct Waiting {
    cache: Cache<Watched, u64>,
    key: Watched,
    /// Shared, because a wheel without a sweeper is closed.
    _sweeper: Mutex<Sweeper<CacheTimer<Watched>>>,
}

impl Waiting {
    fn new() -> Self {
        let (wheel, sweeper) = Builder::new().build().unwrap();
        let cache = Cache::builder(TTL).build(wheel).unwrap();
        Self { cache, key: Watched(Arc::default()), _sweeper: Mutex::new(sweeper) }
    }

    fn load(&self, load: impl FnOnce() -> Result<u64, &'static str>) -> Taken {
        self.cache.get_or_load(&self.key, load)
    }

    /// Runs a load while `waiting` threads wait for its end. Returns its result and theirs.
    fn wait<E: Send + Sync + 'static>(
        &self,
        waiting: usize,
        load: impl FnOnce() -> Result<u64, &'static str> + Send,
        other: impl Fn() -> Result<u64, E> + Sync,
    ) -> Answers<E> {
        let (begin, begun) = mpsc::channel();
        thread::scope(|scope| {
            let loader = scope.spawn(move || {
                self.load(|| {
                    let before = self.key.0.load(SeqCst);
                    begin.send(()).unwrap();
                    while self.key.0.load(SeqCst) < before + waiting {
                        thread::yield_now();
                    }
                    load()
                })
            });
            begun.recv().unwrap();
            let wait = || self.cache.get_or_load(&self.key, &other);
            let others: Vec<_> = (0..waiting).map(|_| scope.spawn(wait)).collect();
            let others = others.into_iter().map(|other| other.join().unwrap()).collect();
            (loader.join(), others)
        })
    }
}

fn unneeded() -> Result<u64, &'static str> {
    panic!("one load for all")
}

#[test]
fn all_who_wait_for_a_load_that_fails_have_its_error() {
    let waiting = Waiting::new();
    let (first, others) = waiting.wait(20, || Err("down"), unneeded);
    assert_eq!(first.unwrap(), failed("down"));
    assert!(others.iter().all(|other| *other == failed("down")), "{others:?}");
    let stats = waiting.cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.loads, stats.loaded), (0, 21, 1, 0));
    // Nothing was kept of the failure, so a later caller loads again.
    assert!(waiting.cache.is_empty());
    assert_eq!(waiting.load(|| Err("still down")), failed("still down"));
    assert_eq!(waiting.load(|| Ok(42)), Ok(42));
}

#[test]
fn all_who_wait_for_a_load_have_its_value() {
    let waiting = Waiting::new();
    let (first, others) = waiting.wait(20, || Ok(42), unneeded);
    assert!(others.into_iter().chain(first).all(|taken| taken == Ok(42)));
    let stats = waiting.cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.loads, stats.loaded), (20, 1, 1, 1));
}

#[test]
fn one_of_those_who_wait_for_a_load_that_panics_loads() {
    let waiting = Waiting::new();
    let panics = || resume_unwind(Box::new("a load that panics"));
    let (first, others) = waiting.wait(8, panics, || Ok::<_, ()>(42));
    assert_eq!(*first.unwrap_err().downcast::<&str>().unwrap(), "a load that panics");
    assert_eq!(others, [const { Ok(42) }; 8]);
    assert_eq!((waiting.cache.stats().loads, waiting.cache.stats().loaded), (2, 1));
}

#[test]
fn a_load_that_asks_for_its_own_key_is_an_error() {
    let waiting = Waiting::new();
    let (cache, key) = (&waiting.cache, &waiting.key);
    let asked = waiting.load(|| {
        let within = waiting.load(unneeded);
        assert_eq!(within.clone().unwrap_err().to_string(), OWN_KEY);
        assert_eq!(within, Err(LoadError::Recursive));
        let by_task = cache.get_or_load_async(key, async { unneeded() });
        assert_eq!(pollster::block_on(by_task), Err(LoadError::Recursive));
        Ok(1)
    });
    assert_eq!((asked, cache.get(key)), (Ok(1), Some(1)));
    cache.clear();
    let load = async {
        let within = cache.get_or_load_async(key, async { unneeded() }).await;
        assert_eq!(within, Err(LoadError::Recursive));
        assert_eq!(waiting.load(unneeded), Err(LoadError::Recursive));
        Ok::<_, ()>(2)
    };
    assert_eq!(pollster::block_on(cache.get_or_load_async(key, load)), Ok(2));
}

const OWN_KEY: &str = "the load of a key requested that key from the cache";

/// A circle of two keys fails. Two keys that need the same third one are no circle.
#[test]
fn loads_of_one_thread_that_wait_for_each_other_are_an_error() {
    let (wheel, _sweeper) = Builder::new().build().unwrap();
    let cache = Cache::<u32, u64>::builder(TTL).build(wheel).unwrap();
    type Answer = Result<u64, LoadError<&'static str>>;
    let asked: Answer = cache.get_or_load(&1, || {
        let second: Answer = cache.get_or_load(&2, || {
            let first: Answer = cache.get_or_load(&1, unneeded);
            assert_eq!(first, Err(LoadError::Recursive));
            Ok(2)
        });
        assert_eq!(second, Ok(2));
        second.map_err(|_| "no second")
    });
    assert_eq!(asked, Ok(2));
    let third = || cache.get_or_load(&30, || Ok::<_, &str>(30)).map_err(|_| "no third");
    assert_eq!(cache.get_or_load(&10, third), Ok(30));
    assert_eq!(cache.get_or_load(&20, third), Ok(30));
}

#[test]
fn all_who_wait_for_a_load_that_cannot_be_kept_have_its_value() {
    let waiting = Waiting::new();
    waiting.cache.shutdown();
    let (first, others) = waiting.wait(3, || Ok(42), unneeded);
    assert!(others.into_iter().chain(first).all(|answer| answer == Ok(42)));
    assert_eq!((waiting.cache.stats().loads, waiting.cache.len()), (1, 0));
}

/// The waiting callers get the value, because it is newer than the failure. The load's own caller
/// gets the error.
#[test]
fn a_value_that_came_while_a_load_failed_is_served_to_those_who_waited() {
    let waiting = Waiting::new();
    let overtaken = || {
        waiting.cache.insert(waiting.key.clone(), 1).unwrap();
        Err("down")
    };
    let (first, others) = waiting.wait(8, overtaken, unneeded);
    assert_eq!(first.unwrap(), failed("down"));
    assert_eq!(others, [const { Ok(1) }; 8]);
}

/// An error of another type cannot be handed on.
#[test]
fn whose_error_is_of_another_type_loads() {
    let waiting = Waiting::new();
    let (first, others) = waiting.wait(1, || Err("down"), || Err(7_u8));
    assert_eq!(first.unwrap(), failed("down"));
    assert_eq!(others, [Err(LoadError::Failed(Arc::new(7)))]);
    assert_eq!((waiting.cache.stats().loads, waiting.cache.stats().misses), (2, 2));
}

/// The result of the old load is not used, because it may have read before the removal.
#[test]
fn who_misses_after_a_removal_begins_a_load_of_their_own() {
    type Removal = fn(&Cache<Watched, u64>, &Watched);
    let removals: [Removal; 2] =
        [|cache, key| assert_eq!(cache.remove(key), None), |cache, _| cache.clear()];
    for removal in removals {
        let waiting = Waiting::new();
        let overtaken = waiting.load(|| {
            removal(&waiting.cache, &waiting.key);
            assert_eq!(waiting.load(|| Ok(21)), Ok(21));
            Ok(10)
        });
        assert_eq!((overtaken, waiting.cache.get(&waiting.key)), (Ok(10), Some(21)));
    }
}

/// Runs a load in a closed cache, which keeps nothing.
fn miss<'q, K, Q>(key: &'q Q) -> Taken
where
    K: Hash + Eq + Clone + Send + 'static + std::borrow::Borrow<Q>,
    Q: Hash + Eq + ?Sized,
    &'q Q: IntoKey<K>,
{
    let (wheel, _sweeper) = Builder::new().build().unwrap();
    Cache::<K, u64>::builder(TTL).build(wheel).unwrap().get_or_load(key, || Err::<u64, _>("down"))
}

#[test]
fn a_load_is_looked_up_by_borrowed_forms_of_its_key() {
    let missed = [
        miss::<String, _>("key"),
        miss::<Arc<str>, _>("key"),
        miss::<Box<str>, _>("key"),
        miss::<&'static str, _>("key"),
        miss::<&'static str, _>(&"key"),
        miss::<Arc<str>, Arc<str>>(&Arc::from("key")),
        miss::<Vec<u8>, [u8]>(b"key"),
        miss::<PathBuf, _>(Path::new("key")),
        miss::<(u8, u64), _>(&(1, 2)),
    ];
    assert!(missed.iter().all(|missed| *missed == failed("down")));
}

/// The callers that wait for a failed load create the value, which cannot fail.
#[test]
fn what_cannot_fail_is_made_where_another_load_failed() {
    let waiting = Waiting::new();
    let failed = waiting.load(|| {
        let own_key = || waiting.cache.get_or_insert_with(&waiting.key, || 7);
        assert!(catch_unwind(AssertUnwindSafe(own_key)).is_err(), "it would wait for itself");
        Err("down")
    });
    assert!(failed.is_err());
    let (begin, begun) = mpsc::channel();
    thread::scope(|scope| {
        let loads = &waiting;
        scope.spawn(move || {
            let fails = loads.load(|| {
                let before = loads.key.0.load(SeqCst);
                begin.send(()).unwrap();
                while loads.key.0.load(SeqCst) == before {
                    thread::yield_now();
                }
                Err("down")
            });
            assert!(fails.is_err());
        });
        begun.recv().unwrap();
        assert_eq!(waiting.cache.get_or_insert_with(&waiting.key, || 42), 42);
    });
    assert_eq!(waiting.cache.get(&waiting.key), Some(42));
}

#[test]
fn what_is_not_to_be_kept_is_returned() {
    type Load = fn() -> Result<Loaded<u64>, &'static str>;
    let loads: [Load; 2] = [|| Ok(Loaded::uncached(1)), || Ok(Loaded::from((1, Duration::ZERO)))];
    for load in loads {
        let waiting = Waiting::new();
        for _ in 0..2 {
            assert_eq!(waiting.cache.get_or_load(&waiting.key, load), Ok(1));
            let by_task = async { load() };
            let by_task = waiting.cache.get_or_load_async(&waiting.key, by_task);
            assert_eq!(pollster::block_on(by_task), Ok(1));
        }
        assert_eq!((waiting.cache.len(), waiting.cache.stats().loads), (0, 4));
    }
}

#[test]
fn what_a_full_wheel_has_no_place_for_is_returned() {
    let (wheel, _sweeper) = Builder::new().capacity(1).build().unwrap();
    let cache = Cache::builder(TTL).build(wheel).unwrap();
    assert_eq!(cache.get_or_load(&1, || Ok::<_, ()>(10)), Ok(10));
    assert_eq!(cache.get_or_load(&2, || Ok::<_, ()>(20)), Ok(20));
    assert_eq!((cache.get(&1), cache.get(&2)), (Some(10), None));
}

/// An error like `anyhow`'s, which converts from every error and implements `Error` itself for
/// none.
struct Opaque(Box<dyn Error + Send + Sync>);

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Opaque {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

fn opaque(cache: &Cache<u32, u64>) -> Result<u64, Opaque> {
    Ok(cache.get_or_load(&7, || -> Result<_, Opaque> { Ok("seven".parse::<u64>()?) })?)
}

fn boxed(cache: &Cache<u32, u64>) -> Result<u64, Box<dyn Error + Send + Sync>> {
    type Failure = Box<dyn Error + Send + Sync>;
    let load = async { Err::<u64, Failure>("no such thing".into()) };
    Ok(pollster::block_on(cache.get_or_load_async(&7, load))?)
}

fn typed(cache: &Cache<u32, u64>) -> Result<u64, Opaque> {
    Ok(cache.get_or_load(&7, || "seven".parse::<u64>())?)
}

#[test]
fn an_application_takes_the_errors_of_its_loads() {
    let (wheel, _sweeper) = Builder::new().build().unwrap();
    let cache = Cache::builder(TTL).build(wheel).unwrap();
    let digit = "the load failed: invalid digit found in string";
    assert_eq!(opaque(&cache).unwrap_err().to_string(), digit);
    assert_eq!(typed(&cache).unwrap_err().to_string(), digit);
    assert_eq!(boxed(&cache).unwrap_err().to_string(), "the load failed: no such thing");
    let error = typed(&cache).unwrap_err().0;
    assert!(matches!(error.downcast_ref(), Some(LoadError::<ParseIntError>::Failed(_))));
}
