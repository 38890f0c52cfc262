//! [`Host`], a server with a store in real time, which can fail.

use super::process::{PATIENCE, Process};
use super::proxy::Proxy;
use std::time::{Duration, SystemTime};

/// A server that keeps what it has acknowledged, even if it is killed.
pub(crate) trait Host: Send + Sync + Sized + 'static {
    /// Starts a server. Returns `None` if it is not installed.
    fn start_host() -> Option<Self>;

    /// Starts a server whose clock can be [set](Self::set_clock).
    fn start_with_clock() -> Option<Self>;

    /// Sets the server's clock `ahead` seconds ahead of the machine's.
    fn set_clock(&self, ahead: i64);

    /// Returns the time of the server's clock.
    fn now(&self) -> SystemTime;

    fn port(&self) -> u16;

    /// Connects to the store through a port, with a limit on how long a call is retried.
    fn process_with(&self, port: u16, call_timeout: Duration) -> Process;

    /// Starts a proxy in front of the server.
    fn proxy(&self) -> Proxy;

    fn kill(&self);

    fn resume(&self);

    fn pause(&self);

    fn go_on(&self);

    /// Ends the connections of all clients.
    fn cut(&self);

    /// Ends the connections that the server uses to notify workers.
    fn cut_notices(&self);

    /// Returns the number of commands or transactions that were executed.
    fn executed(&self) -> u64;

    /// Connects to the store through a port, which may be a proxy's.
    fn process_at(&self, port: u16) -> Process {
        self.process_with(port, PATIENCE)
    }

    /// Connects to the store.
    fn process(&self) -> Process {
        self.process_at(self.port())
    }
}

/// Runs each test on a server of each kind.
#[allow(unused_macros, reason = "each test binary uses a part")]
macro_rules! hosts {
    ($($test:ident),* $(,)?) => {
        #[cfg(feature = "postgres")]
        mod postgres {
            $(
                #[test]
                fn $test() {
                    super::$test::<crate::common::postgres_server::PostgresServer>();
                }
            )*
        }

        #[cfg(feature = "redis")]
        mod redis {
            $(
                #[test]
                fn $test() {
                    super::$test::<crate::common::servers::Server>();
                }
            )*
        }
    };
}

#[allow(unused_imports, reason = "each test binary uses a part")]
pub(crate) use hosts;
