//! The scripts. Each `.lua` file begins with its contract.

#![forbid(unsafe_code)]

use redis::Script;

macro_rules! scripts {
    ($($(#[$of:meta])? $name:ident: $($file:literal)+;)*) => {
        /// All scripts of a store, each of one or several files.
        pub(super) struct Scripts {
            $($(#[$of])? pub(super) $name: Script,)*
        }

        impl Scripts {
            pub(super) fn new() -> Self {
                Self {$(
                    $(#[$of])?
                    $name: Script::new(concat!(
                        $(include_str!(concat!("scripts/", $file, ".lua")), "\n"),+
                    )),
                )*}
            }
        }
    };
}

scripts! {
    open: "open";
    now: "common" "now";
    load: "common" "load";
    list: "common" "list";
    fetch: "common" "fetch";
    ages: "common" "ages";
    records: "common" "change" "records";
    strays: "common" "change" "strays";
    recount: "common" "recount";
    stats: "common" "stats";
    due: "common" "due";
    beat: "common" "round" "beat";
    leave: "common" "round" "leave";
    hold: "common" "hold";
    #[cfg(feature = "log")]
    log: "log";
    // All changing operations.
    batch: "common" "change" "insert" "cancel" "reset" "lease" "renew" "finish" "redrive"
        "delete_letter" "discard" "restore" "run" "update" "pause" "copy" "batch";
}
