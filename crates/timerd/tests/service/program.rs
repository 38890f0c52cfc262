//! The program: its start, its signals, and a store that does not reply.

#![allow(clippy::disallowed_methods, reason = "a process is waited for")]

use super::bench::{Api, Folder, TOKEN, arguments, until};
use super::receiver::{Receiver, status};
use super::servers::Server;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use timerd::{Config, Service};
use tokio::net::TcpStream;
use tourbillon_durable::DurableTimers;

const SECOND: Duration = Duration::from_secs(1);

/// The running program.
pub(crate) struct Program {
    pub(crate) process: Child,
    out: BufReader<ChildStdout>,
    pub(crate) address: String,
}

impl Program {
    pub(crate) fn start(folder: &Folder, arguments: &[&str]) -> Self {
        Self::start_with(folder, arguments, Stdio::null())
    }

    /// Starts the program with another standard error.
    pub(crate) fn start_with(folder: &Folder, arguments: &[&str], errors: Stdio) -> Self {
        Self::start_in(&[], folder, arguments, errors)
    }

    /// Starts the program with further variables in its environment.
    pub(crate) fn start_in(
        environment: &[(&str, &str)],
        folder: &Folder,
        arguments: &[&str],
        errors: Stdio,
    ) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_timerd"))
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .current_dir(folder.path())
            .env_remove("TIMERS_STORE")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let address = line(&mut out);
        let address = address.strip_prefix("timerd listens on http://").unwrap().to_owned();
        Self { process, out, address }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits for the program to end, and returns how long that took.
    pub(crate) fn end(mut self) -> Duration {
        let begun = Instant::now();
        assert!(self.process.wait().unwrap().success());
        begun.elapsed()
    }
}

fn line(out: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Writes a configuration file that allows calls to a port of this machine.
pub(crate) fn allow(folder: &Folder, port: u16) {
    let config = format!("[webhooks]\nallow = [\"127.0.0.0/8\"]\nports = [{port}]");
    std::fs::write(folder.join("timerd.toml"), config).unwrap();
}

#[tokio::test]
async fn it_starts_with_nothing_and_keeps_what_it_was_given() {
    let folder = Folder::new();
    let mut program = Program::start(&folder, &[]);
    let token = line(&mut program.out).strip_prefix("token: ").unwrap().to_owned();
    assert!(token.len() >= 43, "{token} has too few bits");
    let api = Api::of(&program.address, &token);
    api.put("a", "https://example.org/", json!({ "after": "30d" })).await.json(201);
    program.signal("-TERM");
    let took = program.end();
    assert!(took < 5 * SECOND, "{took:?} to end an idle service");

    let program = Program::start(&folder, &["--token", "another"]);
    let api = Api::of(&program.address, &token);
    api.get("/v1/timers/a").await.problem(401);
    api.with_token("another").get("/v1/timers/a").await.json(200);
    program.signal("-INT");
    program.end();
}

#[tokio::test]
async fn a_trial_prints_a_request_and_the_webhook_that_follows() {
    let folder = Folder::new();
    let mut program = Program::start(&folder, &["--echo", "0"]);
    let token = line(&mut program.out).strip_prefix("token: ").unwrap().to_owned();
    let mut command = String::new();
    while !command.contains("curl") {
        command = line(&mut program.out);
    }
    // The words of the command: the last one is the body, in quotes.
    let words: Vec<_> = command.split('\'').collect();
    let timers = format!("http://{}/v1/timers/", program.address);
    let id = words[2].trim().strip_prefix(&timers).unwrap().strip_suffix(" --json").unwrap();
    assert_eq!(words[1], format!("Authorization: Bearer {token}"));
    let body = words[3].replace("5s", "0s");
    let api = Api::of(&program.address, &token);
    api.send("PUT", &format!("/v1/timers/{id}"), &body).await.json(201);
    let mut shown = Vec::new();
    while shown.last().is_none_or(|line| line != "hello") {
        shown.push(line(&mut program.out));
    }
    assert_eq!(shown[0], "POST /", "{shown:?}");
    assert!(shown.iter().any(|line| line.starts_with("idempotency-key: ")), "{shown:?}");
    program.signal("-TERM");
    program.end();
}

#[tokio::test]
async fn it_makes_a_token_whose_hash_is_for_the_configuration() {
    let output = Command::new(env!("CARGO_BIN_EXE_timerd")).arg("token").output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let (token, hash) = output.trim_end().split_once('\n').unwrap();
    let token = token.strip_prefix("token: ").unwrap();
    let hash = hash.strip_prefix("sha256: ").unwrap();
    let folder = Folder::new();
    let config = format!("[[token]]\nname = \"new\"\nsha256 = \"{hash}\"");
    std::fs::write(folder.join("timerd.toml"), config).unwrap();
    let program = Program::start(&folder, &["--config", "timerd.toml"]);
    Api::of(&program.address, token).get("/v1/stats").await.json(200);
    program.signal("-TERM");
    program.end();
}

#[tokio::test]
async fn its_health_turns_while_the_store_is_silent() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = Folder::new();
    let program = Program::start(&folder, &["--token", "t", "--store", &server.url()]);
    let api = Api::of(&program.address, "none");
    assert_eq!(api.get("/healthz").await.status, 200);
    server.pause();
    let begun = Instant::now();
    while api.get("/healthz").await.status == 200 {
        assert!(begun.elapsed() < 20 * SECOND, "it never turns");
        tokio::time::sleep(SECOND / 10).await;
    }
    let turned = begun.elapsed();
    let problem = api.get("/healthz").await.problem(503);
    assert!(turned < 5 * SECOND, "{turned:?} until: {problem}");
    assert_eq!(problem, "the store does not reply, or cannot be written");
    server.go_on();
    let begun = Instant::now();
    while api.get("/healthz").await.status != 200 {
        assert!(begun.elapsed() < 60 * SECOND, "it does not turn back");
        tokio::time::sleep(SECOND / 10).await;
    }
    program.signal("-TERM");
    program.end();
}

#[tokio::test]
async fn what_hangs_at_the_end_is_given_back() {
    const CALLS: usize = 100;
    let mut receiver = Receiver::start(|_| None).await;
    let folder = Folder::new();
    let config = format!(
        "[webhooks]\nallow = [\"127.0.0.0/8\"]\nports = [{}]\ntimeout = \"5m\"\nconcurrency = {CALLS}\nper_receiver = {CALLS}",
        receiver.port()
    );
    std::fs::write(folder.join("timerd.toml"), config).unwrap();
    let program = Program::start(&folder, &["--token", "t", "--config", "timerd.toml"]);
    let api = Api::of(&program.address, "t");
    for number in 0..CALLS {
        let url = receiver.url(&format!("/{number}"));
        api.put(&format!("{number}"), &url, json!({ "after": "0s" })).await.json(201);
    }
    for _ in 0..CALLS {
        receiver.next().await;
    }
    program.signal("-TERM");
    let took = program.end();
    assert!(took < 15 * SECOND, "{took:?}");
    let timers = DurableTimers::open(folder.join("timers.db")).unwrap();
    let left = timers.list(None, 1000).await.unwrap();
    assert_eq!(left.len(), CALLS);
    for timer in left {
        assert_eq!((timer.attempts, timer.is_running()), (0, false), "{timer:?}");
    }
}

#[tokio::test]
async fn services_that_are_killed_or_stopped_lose_nothing() {
    const TIMERS: usize = 90;
    let Some(server) = Server::start(&[]) else { return };
    // As many calls as two services make at the same time get no reply.
    let mut receiver = Receiver::start(|request| match request {
        36..44 => None,
        _ => Some(status(200)),
    })
    .await;
    let folder = Folder::new();
    let config = format!(
        "[webhooks]\nallow = [\"127.0.0.0/8\"]\nports = [{}]\nconcurrency = 4\ntimeout = \"1s\"",
        receiver.port()
    );
    std::fs::write(folder.join("timerd.toml"), config).unwrap();
    let arguments = ["--token", "t", "--config", "timerd.toml", "--store", &server.url()];
    let [mut killed, stopped, left] = [(); 3].map(|()| Program::start(&folder, &arguments));
    let api = Api::of(&left.address, "t");
    for number in 0..TIMERS {
        let url = receiver.url(&format!("/{number}"));
        let after = format!("{}ms", 50 * number);
        let schedule = json!({ "after": after, "lease": "2s", "backoff": "100ms..1s" });
        api.put(&format!("{number}"), &url, schedule).await.json(201);
    }
    let (mut called, mut requests) = (BTreeSet::new(), 0);
    while called.len() < TIMERS {
        called.insert(receiver.next().await.path);
        requests += 1;
        match requests {
            20 => killed.process.kill().unwrap(),
            44 => stopped.signal("-STOP"),
            _ => {}
        }
    }
    until("the end of all timers", async || {
        (api.get("/v1/stats").await.json(200)["timers"] == 0).then_some(())
    })
    .await;
    assert_eq!(api.get("/v1/stats").await.json(200)["dead_letters"], 0);
    // The calls that it had begun are too late.
    stopped.signal("-CONT");
    stopped.signal("-TERM");
    stopped.end();
    killed.process.wait().unwrap();
    let runs = api.get("/v1/runs?limit=1000").await.json(200)["runs"].take();
    let mut acknowledged = BTreeSet::new();
    // The history may lack the last runs of the killed service.
    for run in runs.as_array().unwrap().iter().filter(|run| run["outcome"] == "acknowledged") {
        assert!(acknowledged.insert(run["id"].to_string()), "twice: {run}");
    }
    assert!(acknowledged.len() > TIMERS / 2, "{runs}");
    left.signal("-TERM");
    left.end();
}

#[test]
fn no_error_shows_a_password() {
    for (name, value) in [
        ("TIMERS_STORE", "postgres://u:hunter2@127.0.0.1:port/db"),
        ("TIMERS_STORE", "postgress://u:hunter2@127.0.0.1:1/db"),
        ("TIMERS_STORE", "redis://u:hunter2@127.0.0.1:1/"),
    ] {
        let ran = Command::new(env!("CARGO_BIN_EXE_timerd")).env(name, value).output().unwrap();
        assert!(!ran.status.success());
        let errors = String::from_utf8(ran.stderr).unwrap();
        assert!(errors.contains("timerd: ") && !errors.contains("hunter2"), "{errors}");
    }
    let shown = format!("{:?}", arguments("postgres://u:hunter2@127.0.0.1/db"));
    assert!(!shown.contains("hunter2") && !shown.contains(TOKEN), "{shown}");
}

#[test]
fn an_error_of_the_configuration_names_its_line_but_does_not_show_it() {
    let folder = Folder::new();
    for (wrong, message) in [
        ("store = \"postgres://u:hunter2@127.0.0.1:1/db", "invalid basic string, expected `\"`"),
        ("store = \"postgress://u:hunter2@127.0.0.1:1/db\"", "is not a store"),
        ("page.key = \"hunter2\"", "at least 32 characters in `page.key`"),
        ("secrets.default = \"whsec_hunter2", "invalid basic string, expected `\"`"),
        ("webhooks.ports = [0]", "in `webhooks.ports`"),
    ] {
        std::fs::write(folder.join("timerd.toml"), format!("limits.burst = 9\n{wrong}\n")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_timerd"));
        let ran = command.args(["--config", "timerd.toml"]).current_dir(folder.path()).output();
        let ran = ran.unwrap();
        let errors = String::from_utf8(ran.stderr).unwrap();
        let place = "timerd: invalid configuration: timerd.toml:2: ";
        assert!(!ran.status.success() && errors.starts_with(place), "{errors}");
        assert!(errors.contains(message) && !errors.contains("hunter2"), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[tokio::test]
async fn the_store_may_be_in_the_configuration() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = Folder::new();
    let store = server.url().replace("://", "://:hunter2@");
    server.order("CONFIG SET requirepass hunter2");
    std::fs::write(folder.join("timerd.toml"), format!("store = \"{store}#named\"\n")).unwrap();
    let arguments = ["--token", "a long enough token", "--config", "timerd.toml"];
    let program = Program::start(&folder, &arguments);
    let api = Api::of(&program.address, "a long enough token");
    let figures = api.get("/metrics").await.text;
    assert!(figures.contains("{store=\"named\""), "{figures}");
    program.signal("-TERM");
    program.end();
    let program = Program::start(&folder, &[&arguments[..], &["--store", "given.db"]].concat());
    assert!(folder.join("given.db").exists(), "an argument comes first");
    program.signal("-TERM");
    program.end();
    let shown = format!("{:?}", Config::read(&folder.join("timerd.toml")).unwrap());
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn its_health_turns_while_nothing_can_be_written() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = Folder::new();
    let arguments = ["--token", "a long enough token", "--store", &server.url()];
    let program = Program::start(&folder, &arguments);
    let api = Api::of(&program.address, "a long enough token");
    let health = async |status: u16| {
        until("the health", async || (api.get("/healthz").await.status == status).then_some(()))
            .await;
    };
    health(200).await;
    // Reads still succeed, and no request writes.
    server.order("CONFIG SET min-replicas-to-write 1");
    health(503).await;
    // The server's error is not for strangers.
    let problem = api.get("/healthz").await.problem(503);
    assert_eq!(problem, "the store does not reply, or cannot be written");
    server.order("CONFIG SET min-replicas-to-write 0");
    health(200).await;
    assert_eq!(api.get("/v1/timers").await.json(200)["timers"], json!([]));
    program.signal("-TERM");
    program.end();
}

/// Returns the exit code of `timerd health`, and its error. The arguments of the service come from
/// the environment, as in a container.
fn health(address: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_timerd"));
    command.arg("health").env("TIMERD_LISTEN", address).env("TIMERD_TOKEN", "a long enough token");
    let ran = command.output().unwrap();
    (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
}

#[tokio::test]
async fn its_health_is_an_exit_code() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = Folder::new();
    let arguments = ["--token", "a long enough token", "--store", &server.url()];
    let program = Program::start(&folder, &arguments);
    assert_eq!(health(&program.address), (Some(0), String::new()));
    server.order("CONFIG SET min-replicas-to-write 1");
    until("the trouble", async || (health(&program.address).0 == Some(1)).then_some(())).await;
    let (_, error) = health(&program.address);
    assert_eq!(error, "timerd: the service replied 503 Service Unavailable (expected 200 OK)\n");
    server.order("CONFIG SET min-replicas-to-write 0");
    until("its end", async || (health(&program.address).0 == Some(0)).then_some(())).await;
    // A process that is stopped still has a listener.
    program.signal("-STOP");
    let (code, error) = health(&program.address);
    assert_eq!((code, &*error), (Some(1), "timerd: the service did not reply within 3s\n"));
    program.signal("-CONT");
    program.signal("-TERM");
    let address = program.address.clone();
    program.end();
    let (code, error) = health(&address);
    assert!(code == Some(1) && error.contains("could not connect"), "{error}");
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    for (first, second) in [("-TERM", "-TERM"), ("-INT", "-TERM"), ("-INT", "-INT")] {
        let mut receiver = Receiver::start(|_| None).await;
        let folder = Folder::new();
        allow(&folder, receiver.port());
        let arguments = ["--token", "a long enough token", "--config", "timerd.toml"];
        let mut program = Program::start(&folder, &arguments);
        let api = Api::of(&program.address, "a long enough token");
        api.put("a", &receiver.url("/"), json!({ "after": "0s" })).await.json(201);
        receiver.next().await;
        program.signal(first);
        until("the end of requests", async || TcpStream::connect(&program.address).await.err())
            .await;
        assert!(program.process.try_wait().unwrap().is_none(), "it waits for its call");
        program.signal(second);
        let begun = Instant::now();
        let status = program.process.wait().unwrap();
        assert!(begun.elapsed() < 5 * SECOND, "{:?}", begun.elapsed());
        assert_eq!(status.code(), Some(1));
    }
}

#[tokio::test]
async fn secrets_are_reloaded_without_a_gap() {
    let mut receiver = Receiver::start(|_| Some(status(200))).await;
    let folder = Folder::new();
    let port = receiver.port();
    let configure = |secrets: &str| {
        let config = format!(
            "[webhooks]\nallow = [\"127.0.0.0/8\"]\nports = [{port}]\n[secrets]\n{secrets}"
        );
        std::fs::write(folder.join("timerd.toml"), config).unwrap();
    };
    let (old, new) =
        (["whsec_", &"b2xk".repeat(8)].concat(), ["whsec_", &"bmV3".repeat(8)].concat());
    configure(&format!("default = {old:?}"));
    let arguments = ["--token", "a long enough token", "--config", "timerd.toml"];
    let program = Program::start(&folder, &arguments);
    let api = Api::of(&program.address, "a long enough token");
    let mut number = 0;
    let mut signatures = async || {
        number += 1;
        let put = api.put(&number.to_string(), &receiver.url("/"), json!({ "after": "0s" })).await;
        put.json(201);
        let seen = receiver.next().await;
        seen.headers["webhook-signature"].to_str().unwrap().split(' ').count()
    };
    assert_eq!(signatures().await, 1);
    for (secrets, count) in [
        (format!("default = [{new:?}, {old:?}]"), 2),
        ("default = 7".to_owned(), 2),
        ("default = [\"whsec_\"]".to_owned(), 2),
        (format!("default = [{new:?}]"), 1),
    ] {
        configure(&secrets);
        program.signal("-HUP");
        until("the new secrets", async || (signatures().await == count).then_some(())).await;
    }
    program.signal("-TERM");
    program.end();
}

#[tokio::test]
async fn the_log_has_levels_and_a_format() {
    let folder = Folder::new();
    let errors = folder.join("errors");
    for (filter, format, is_empty) in
        [("info", "json", false), ("off", "json", true), ("warn", "text", true)]
    {
        let file = std::fs::File::create(&errors).unwrap();
        let log = ["--log", filter, "--log-format", format];
        let arguments = [&["--token", "a long enough token"], &log[..]].concat();
        let program = Program::start_with(&folder, &arguments, file.into());
        program.signal("-TERM");
        program.end();
        let text = std::fs::read_to_string(&errors).unwrap();
        assert_eq!(text.is_empty(), is_empty, "{filter}: {text}");
        let mut events =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        assert!(is_empty || events.next_back().unwrap()["message"] == "stopping", "{text}");
    }
    let command = || Command::new(env!("CARGO_BIN_EXE_timerd"));
    for wrong in [
        command().args(["--log", "timerd=loud"]),
        command().arg("token").env("RUST_LOG", "timerd=loud"),
        command().arg("token").env("TIMERD_LOG_FORMAT", "loud"),
    ] {
        let ran = wrong.output().unwrap();
        let errors = String::from_utf8(ran.stderr).unwrap();
        assert!(!ran.status.success() && errors.contains("log"), "{errors}");
    }
}

#[tokio::test]
async fn it_listens_on_a_host_by_its_name() {
    let folder = Folder::new();
    let mut arguments = arguments(folder.join("timers").to_str().unwrap());
    arguments.listen = "localhost:0".to_owned();
    let service = Service::start(&arguments, &Config::default()).await.unwrap();
    assert!(service.address().ip().is_loopback());
    service.stop().await;
    arguments.listen = "localhost".to_owned();
    let refused = Service::start(&arguments, &Config::default()).await.unwrap_err().to_string();
    assert!(refused.starts_with("could not listen on localhost: "), "{refused}");
}
