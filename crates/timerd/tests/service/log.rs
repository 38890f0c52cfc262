//! An unwritable log, which stops nothing.

#![allow(clippy::disallowed_methods, reason = "a pipe is filled by a thread of its own")]

use super::bench::{Api, Folder, until};
use super::program::{Program, allow};
use super::receiver::{Receiver, status};
use super::servers::Server;
use serde_json::json;
use std::fs::File;
use std::io::{PipeReader, Write, pipe};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tourbillon_durable::DurableTimers;

/// Outputs that cannot be written to.
#[derive(Clone, Copy, Debug)]
enum Unwritable {
    /// A pipe whose reader has gone.
    Closed,
    /// A full disk.
    Full,
    /// A pipe that is full, and whose reader reads nothing.
    Stuck,
}

impl Unwritable {
    /// Returns the output, and the reader that reads nothing.
    fn open(self) -> (Stdio, Option<PipeReader>) {
        if let Self::Full = self {
            return (File::options().write(true).open("/dev/full").unwrap().into(), None);
        }
        let (reader, writer) = pipe().unwrap();
        if let Self::Closed = self {
            return (writer.into(), None);
        }
        let mut filling = writer.try_clone().unwrap();
        // It writes until the reader is dropped.
        std::thread::spawn(move || while filling.write_all(&[b'.'; 4096]).is_ok() {});
        (writer.into(), Some(reader))
    }
}

#[tokio::test]
async fn a_service_without_a_log_ends_after_its_calls() {
    for output in [Unwritable::Closed, Unwritable::Full, Unwritable::Stuck] {
        let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = receiver.local_addr().unwrap().port();
        let (folder, (errors, _reader)) = (Folder::new(), output.open());
        allow(&folder, port);
        let arguments = ["--token", "t", "--config", "timerd.toml"];
        let program = Program::start_with(&folder, &arguments, errors);
        let api = Api::of(&program.address, "t");
        let url = format!("http://127.0.0.1:{port}/");
        api.put("a", &url, json!({ "after": "0s" })).await.json(201);
        let (mut call, _) = receiver.accept().await.unwrap();
        let mut begun = [0; 4];
        call.read_exact(&mut begun).await.unwrap();
        program.signal("-TERM");
        until("the end of requests", async || {
            tokio::net::TcpStream::connect(&program.address).await.err()
        })
        .await;
        call.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        program.end();
        let again = timeout(Duration::ZERO, receiver.accept()).await;
        assert!(again.is_err(), "{output:?}: it is called again");
        let timers = DurableTimers::open(folder.join("timers.db")).unwrap();
        assert!(timers.get("a").await.unwrap().is_none(), "{output:?}: it was acknowledged");
    }
}

#[tokio::test]
async fn a_history_that_fails_without_a_log_goes_on() {
    let Some(server) = Server::start(&[]) else { return };
    let mut receiver = Receiver::start(|_| Some(status(200))).await;
    for (number, output) in
        [Unwritable::Closed, Unwritable::Full, Unwritable::Stuck].into_iter().enumerate()
    {
        let (folder, (errors, _reader)) = (Folder::new(), output.open());
        allow(&folder, receiver.port());
        let store = format!("{}#s{number}", server.url());
        let arguments = ["--token", "t", "--config", "timerd.toml", "--store", &store];
        let program = Program::start_with(&folder, &arguments, errors);
        let api = Api::of(&program.address, "t");
        let history = format!("{{tb:s{number}}}:log");
        server.order(&format!("SET {history} no-stream"));
        api.put("lost", &receiver.url("/"), json!({ "after": "0s" })).await.json(201);
        receiver.next().await;
        until("the failure", async || {
            let figures = api.get("/metrics").await.text;
            figures.contains("timerd_runs_not_recorded_total 1").then_some(())
        })
        .await;
        server.order(&format!("DEL {history}"));
        api.put("kept", &receiver.url("/"), json!({ "after": "0s" })).await.json(201);
        receiver.next().await;
        until("the run after it", async || {
            let runs = api.get("/v1/runs").await.json(200);
            (runs["runs"][0]["id"] == "kept").then_some(())
        })
        .await;
        program.signal("-TERM");
        program.end();
    }
}

#[tokio::test]
async fn a_worker_that_fails_without_a_log_starts_again() {
    let mut receiver = Receiver::start(|_| Some(status(200))).await;
    for output in [Unwritable::Closed, Unwritable::Full, Unwritable::Stuck] {
        let Some(server) = Server::start(&[]) else { return };
        let (folder, (errors, _reader)) = (Folder::new(), output.open());
        allow(&folder, receiver.port());
        let arguments = ["--token", "t", "--config", "timerd.toml", "--store", &server.url()];
        let program = Program::start_with(&folder, &arguments, errors);
        let api = Api::of(&program.address, "t");
        // The worker ends with an error when its store is emptied.
        server.order("FLUSHALL");
        until("the new start", async || {
            let figures = api.get("/metrics").await.text;
            figures.contains("timerd_tasks_restarted_total{task=\"worker\"} 1").then_some(())
        })
        .await;
        api.put("a", &receiver.url("/"), json!({ "after": "0s" })).await.json(201);
        receiver.next().await;
        program.signal("-TERM");
        program.end();
    }
}
