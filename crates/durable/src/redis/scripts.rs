//! The scripts. Each `.lua` file begins with its contract.

#![forbid(unsafe_code)]

use redis::Script;

/// All scripts of a store.
pub(super) struct Scripts {
    pub(super) open: Script,
    pub(super) now: Script,
    pub(super) load: Script,
    pub(super) list: Script,
    pub(super) fetch: Script,
    pub(super) ages: Script,
    pub(super) records: Script,
    pub(super) strays: Script,
    pub(super) recount: Script,
    pub(super) stats: Script,
    pub(super) beat: Script,
    pub(super) leave: Script,
    pub(super) hold: Script,
    /// The script with all changing operations.
    pub(super) batch: Script,
}

macro_rules! script {
    ($($name:literal),*) => {
        Script::new(concat!($(include_str!(concat!("scripts/", $name, ".lua")), "\n"),*))
    };
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            open: script!("open"),
            now: script!("common", "now"),
            load: script!("common", "load"),
            list: script!("common", "list"),
            fetch: script!("common", "fetch"),
            ages: script!("common", "ages"),
            records: script!("common", "change", "records"),
            strays: script!("common", "change", "strays"),
            recount: script!("common", "recount"),
            stats: script!("common", "stats"),
            beat: script!("common", "beat"),
            leave: script!("common", "leave"),
            hold: script!("common", "hold"),
            batch: script!(
                "common",
                "change",
                "insert",
                "cancel",
                "reset",
                "lease",
                "renew",
                "finish",
                "redrive",
                "delete_letter",
                "discard",
                "restore",
                "update",
                "pause",
                "copy",
                "batch"
            ),
        }
    }
}
