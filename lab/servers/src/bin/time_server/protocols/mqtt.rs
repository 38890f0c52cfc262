//! MQTT 3.1.1 with quality of service 1. A client that is silent for one and a half times its
//! keep-alive is disconnected, and a message that it does not acknowledge in time is sent again.

use super::super::time::{self, DelayQueue, Instant, delay_queue};
use super::server::{Connection, Server};
use futures_util::{SinkExt, StreamExt};
use rumqttc::mqttbytes::QoS;
use rumqttc::mqttbytes::v4::{
    Codec, ConnAck, ConnectReturnCode, Packet, PubAck, Publish, SubAck, SubscribeReasonCode,
};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_util::codec::Framed;
use tourbillon_servers::process::Failure;

/// The time before a message is sent again.
const RESEND: Duration = Duration::from_millis(500);

/// The longest packet.
const LONGEST: usize = 1 << 16;

/// The subscribers of each topic.
#[derive(Default)]
pub(crate) struct Broker(Mutex<HashMap<String, Vec<UnboundedSender<Publish>>>>);

impl Broker {
    fn subscribe(&self, topic: String, subscriber: UnboundedSender<Publish>) {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        topics.entry(topic).or_default().push(subscriber);
    }

    /// Delivers a message to its subscribers, and forgets those that have gone.
    fn publish(&self, message: &Publish) {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(subscribers) = topics.get_mut(&message.topic) {
            subscribers.retain(|subscriber| subscriber.send(message.clone()).is_ok());
        }
    }
}

impl Server {
    /// Serves a connection until it ends or its client is silent for too long.
    pub(crate) async fn mqtt(
        self: Arc<Self>,
        broker: Arc<Broker>,
        stream: impl Connection,
    ) -> Result<(), Failure> {
        let codec = Codec { max_incoming_size: LONGEST, max_outgoing_size: LONGEST };
        let mut packets = Framed::new(stream, codec);
        let connect = time::timeout(self.idle, packets.next()).await?.transpose()?;
        let Some(Packet::Connect(connect)) = connect else {
            return Err("it does not connect".into());
        };
        packets.send(Packet::ConnAck(ConnAck::new(ConnectReturnCode::Success, false))).await?;
        let patience = Duration::from_secs(connect.keep_alive.into()) * 3 / 2;
        let mut silent = pin!(time::sleep(patience));
        let mut session = Session::new(packets);
        loop {
            tokio::select! {
                packet = session.packets.next() => {
                    let Some(packet) = packet.transpose()? else {
                        return Ok(());
                    };
                    silent.as_mut().reset(Instant::now() + patience);
                    session.handle(packet, &broker).await?;
                }
                Some(message) = session.inbox.recv() => session.deliver(message).await?,
                Some(message) = session.resends.next() => {
                    self.audit.fire(message.deadline());
                    session.send(Publish { dup: true, ..message.into_inner() }).await?;
                }
                () = silent.as_mut() => {
                    self.audit.fire(silent.deadline());
                    return Ok(());
                }
            }
        }
    }
}

/// A client, with its messages that are not acknowledged.
struct Session<S> {
    packets: Framed<S, Codec>,
    outbox: UnboundedSender<Publish>,
    inbox: UnboundedReceiver<Publish>,
    unacknowledged: HashMap<u16, delay_queue::Key>,
    resends: DelayQueue<Publish>,
    last_id: u16,
}

impl<S: Connection> Session<S> {
    fn new(packets: Framed<S, Codec>) -> Self {
        let (outbox, inbox) = mpsc::unbounded_channel();
        let (unacknowledged, resends) = (HashMap::new(), DelayQueue::new());
        Self { packets, outbox, inbox, unacknowledged, resends, last_id: 0 }
    }

    /// Handles a packet of the client.
    async fn handle(&mut self, packet: Packet, broker: &Broker) -> Result<(), Failure> {
        match packet {
            Packet::Publish(message) => {
                broker.publish(&message);
                if message.qos == QoS::AtLeastOnce {
                    self.packets.send(Packet::PubAck(PubAck::new(message.pkid))).await?;
                }
            }
            Packet::PubAck(PubAck { pkid }) => {
                if let Some(key) = self.unacknowledged.remove(&pkid) {
                    self.resends.remove(&key);
                }
            }
            Packet::Subscribe(subscribe) => {
                let codes =
                    vec![SubscribeReasonCode::Success(QoS::AtLeastOnce); subscribe.filters.len()];
                for filter in subscribe.filters {
                    broker.subscribe(filter.path, self.outbox.clone());
                }
                self.packets.send(Packet::SubAck(SubAck::new(subscribe.pkid, codes))).await?;
            }
            Packet::PingReq => self.packets.send(Packet::PingResp).await?,
            _ => return Err("it disconnects".into()),
        }
        Ok(())
    }

    /// Sends a message that another client has published.
    async fn deliver(&mut self, message: Publish) -> Result<(), Failure> {
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        self.send(Publish { dup: false, pkid: self.last_id, ..message }).await
    }

    /// Sends a message, and again if it is not acknowledged in time.
    async fn send(&mut self, message: Publish) -> Result<(), Failure> {
        let key = self.resends.insert(message.clone(), RESEND);
        self.unacknowledged.insert(message.pkid, key);
        Ok(self.packets.send(Packet::Publish(message)).await?)
    }
}
