//! The commands on Redis: one node, a cluster, and a master with a sentinel.

use super::sentinels::Watched;
use super::servers::{Cluster, Server};
use super::tool::{Folder, Tool};
use serde_json::json;

#[test]
fn a_store_in_redis_is_addressed_by_its_name() {
    let Some(server) = Server::start(&[]) else { return };
    let (tool, other) = (Tool::at(&server.url()), Tool::at(&format!("{}#other:3", server.url())));
    tool.json(&["schedule", "order 7", "unpaid", "--after", "30d"]);
    assert!(other.json(&["list"]).is_empty());
    assert_eq!(Tool::at(&format!("{}#timers", server.url())).json(&["list"]).len(), 1);
    tool.json(&["pause", "--all"]);
    let copied = tool.json(&["copy", &format!("{}#other", server.url())]);
    assert_eq!(copied, [json!({ "timers": 1, "dead_letters": 0 })]);
    assert_eq!(other.json(&["list"]), tool.json(&["list"]));
    let folder = Folder::new();
    let file = folder.join("timers");
    tool.json(&["copy", file.to_str().unwrap()]);
    assert_eq!(Tool::file(&file).json(&["list"]), tool.json(&["list"]));
}

#[test]
fn a_check_finds_damage_and_mends_it() {
    let Some(server) = Server::start(&[]) else { return };
    let tool = Tool::at(&server.url());
    tool.json(&["schedule", "order 7", "unpaid", "--after", "30d"]);
    let sound = json!({ "timers": 1, "keys": 1, "found": 0 });
    assert_eq!(tool.json(&["check"])[0], sound);
    let slices = server.order("KEYS *:s:*");
    for slice in slices.lines().filter(|line| line.starts_with('{')) {
        server.order(&format!("DEL {slice}"));
    }
    let ran = tool.run(&["--json", "check"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.out.contains(r#"{"finding":"unindexed","id":"order 7"}"#), "{ran:?}");
    let mended = tool.json(&["check", "--repair"]);
    assert_eq!(mended[0], json!({ "repaired_from": 1 }));
    assert_eq!(mended[1], sound);
    assert_eq!(tool.json(&["check"])[0], sound);
}

#[test]
fn a_cluster_and_sentinels_have_addresses() {
    let Some(cluster) = Cluster::start() else { return };
    let urls: Vec<String> = cluster.nodes.iter().map(Server::url).collect();
    let tool = Tool::at(&format!("cluster:{}#reminders", urls.join(",")));
    tool.json(&["schedule", "order 7", "unpaid", "--after", "30d"]);
    assert_eq!(tool.field("id", &["list"]), ["order 7"]);
    let ran = Tool::at(&urls[0]).run(&["list"]);
    assert_eq!(ran.code, 1, "a node of a cluster alone: {ran:?}");

    let Some(watched) = Watched::start() else { return };
    let address = format!("sentinel:redis://mymaster/,{}", watched.urls().join(","));
    let tool = Tool::at(&address);
    tool.json(&["schedule", "order 8", "unpaid", "--after", "30d"]);
    assert_eq!(tool.field("id", &["list"]), ["order 8"]);
}

#[test]
fn a_certificate_that_cannot_be_read_is_named() {
    let ran = Tool::at("rediss://127.0.0.1:1/").run(&["list", "--tls-authority", "nowhere.pem"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.errors.contains("nowhere.pem: "), "{ran:?}");
}
