//! The protocols. They import `time` from the module that they are compiled in.

pub(crate) mod datagrams;
mod http;
mod keys;
mod mqtt;
mod websocket;

use super::time;
use crate::audit::Audit;
use crate::options::{Module, Protocol};
use keys::Store;
use mqtt::Broker;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::task::JoinHandle;
use tourbillon_servers::process::{self, Failure, Options};

/// The number of connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

/// The state that all connections share.
pub(crate) struct Server {
    idle: Duration,
    audit: Arc<Audit>,
    broker: Broker,
    store: Store,
}

/// A byte stream that a task owns.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Connection for S {}

/// Serves until it is dropped.
pub(crate) async fn serve(
    protocol: Protocol,
    options: &Options<Module>,
    audit: Arc<Audit>,
) -> Result<(), Failure> {
    let server = Server::start(options.idle, audit);
    if protocol == Protocol::Datagrams {
        let socket = UdpSocket::bind(options.listen).await?;
        process::listens_on(socket.local_addr()?);
        return datagrams::serve(server, socket).await;
    }
    let socket = TcpSocket::new_v4()?;
    socket.bind(options.listen)?;
    let listener = socket.listen(BACKLOG)?;
    process::listens_on(listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that breaks ends, and no other does.
        drop(Arc::clone(&server).spawn(protocol, stream));
    }
}

impl Server {
    /// Creates the state, and starts to remove keys that expire.
    pub(crate) fn start(idle: Duration, audit: Arc<Audit>) -> Arc<Self> {
        let (broker, store) = (Broker::default(), Store::default());
        let server = Arc::new(Self { idle, audit, broker, store });
        let expiring = Arc::clone(&server);
        tokio::spawn(async move { expiring.store.expire(&expiring.audit).await });
        server
    }

    /// Serves a connection with a task.
    pub(crate) fn spawn(
        self: Arc<Self>,
        protocol: Protocol,
        stream: impl Connection,
    ) -> JoinHandle<Result<(), Failure>> {
        match protocol {
            Protocol::Http => tokio::spawn(self.http(stream)),
            Protocol::WebSocket => tokio::spawn(self.web_socket(stream)),
            Protocol::Mqtt => tokio::spawn(self.mqtt(stream)),
            Protocol::Keys => tokio::spawn(self.keys(stream)),
            Protocol::Datagrams => tokio::spawn(async { Err("datagrams have no stream".into()) }),
        }
    }
}
