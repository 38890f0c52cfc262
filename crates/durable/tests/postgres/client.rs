//! Other clients of the server, and the statement of a batch that they may send.

use crate::common::postgres_server::PostgresServer;
use crate::common::process::Process;
use tokio_postgres::{Client, NoTls};

/// Connects as another client.
pub(super) fn client(process: &Process, server: &PostgresServer) -> Client {
    client_at(process, &server.url())
}

/// Connects as another client, with this address.
pub(super) fn client_at(process: &Process, url: &str) -> Client {
    process.runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    })
}

impl Process {
    pub(super) fn execute(&self, client: &Client, sql: &str) -> Result<Option<String>, String> {
        let told = self.runtime.block_on(client.simple_query(sql));
        let rows = told.map_err(|error| error.code().unwrap().code().to_owned())?;
        Ok(rows.into_iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }))
    }
}

/// Returns a statement that executes a batch with one operation on each of some timers.
pub(super) fn batch(number: u32, settles: bool, kind: &str, ids: &[&str], due: &str) -> String {
    let nothing = |columns: &[&str], kind| {
        columns.iter().map(|name| format!(", {name} => '{{}}'::{kind}[]")).collect::<String>()
    };
    format!(
        "select answer from timers.batch(home => 1, a_process => 1, a_number => {number}, \
         settles => {settles}, careful => false, at => null, most_letters => null, age => null, \
         kinds => array_fill('{kind}'::text, array[{}]), ids => array['{}'], dues => array[{due}]::bigint[], \
         payloads => '{{}}'::bytea[]{}{}{}{})",
        ids.len(),
        ids.join("', '"),
        nothing(
            &["waits", "fences", "firsts", "mosts", "everys", "lives", "misfires", "attempts"],
            "bigint"
        ),
        nothing(&["hows", "notes", "crons", "zones", "headers"], "text"),
        nothing(&["flags", "jitters"], "boolean"),
        nothing(&["reasons", "leases"], "integer"),
    )
}
