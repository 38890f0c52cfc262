//! Times, settings and timers as people write them, for programs with a page, an API or a command
//! line. The page `timers-web`, the service `timerd` and the tool `timers` share them. With the
//! feature `arguments`, the settings are arguments of a command line, and so is the store.

#![forbid(unsafe_code)]

#[cfg(feature = "arguments")]
mod address;
mod error;
mod output;
mod settings;
mod switch;
mod time;
mod view;

#[cfg(feature = "arguments")]
pub use address::{Address, AddressError, AddressText, Opening, Servers, StoreArguments};
pub use error::TextError;
pub use output::{counted, grouped, printable};
pub use settings::{ExistingName, NewTime, Settings, SettingsError};
pub use switch::Switch;
pub use time::{parse_backoff, parse_duration, parse_time, show_time};
pub use view::{
    LetterView, PayloadView, RuleView, STATES, StatsView, TimerView, parse_position, parse_state,
    reason_name, show_position, state_name,
};
