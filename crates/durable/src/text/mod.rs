//! Stores, times, settings and timers as people write them, for programs with a command line or an
//! API. The tool `timers` and the service `timerd` share them.
//!
//! # Examples
//!
//! A program that inserts a timer with the arguments of its command line:
//!
//! ```
//! use clap::Parser;
//! use tourbillon_durable::text::{Settings, StoreArguments, show_time};
//!
//! #[derive(Parser)]
//! struct Arguments {
//!     #[command(flatten)]
//!     store: StoreArguments,
//!     #[command(flatten)]
//!     settings: Settings,
//! }
//!
//! # let file = std::env::temp_dir().join(format!("tourbillon-text-{}", std::process::id()));
//! # let path = file.to_str().ok_or("not UTF-8")?;
//! # let line = ["program", "--store", path, "--at", "2090-01-01T09:00[Europe/Berlin]"];
//! let arguments = Arguments::parse_from(line);
//! let address = arguments.store.store.as_ref().ok_or("expected --store")?.parse()?;
//! let (when, options) = arguments.settings.read()?;
//! pollster::block_on(async {
//!     let timers = arguments.store.open(&address).await?;
//!     timers.insert("order 7", "unpaid", when, options).await?;
//!     let timer = timers.get("order 7").await?.ok_or("there is no timer")?;
//!     assert_eq!(show_time(timer.due), "2090-01-01T08:00:00.000Z");
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # std::fs::remove_file(&file)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod address;
mod error;
mod output;
mod settings;
mod switch;
mod time;
mod view;

pub use address::{Address, AddressError, AddressText, Opening, Servers, StoreArguments};
pub use error::TextError;
pub use output::{counted, printable};
pub use settings::{ExistingName, NewTime, Settings, SettingsError};
pub use switch::Switch;
pub use time::{parse_backoff, parse_duration, parse_time, show_time};
pub use view::{
    LetterView, PayloadView, RuleView, STATES, StatsView, TimerView, parse_position, parse_state,
    reason_name, show_position, state_name,
};
