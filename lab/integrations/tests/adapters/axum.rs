//! Timeouts on a real axum server.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::error_handling::HandleErrorLayer;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use hyper::body::Frame;
use std::convert::Infallible;
use std::error::Error;
use std::future::pending;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tourbillon::Builder;
use tourbillon::future::{TimeoutError, Timer};
use tourbillon::http::{
    BodyTimeoutError, RequestBodyTimeoutLayer, ResponseBodyTimeoutLayer, ResponseTimeoutLayer,
};
use tourbillon::tower::BoxError;
use tower::ServiceBuilder;

const LIMIT: Duration = Duration::from_millis(60);
/// The time limit of every wait of a test.
const PATIENCE: Duration = Duration::from_secs(60);

fn timer() -> Timer {
    Timer::spawn(Builder::new().driver()).unwrap()
}

async fn start(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Sends a request verbatim, complete or not, and reads the response to its end, which may be
/// broken.
async fn ask(server: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(PATIENCE, read).await.unwrap();
    String::from_utf8(answer).unwrap()
}

fn request(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n")
}

/// Returns `true` if the error comes from a stalled body.
fn stood_still(error: &(dyn Error + 'static)) -> bool {
    error.is::<BodyTimeoutError>() || error.source().is_some_and(stood_still)
}

/// Asserts that no connection leaves a timer behind.
async fn all_gone(timer: &Timer) {
    let gone = async {
        while !timer.wheel().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

#[tokio::test]
async fn a_request_without_an_answer_is_answered_by_a_status() {
    let timer = timer();
    let layer =
        ResponseTimeoutLayer::with_status_code(timer.clone(), StatusCode::GATEWAY_TIMEOUT, LIMIT);
    let router = Router::new()
        .route("/silent", get(pending::<()>))
        .route("/prompt", get(async || "prompt"))
        .layer(layer);
    let server = start(router).await;

    let began = timer.now();
    let answer = ask(server, &(request("GET", "/silent") + "\r\n")).await;
    assert!(timer.now() - began >= LIMIT, "early");
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    let answer = ask(server, &(request("GET", "/prompt") + "\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("prompt"), "{answer}");
    all_gone(&timer).await;

    timer.shutdown();
    let answer = ask(server, &(request("GET", "/silent") + "\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
}

#[tokio::test]
async fn the_error_of_a_time_out_is_handled_by_a_layer() {
    let timer = timer();
    let handle = |error: BoxError| async move {
        match error.downcast_ref() {
            Some(TimeoutError::Elapsed) => (StatusCode::REQUEST_TIMEOUT, "too late"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "broken"),
        }
    };
    let layers = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(handle))
        .layer(tourbillon::tower::TimeoutLayer::new(timer.clone(), LIMIT));
    let server = start(Router::new().route("/", get(pending::<()>)).layer(layers)).await;
    let answer = ask(server, &(request("GET", "/") + "\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.ends_with("too late"), "{answer}");
    all_gone(&timer).await;
}

#[tokio::test]
async fn a_request_whose_body_stands_still_is_not_waited_for() {
    let timer = timer();
    let upload = async |body: Result<Bytes, BytesRejection>| match body {
        Ok(body) => body.into_response(),
        Err(error) if stood_still(&error) => StatusCode::REQUEST_TIMEOUT.into_response(),
        Err(error) => error.into_response(),
    };
    let layer = RequestBodyTimeoutLayer::new(timer.clone(), LIMIT);
    let server = start(Router::new().route("/", post(upload)).layer(layer)).await;

    let head = request("POST", "/") + "Content-Length: 4\r\n\r\n";
    let answer = ask(server, &(head.clone() + "body")).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("body"), "{answer}");
    for part in ["", "bo"] {
        let began = timer.now();
        let answer = ask(server, &(head.clone() + part)).await;
        assert!(timer.now() - began >= LIMIT, "early");
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    all_gone(&timer).await;
}

/// A body that sends one frame and then stalls.
struct HalfABody(Option<Bytes>);

impl hyper::body::Body for HalfABody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.take() {
            Some(half) => Poll::Ready(Some(Ok(Frame::data(half)))),
            None => Poll::Pending,
        }
    }
}

#[tokio::test]
async fn a_response_whose_body_stands_still_is_broken_off() {
    let timer = timer();
    let layer = ResponseBodyTimeoutLayer::new(timer.clone(), LIMIT);
    let half = async || Body::new(HalfABody(Some(Bytes::from_static(b"half"))));
    let server = start(Router::new().route("/", get(half)).layer(layer)).await;
    let began = timer.now();
    let answer = ask(server, &(request("GET", "/") + "\r\n")).await;
    assert!(timer.now() - began >= LIMIT, "early");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("half"), "{answer}");
    // The chunk that marks the end of the response has not arrived.
    assert!(!answer.contains("\r\n0\r\n"), "{answer}");
    all_gone(&timer).await;
}
