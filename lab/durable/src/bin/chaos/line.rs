//! [`Line`], the connections from one worker to the servers, which can be cut.
//!
//! A worker has its own loopback address, `127.0.1.n`, where each server's port is forwarded to the
//! server. The nodes of Redis do not report their addresses (`unknown-endpoint`), so a client stays
//! with the address that it knows, and all of a worker's connections go through its line.

use crate::Failure;
use std::net::Ipv4Addr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The traffic that a line lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// Closes and refuses connections.
    Cut,
    /// Holds the traffic back until the line is open again.
    Silent,
}

/// All connections of one worker.
#[derive(Debug)]
pub(crate) struct Line {
    /// The address where the ports of the servers are forwarded.
    pub(crate) address: Ipv4Addr,
    state: watch::Sender<State>,
}

impl Line {
    pub(crate) async fn new(worker: usize, ports: &[u16]) -> Result<Self, Failure> {
        let address = Ipv4Addr::new(127, 0, 1, u8::try_from(worker + 1)?);
        let (state, _) = watch::channel(State::Open);
        for port in ports {
            let listener = TcpListener::bind((address, *port)).await?;
            tokio::spawn(forward(listener, *port, state.subscribe()));
        }
        Ok(Self { address, state })
    }

    pub(crate) fn set(&self, state: State) {
        self.state.send_replace(state);
    }
}

/// Forwards connections to one server.
async fn forward(first: TcpListener, port: u16, mut state: watch::Receiver<State>) {
    let Ok(address) = first.local_addr() else { return };
    let mut listener = Some(first);
    loop {
        if *state.borrow_and_update() == State::Cut {
            // Without a listener the system refuses connections.
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(address).await.ok();
        }
        let accept = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = accept => if let Ok((client, _)) = accepted {
                tokio::spawn(connect(client, port, state.clone()));
            },
            changed = state.changed() => if changed.is_err() { return },
        }
    }
}

/// One connection.
async fn connect(client: TcpStream, port: u16, state: watch::Receiver<State>) {
    let Ok(node) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return };
    let _ = (client.set_nodelay(true), node.set_nodelay(true));
    let ((from_client, to_client), (from_node, to_node)) = (client.into_split(), node.into_split());
    let mut cut = state.clone();
    tokio::select! {
        _ = pass(from_client, to_node, state.clone()) => {}
        _ = pass(from_node, to_client, state) => {}
        _ = cut.wait_for(|state| *state == State::Cut) => {}
    }
}

/// Forwards one direction of a connection while the line is open.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
) -> Option<()> {
    let mut said = vec![0; 65_536];
    loop {
        let length = from.read(&mut said).await.ok().filter(|length| *length > 0)?;
        state.wait_for(|state| *state == State::Open).await.ok()?;
        to.write_all(&said[..length]).await.ok()?;
    }
}
