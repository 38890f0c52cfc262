//! WebSocket. The server returns each message, and sends pings. A peer that neither answers a ping
//! nor sends another frame in time is disconnected.

use super::super::time::{self, Instant};
use super::server::{Connection, Server};
use futures_util::{SinkExt, StreamExt};
use std::pin::pin;
use std::sync::Arc;
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tourbillon_servers::process::Failure;

impl Server {
    /// Serves a connection until it ends or its peer is silent for too long.
    pub(crate) async fn web_socket(
        self: Arc<Self>,
        stream: impl Connection,
    ) -> Result<(), Failure> {
        let mut socket = time::timeout(self.idle, accept_async(stream)).await??;
        let period = self.idle / 2;
        let mut pings = time::interval_at(Instant::now() + period, period);
        let mut silent = pin!(time::sleep(self.idle));
        loop {
            tokio::select! {
                message = socket.next() => {
                    let Some(message) = message.transpose()? else {
                        return Ok(());
                    };
                    silent.as_mut().reset(Instant::now() + self.idle);
                    if message.is_binary() {
                        socket.send(message).await?;
                    }
                }
                due = pings.tick() => {
                    self.audit.fire(due);
                    socket.send(Message::Ping(Bytes::new())).await?;
                }
                () = silent.as_mut() => {
                    self.audit.fire(silent.deadline());
                    return Ok(());
                }
            }
        }
    }
}
