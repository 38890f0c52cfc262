//! The history of runs and the figures, on a file, on Redis and on PostgreSQL.

use super::bench::{Api, Bench, Folder, until};
use super::calls::allowing;
use super::certificates::{Authority, Signed};
use super::postgres_server::PostgresServer;
use super::receiver::Receiver;
use super::sentinels::Watched;
use super::servers::{Cluster, Server};
use serde_json::{Value, json};
use std::num::NonZeroU64;

/// Calls a receiver that refuses the first call, and checks what is recorded.
async fn runs_are_recorded(bench: &Bench, receiver: &mut Receiver) {
    let api = &bench.api;
    let schedule = json!({ "at": "2020-01-01T00:00:00Z", "backoff": "1ms..1ms" });
    api.put("a", &receiver.url("/"), schedule).await.json(201);
    receiver.next().await;
    receiver.next().await;
    // A run is recorded after its response, so the next run could be recorded first.
    runs(api, "/v1/runs?id=a", 2).await;
    api.put("b", &receiver.url("/"), json!({ "after": "0s" })).await.json(201);
    receiver.next().await;
    runs_are_shown(api).await;
    figures_are_shown(api).await;
}

async fn runs_are_shown(api: &Api) {
    assert_eq!(runs(api, "/v1/runs", 3).await[0]["id"], "b", "latest first");
    assert_eq!(runs(api, "/v1/runs?limit=1", 1).await[0]["id"], "b");
    let of_one = runs(api, "/v1/runs?id=a", 2).await;
    let error = "the receiver responded with 500 Internal Server Error";
    for (run, (outcome, attempt, status, error)) in
        of_one.iter().zip([("acknowledged", 2, 200, Value::Null), ("retry", 1, 500, json!(error))])
    {
        let shown = (&run["outcome"], &run["attempt"], &run["status"], &run["error"]);
        assert_eq!(shown, (&json!(outcome), &json!(attempt), &json!(status), &error));
        assert_eq!(run["planned"], "2020-01-01T00:00:00.000Z");
        assert!(run["millis"].is_u64() && run["ended"].is_string(), "{run}");
    }
}

/// Waits until a list has `count` runs, and returns them.
async fn runs(api: &Api, path: &str, count: usize) -> Vec<Value> {
    until("the history", async || match api.get(path).await.json(200)["runs"].take() {
        Value::Array(runs) if runs.len() == count => Some(runs),
        _ => None,
    })
    .await
}

async fn figures_are_shown(api: &Api) {
    let figures = api.get("/metrics").await.text;
    for figure in [
        "outcome=\"acknowledged\"",
        "outcome=\"retry\"",
        "tourbillon_durable_handler_duration_seconds_bucket",
        "tourbillon_durable_attempt_lateness_seconds_count",
        "tourbillon_durable_dead_letters",
        "timerd_requests_total{",
    ] {
        assert!(figures.contains(figure), "{figure} is not in {figures}");
    }
}

/// Inserts a due timer, and waits until its run is the latest.
async fn run_is_recorded(bench: &Bench, receiver: &mut Receiver, id: &str) {
    bench.api.put(id, &receiver.url("/"), json!({ "after": "0s" })).await.json(201);
    receiver.next().await;
    until("the last run", async || {
        let runs = bench.api.get("/v1/runs").await.json(200)["runs"].take();
        (runs[0]["id"] == id).then_some(())
    })
    .await;
}

#[tokio::test]
async fn runs_are_recorded_in_a_file() {
    let mut receiver = Receiver::with(&[500]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    runs_are_recorded(&bench, &mut receiver).await;
    let folder = bench.stop().await;
    assert!(folder.join("timers.history").exists());
}

#[tokio::test]
async fn a_damaged_history_stops_no_service() {
    let (folder, mut receiver) = (Folder::new(), Receiver::with(&[]).await);
    let (store, history) = (folder.join("timers"), folder.join("timers.history"));
    std::fs::write(&history, "something else").unwrap();
    let bench = Bench::at(store.to_str().unwrap(), allowing(receiver.port())).await;
    run_is_recorded(&bench, &mut receiver, "a").await;
    bench.stop().await;
    let aside = std::fs::read(folder.join("timers.history.damaged-1")).unwrap();
    assert_eq!(aside, b"something else");
    assert!(history.exists());
}

#[tokio::test]
async fn a_history_that_cannot_be_opened_is_opened_later() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let mut receiver = Receiver::with(&[]).await;
    Bench::at(&server.url(), allowing(receiver.port())).await.stop().await;
    server.order("DROP TABLE IF EXISTS timers.attempt_log; CREATE SEQUENCE timers.attempt_log");
    let bench = Bench::at(&server.url(), allowing(receiver.port())).await;
    bench.api.put("a", &receiver.url("/"), json!({ "after": "0s" })).await.json(201);
    receiver.next().await;
    bench.api.get("/v1/runs").await.problem(503);
    server.order("DROP SEQUENCE timers.attempt_log");
    run_is_recorded(&bench, &mut receiver, "b").await;
    bench.stop().await;
}

#[tokio::test]
async fn runs_are_recorded_in_redis_within_bounds() {
    let Some(server) = Server::start(&[]) else { return };
    server.order("XADD {tb:timers}:log 5-1 run 1970");
    let mut receiver = Receiver::with(&[500]).await;
    let mut config = allowing(receiver.port());
    config.history.most = NonZeroU64::new(4).unwrap();
    let bench = Bench::at(&server.url(), config).await;
    runs_are_recorded(&bench, &mut receiver).await;
    let length = || server.order("XLEN {tb:timers}:log").trim().to_owned();
    assert_eq!(length(), ":3", "the oldest is older than it may be");
    for id in ["c", "d"] {
        run_is_recorded(&bench, &mut receiver, id).await;
    }
    assert_eq!(length(), ":4", "there are as many as there may be");
    bench.stop().await;
    assert!(server.order("TYPE {tb:timers}:log").contains("stream"));
}

#[tokio::test]
async fn runs_are_recorded_in_a_cluster() {
    let Some(cluster) = Cluster::start() else { return };
    let mut receiver = Receiver::with(&[500]).await;
    let store = format!("cluster:{}", cluster.nodes[0].url());
    let bench = Bench::at(&store, allowing(receiver.port())).await;
    runs_are_recorded(&bench, &mut receiver).await;
    bench.stop().await;
    let length = cluster.owner("{tb:timers}:log").order("XLEN {tb:timers}:log");
    assert_eq!(length.trim(), ":3");
}

#[tokio::test]
async fn runs_are_recorded_by_the_master_that_sentinels_know() {
    let Some(watched) = Watched::start() else { return };
    let mut receiver = Receiver::with(&[500]).await;
    let store = format!("sentinel:redis://mymaster/,{}", watched.urls().join(","));
    let bench = Bench::at(&store, allowing(receiver.port())).await;
    runs_are_recorded(&bench, &mut receiver).await;
    watched.wait_until_copied();
    watched.fail_over();
    until("an insert on the new master", async || {
        let put = bench.api.put("c", &receiver.url("/"), json!({ "after": "0s" })).await;
        [201, 409].contains(&put.status.as_u16()).then_some(())
    })
    .await;
    until("a run on the new master", async || {
        let length = watched.replica.order("XLEN {tb:timers}:log");
        (length.trim() == ":4").then_some(())
    })
    .await;
    assert_eq!(runs(&bench.api, "/v1/runs", 4).await[0]["id"], "c");
    bench.stop().await;
}

#[tokio::test]
async fn runs_are_recorded_in_postgres_within_bounds() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let mut receiver = Receiver::with(&[500]).await;
    let mut config = allowing(receiver.port());
    config.history.most = NonZeroU64::new(3).unwrap();
    // Any role can hold an advisory lock.
    let lock = "pg_advisory_lock(hashtextextended('timerd_runs', 0))";
    let mut holder = server.begin(&format!("SELECT {lock}, pg_sleep(86400)"));
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    server.wait_for("the lock", |server| server.order(locks) != "0");
    let bench = Bench::at(&server.url(), config).await;
    runs_are_recorded(&bench, &mut receiver).await;
    run_is_recorded(&bench, &mut receiver, "c").await;
    runs(&bench.api, "/v1/runs", 3).await;
    runs(&bench.api, "/v1/runs?id=a", 1).await;
    bench.stop().await;
    holder.kill().expect("it runs");
    holder.wait().expect("it ends");
}

#[tokio::test]
async fn runs_are_recorded_by_a_role_that_does_not_own_the_store() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let mut receiver = Receiver::with(&[500]).await;
    server.order(
        "create role keeper login; create role shop login; \
         create schema timers authorization keeper",
    );
    let url = |role: &str| server.url().replace("postgres@", &format!("{role}@"));
    let of_owner = Bench::at(&url("keeper"), allowing(receiver.port())).await;
    // The table of the runs exists from then on.
    of_owner.api.get("/v1/runs").await.json(200);
    of_owner.stop().await;
    server.order(
        "grant usage on schema timers to shop; \
         grant select, insert, update, delete on all tables in schema timers to shop; \
         grant usage, select, update on all sequences in schema timers to shop",
    );
    let bench = Bench::owned_by("keeper", &url("shop"), allowing(receiver.port())).await;
    runs_are_recorded(&bench, &mut receiver).await;
    bench.stop().await;
}

#[tokio::test]
async fn runs_are_recorded_in_postgres_by_tls() {
    let authority = Authority::new();
    let Signed { certificate, key } = authority.sign();
    let files = [&*certificate, &*key, &*authority.certificate];
    let access = "hostssl all postgres 127.0.0.1/32 trust\n";
    let Some(server) = PostgresServer::with_tls(files, access) else { return };
    let mut receiver = Receiver::with(&[500]).await;
    let config = allowing(receiver.port());
    let bench = Bench::by_tls(&server.url(), &authority.certificate, config).await;
    runs_are_recorded(&bench, &mut receiver).await;
    bench.stop().await;
}
