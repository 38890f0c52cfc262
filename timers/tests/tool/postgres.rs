//! The same on PostgreSQL.

use super::certificates::{Authority, Signed};
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

#[test]
fn a_store_in_postgres_is_reached_by_tls_with_certificates_on_both_sides() {
    let authority = Authority::new();
    let Signed { certificate, key } = authority.sign();
    let files = [&*certificate, &*key, &*authority.certificate];
    let access = "hostssl all postgres 127.0.0.1/32 trust clientcert=verify-full\n";
    let Some(server) = PostgresServer::with_tls(files, access) else { return };
    let tool = Tool::at(&format!("{}?sslmode=require", server.url()));
    let folder = Folder::new();
    let Signed { certificate, key } = authority.sign_for("postgres");
    let files =
        [("authority", &authority.certificate), ("certificate", &certificate), ("key", &key)];
    let files = files.map(|(name, text)| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        (format!("--tls-{name}"), path.to_str().unwrap().to_owned())
    });
    let with = |files: &[(String, String)]| {
        let options = files.iter().flat_map(|(option, path)| [option.clone(), path.clone()]);
        let arguments: Vec<String> = ["list".to_owned()].into_iter().chain(options).collect();
        tool.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let untrusted = with(&[]);
    assert!(untrusted.code == 1 && untrusted.errors.contains("UnknownIssuer"), "{untrusted:?}");
    let unknown = with(&files[..1]);
    assert!(unknown.code == 1 && unknown.errors.contains("client certificate"), "{unknown:?}");
    let ran = with(&files);
    assert_eq!(ran.code, 0, "{ran:?}");
}
