//! The models, one file for each pair of racing operations. They form one program, so that shared
//! code is compiled once.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a model fails by panicking")]

mod block_vs_inserter;
mod blocks;
mod by_magazine;
mod cancel_vs_sweep;
mod close_vs_insert;
#[cfg(shuttle)]
mod crowd;
mod delay_queue;
mod exhaustion;
mod insert_vs_insert;
mod insert_vs_sweep;
mod keyed;
mod lazy;
mod leap;
mod len_vs_all;
#[cfg(shuttle)]
mod lock_free;
mod magazines;
mod next_visit_vs_refile;
mod page_vs_flag;
#[cfg(crossbeam_loom)]
mod page_vs_lookup;
mod requests;
mod reset_vs_sweep;
mod resets_vs_leap;
mod rest_vs_insert;
mod rest_vs_resets;
mod reuse_of_references;
mod scan_vs_filers;
mod series;
#[cfg(shuttle)]
mod shutdown_vs_handler;
mod sleep;
mod snapshot_vs_all;
mod stale_id_vs_reuse;
mod upkeep_vs_callers;
mod window;
#[cfg(shuttle)]
mod workers;
