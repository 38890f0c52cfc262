//! An axum server with all timeouts on one wheel. It ends requests that take too long, request
//! bodies that stall, and heads that do not arrive. Clients that misbehave show the effect of each.
//!
//! The limits are short to keep the example fast. A server uses seconds and minutes.
//!
//! ```text
//! cargo run -p tourbillon-integrations --example axum_timeouts
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use ::tower::ServiceBuilder;
use axum::Router;
use axum::body::Bytes;
use axum::error_handling::HandleErrorLayer;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon::http::{BodyTimeoutError, RequestBodyTimeoutLayer, ResponseTimeoutLayer};
use tourbillon::tower::{self, BoxError};

const ANSWER: Duration = Duration::from_millis(300);
const BODY: Duration = Duration::from_millis(100);
const HEADER: Duration = Duration::from_millis(200);

type AnyError = Box<dyn Error + Send + Sync>;

/// Waits for a backend that does not answer.
async fn silent() -> &'static str {
    std::future::pending().await
}

/// Receives a whole body.
async fn upload(body: Result<Bytes, BytesRejection>) -> Response {
    match body {
        Ok(body) => format!("{} bytes\n", body.len()).into_response(),
        Err(error) if stood_still(&error) => {
            (StatusCode::REQUEST_TIMEOUT, "the body stood still\n").into_response()
        }
        Err(error) => error.into_response(),
    }
}

/// Returns `true` if a timeout ended the body.
fn stood_still(error: &(dyn Error + 'static)) -> bool {
    error.is::<BodyTimeoutError>() || error.source().is_some_and(stood_still)
}

/// Converts a timeout of tower into a response that says more than a status does.
async fn explain(error: BoxError) -> (StatusCode, String) {
    (StatusCode::GATEWAY_TIMEOUT, format!("{error}\n"))
}

fn router(timer: &Timer) -> Router {
    let status = StatusCode::REQUEST_TIMEOUT;
    let explained = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(explain))
        .layer(tower::TimeoutLayer::new(timer.clone(), ANSWER));
    Router::new()
        .route("/silent", get(silent).layer(explained))
        .route("/silent408", get(silent))
        .route("/upload", post(upload))
        .layer(RequestBodyTimeoutLayer::new(timer.clone(), BODY))
        .layer(ResponseTimeoutLayer::with_status_code(timer.clone(), status, 2 * ANSWER))
}

/// Serves each connection with the builder of hyper-util and hyper's own timeouts.
async fn serve(listener: TcpListener, router: Router, timer: Timer) -> std::io::Result<()> {
    loop {
        let (stream, _peer) = listener.accept().await?;
        let service = TowerToHyperService::new(router.clone());
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(timer.clone()).header_read_timeout(HEADER);
        tokio::spawn(async move { builder.serve_connection(TokioIo::new(stream), service).await });
    }
}

/// Sends a request verbatim and reads the response to its end.
async fn ask(server: SocketAddr, request: &str) -> Result<String, AnyError> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    if stream.read_to_string(&mut answer).await? == 0 {
        return Ok(String::from("the end, without an answer"));
    }
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok(format!("{} - {}", head.lines().next().unwrap_or_default(), body.trim_end()))
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let timer = Timer::spawn(Builder::new().driver())?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    tokio::spawn(serve(listener, router(&timer), timer.clone()));

    let end = "Host: here\r\nConnection: close\r\n";
    for (what, request, expected) in [
        ("a body", format!("POST /upload HTTP/1.1\r\n{end}Content-Length: 4\r\n\r\nbody"), "200"),
        (
            "half a body",
            format!("POST /upload HTTP/1.1\r\n{end}Content-Length: 4\r\n\r\nbo"),
            "408",
        ),
        ("to be explained", format!("GET /silent HTTP/1.1\r\n{end}\r\n"), "504"),
        ("a status alone", format!("GET /silent408 HTTP/1.1\r\n{end}\r\n"), "408"),
        ("half a head", String::from("GET /silent HTTP/1.1\r\n"), "the end"),
    ] {
        let answer = ask(server, &request).await?;
        println!("{what:16} {answer}");
        assert!(answer.contains(expected), "{answer}");
    }
    println!("{} timers are left in the wheel", timer.wheel().len());
    Ok(())
}
