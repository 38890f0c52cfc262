//! The same on PostgreSQL.

use super::postgres_server::PostgresServer;
use super::tool::{Folder, Tool};
use serde_json::json;

#[test]
fn a_store_in_postgres_is_addressed_by_its_name() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let (tool, other) = (Tool::at(&server.url()), Tool::at(&format!("{}#other", server.url())));
    tool.json(&["schedule", "order 7", "unpaid", "--after", "30d"]);
    assert!(other.json(&["list"]).is_empty());
    assert_eq!(Tool::at(&format!("{}#timers", server.url())).json(&["list"]).len(), 1);
    tool.json(&["pause", "order 7"]);
    assert_eq!(tool.field("state", &["list", "--state", "paused"]), ["paused"]);
    tool.json(&["pause", "--all"]);
    let folder = Folder::new();
    let file = folder.join("timers");
    let copied = tool.json(&["copy", file.to_str().unwrap()]);
    assert_eq!(copied, [json!({ "timers": 1, "dead_letters": 0 })]);
    assert_eq!(Tool::file(&file).json(&["list"]), tool.json(&["list"]));
    assert_eq!(tool.json(&["check"])[0]["found"], 0);
    let ran = Tool::at(&format!("{}#pg_store", server.url())).run(&["list"]);
    assert_eq!(ran.code, 1, "the name is not allowed: {ran:?}");
}
