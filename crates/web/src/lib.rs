#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod activity;
mod body;
mod description;
mod failure;
mod forms;
mod mount;
mod pages;
mod read;
mod rights;
mod site;
mod text;
mod view;
mod visit;

pub use activity::Activity;
pub use description::Description;
pub use forms::FormToken;
pub use rights::Rights;
pub use site::TimersWeb;
