//! The protocols. They import `time` from the module that they are compiled in.

pub(crate) mod datagrams;
mod http;
mod keys;
mod mqtt;
mod server;
mod websocket;

use crate::audit::Audit;
use crate::options::{Module, Protocol};
use keys::Store;
use mqtt::Broker;
use server::{Connection, Server};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpSocket, UdpSocket};
use tokio::task::JoinHandle;
use tourbillon_servers::process::{self, Failure, Options};

/// The number of connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

/// A server of each protocol.
pub(crate) struct Servers {
    server: Arc<Server>,
    broker: Arc<Broker>,
    store: Arc<Store>,
}

/// Serves until it is dropped.
pub(crate) async fn serve(
    protocol: Protocol,
    options: &Options<Module>,
    audit: Arc<Audit>,
) -> Result<(), Failure> {
    let servers = Servers::start(options.idle, audit);
    if protocol == Protocol::Datagrams {
        let socket = UdpSocket::bind(options.listen).await?;
        process::listens_on(socket.local_addr()?);
        return datagrams::serve(servers.server(), socket).await;
    }
    let socket = TcpSocket::new_v4()?;
    socket.bind(options.listen)?;
    let listener = socket.listen(BACKLOG)?;
    process::listens_on(listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        // A connection that breaks ends, and no other does.
        let _ = stream.set_nodelay(true);
        drop(servers.spawn(protocol, stream));
    }
}

impl Servers {
    /// Creates the state, and starts to remove keys that expire.
    pub(crate) fn start(idle: Duration, audit: Arc<Audit>) -> Self {
        let (broker, store) = (Arc::<Broker>::default(), Arc::<Store>::default());
        let (expiring, fired) = (Arc::clone(&store), Arc::clone(&audit));
        tokio::spawn(async move { expiring.expire(&fired).await });
        Self { server: Arc::new(Server { idle, audit }), broker, store }
    }

    /// Returns what all protocols share.
    pub(crate) fn server(&self) -> Arc<Server> {
        Arc::clone(&self.server)
    }

    /// Serves a connection with a task.
    pub(crate) fn spawn(
        &self,
        protocol: Protocol,
        stream: impl Connection,
    ) -> JoinHandle<Result<(), Failure>> {
        let server = self.server();
        match protocol {
            Protocol::Http => tokio::spawn(server.http(stream)),
            Protocol::WebSocket => tokio::spawn(server.web_socket(stream)),
            Protocol::Mqtt => tokio::spawn(server.mqtt(Arc::clone(&self.broker), stream)),
            Protocol::Keys => tokio::spawn(Arc::clone(&self.store).answer(stream)),
            Protocol::Datagrams => tokio::spawn(async { Err("datagrams have no stream".into()) }),
        }
    }
}
