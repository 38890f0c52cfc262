//! The commands on PostgreSQL.

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
fn a_store_in_postgres_is_created_and_upgraded_by_a_role_that_may() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    server.order("create role shop login");
    let shop = Tool::at(&server.url().replace("postgres@", "shop@"));
    let owner = Tool::at(&server.url());
    let ran = shop.run(&["migrate"]);
    assert!(ran.code == 1 && ran.errors.contains("does not exist"), "{ran:?}");
    let sql = shop.run(&["migrate", "--print-sql"]).out;
    let (transaction, vacuum) = sql.rsplit_once("VACUUM").unwrap();
    server.order(transaction);
    server.order(&format!("VACUUM{vacuum}"));
    assert_eq!(server.order("select count(*) from timers.store"), "1");
    let current = serde_json::json!({ "store": "timers", "result": "current" });
    assert_eq!(owner.json(&["migrate"]), std::slice::from_ref(&current));
    server.order(
        "grant usage on schema timers to shop; grant select on all tables in schema timers to shop;
         update timers.store set revision = 0",
    );
    let ran = shop.run(&["list"]);
    assert!(ran.code == 1 && ran.errors.contains("\"postgres\" must upgrade it"), "{ran:?}");
    assert_eq!(owner.json(&["migrate"]), [current]);
    assert!(shop.json(&["list"]).is_empty());
    let ran = Tool::at("timers.db").run(&["migrate", "--print-sql"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}

#[test]
fn a_store_in_postgres_may_belong_to_a_role_that_is_named() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    server.order(
        "create role keeper login; create role shop login;
         create schema timers authorization keeper",
    );
    let at = |role: &str| Tool::at(&server.url().replace("postgres@", &format!("{role}@")));
    let (keeper, shop) = (at("keeper"), at("shop"));
    keeper.json(&["migrate"]);
    server.order(
        "grant usage on schema timers to shop;
         grant select, insert, update, delete on all tables in schema timers to shop;
         grant usage, select, update on all sequences in schema timers to shop",
    );
    for wrong in [&["list"][..], &["list", "--owner", "shop"]] {
        let ran = shop.run(wrong);
        assert!(ran.code == 1 && ran.errors.contains("belongs to \"keeper\""), "{ran:?}");
    }
    let schedule = ["schedule", "order 7", "--after", "30d", "--owner", "keeper"];
    assert_eq!(shop.field("result", &schedule), ["new"]);
    let by_variable = shop.command(&["get", "order 7"]).env("TIMERS_OWNER", "keeper").output();
    assert!(by_variable.unwrap().status.success());
    // Even a superuser does not trust the role until it is named.
    server.order("update timers.store set revision = 1");
    let sql = |options: &[&str]| {
        let sql = shop.run(&[&["migrate", "--print-sql"], options].concat()).out;
        sql.rsplit_once("VACUUM").unwrap().0.to_owned()
    };
    assert_eq!(server.say(&sql(&[])), None);
    server.order(&sql(&["--owner", "keeper"]));
    assert_eq!(server.order("select revision > 1 from timers.store"), "t");
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
