//! Stores, times, settings and timers as people write them, for programs with a command line or an
//! API: the tool `timers` and the service `timerd` share them.

#![forbid(unsafe_code)]

mod address;
mod output;
mod settings;
mod switch;
mod time;
mod view;

pub use address::{
    Address, AddressText, Certificates, LetterBounds, Opening, Servers, StoreArguments,
};
pub use output::{counted, printable};
pub use settings::{ExistingName, Settings, SettingsError, parse_backoff};
pub use switch::Switch;
pub use time::{parse_duration, parse_time, show_time};
pub use view::{
    LetterView, PayloadView, RuleView, STATES, StatsView, TimerView, parse_position, parse_state,
    reason_name, show_position, state_name,
};
