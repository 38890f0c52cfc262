//! Timeouts of HTTP on a wheel, as tower layers. They limit requests, which are answered with a
//! status, and bodies that stall.
//!
//! The names follow tower-http's `timeout`, except that its `TimeoutLayer` is the
//! [`ResponseTimeoutLayer`], because [`tower`](crate::adapters::tower) has a layer of that name.
//! Here, each layer takes the [`Timer`](crate::future::Timer) too.
//!
//! | what comes too late | is ended by | with |
//! |---|---|---|
//! | the response of the service | [`ResponseTimeoutLayer`] | a response of the status you choose |
//! | the response of a gRPC service, to its end | [`GrpcTimeoutLayer`] | `DEADLINE_EXCEEDED` |
//! | the next frame of a request's body | [`RequestBodyTimeoutLayer`] | an error to the service |
//! | the next frame of a response's body | [`ResponseBodyTimeoutLayer`] | an error to the server |
//! | a whole body | `with_total_timeout` of these two | the same |
//!
//! The time of a response ends with its head, except for gRPC. The body may then take any time as
//! long as frames arrive, unless the whole body is limited too.
//!
//! The time of a response counts from the call, and a service is not called before it is ready. To
//! include the wait for readiness, add an
//! [`AwaitReadyLayer`](crate::adapters::tower::AwaitReadyLayer) below the layer.
//!
//! **No timeout is left out.** If the timer was shut down or is full, requests that are not
//! answered at once end with 503, and bodies that do not move at once end with an error. Shut the
//! timer down after the server.

#![forbid(unsafe_code)]

mod body;
mod body_layer;
mod grpc;
mod grpc_body;
mod grpc_header;
mod timeout;

pub use crate::adapters::tower::BoxError;
pub use body::{BodyTimeoutError, TimeoutBody};
pub use body_layer::{
    RequestBodyTimeout, RequestBodyTimeoutLayer, ResponseBodyTimeout, ResponseBodyTimeoutFuture,
    ResponseBodyTimeoutLayer,
};
pub use grpc::{GrpcResponseFuture, GrpcTimeout, GrpcTimeoutLayer};
pub use grpc_body::GrpcTimeoutBody;
pub use grpc_header::{GrpcDeadline, GrpcDeadlineLayer};
pub use timeout::{ResponseTimeout, ResponseTimeoutFuture, ResponseTimeoutLayer};
