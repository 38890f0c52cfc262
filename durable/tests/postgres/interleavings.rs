//! The SQL functions of a store in transactions that overlap, and the plans that they have.

use crate::common::host::Host;
use crate::common::postgres_server::PostgresServer;

/// The planner counts a small table that is read as a whole as if it was expensive, because it has
/// to avoid such plans for large ones. It must not compile code for it in each call.
#[test]
fn no_function_that_avoids_scans_compiles_its_plans() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let _process = server.process();
    let compiling = "select count(*), count(*) filter (where not 'jit=off' = any (proconfig)) \
                     from pg_proc where 'enable_seqscan=off' = any (proconfig)";
    assert_eq!(server.order(compiling), "5|0");
}
