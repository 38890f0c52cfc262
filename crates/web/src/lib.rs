#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod description;
mod failure;
mod forms;
mod mount;
mod pages;
mod site;
mod text;
mod view;
mod visit;

pub use description::Description;
pub use forms::FormToken;
pub use site::TimersWeb;
