//! The scripts: one for each transition. Each `.lua` file begins with its contract.

#![forbid(unsafe_code)]

use redis::Script;

/// All scripts of a store.
pub(super) struct Scripts {
    pub(super) open: Script,
    pub(super) now: Script,
    pub(super) schedule: Script,
    pub(super) cancel: Script,
    pub(super) reschedule: Script,
    pub(super) lease: Script,
    pub(super) finish: Script,
    pub(super) load: Script,
    pub(super) list: Script,
    pub(super) redrive: Script,
    pub(super) bury: Script,
    pub(super) beat: Script,
    pub(super) leave: Script,
}

macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(
            include_str!("scripts/common.lua"),
            include_str!(concat!("scripts/", $name, ".lua"))
        ))
    };
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            open: Script::new(include_str!("scripts/open.lua")),
            now: script!("now"),
            schedule: script!("schedule"),
            cancel: script!("cancel"),
            reschedule: script!("reschedule"),
            lease: script!("lease"),
            finish: script!("finish"),
            load: script!("load"),
            list: script!("list"),
            redrive: script!("redrive"),
            bury: script!("bury"),
            beat: script!("beat"),
            leave: script!("leave"),
        }
    }
}
