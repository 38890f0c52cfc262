//! [`Protocol`] has the greetings and the requests, and recognises complete messages of the server.

use crate::Failure;
use httparse::{EMPTY_HEADER, Response, Status};
use redis_protocol::bytes::BytesMut;
use rumqttc::mqttbytes::QoS;
use rumqttc::mqttbytes::v4::{Connect, Packet, PubAck, Publish, Subscribe};
use std::borrow::Cow;
use std::time::Duration;

/// The protocol of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    /// The server returns the bytes that it received.
    Echo,
    /// HTTP/1.1 with `GET /` on a persistent connection.
    Http,
    /// WebSocket, where the server returns each message and sends pings.
    WebSocket,
    /// MQTT 3.1.1, where each client publishes to itself, with quality of service 1.
    Mqtt,
}

/// A complete message of the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) length: usize,
    /// Set if the message answers a request.
    pub(crate) is_answer: bool,
    /// The bytes that the client has to reply, if any.
    pub(crate) reply: Vec<u8>,
}

/// The length of the content of a request.
const LENGTH: u8 = 64;

const TEXT: &[u8; LENGTH as usize] =
    b"sixty-four bytes go to the server, and the same ones come back.\n";

/// The keep-alive of MQTT in seconds. A server waits for one and a half times as long.
const KEEP_ALIVE: u16 = 1;

/// The longest packet of MQTT.
const LONGEST: usize = 1 << 10;

/// One in this many deliveries is not acknowledged, so that the server has to repeat it.
const IGNORED_OF: u32 = 200;

/// The maximum number of header fields of an answer.
const MAX_FIELDS: usize = 32;

impl Protocol {
    /// The idle timeout of a server that is asked for this one.
    pub(crate) fn timeout(self, asked: Duration) -> Duration {
        match self {
            // The clients state it, in whole seconds.
            Self::Mqtt => Duration::from_secs(KEEP_ALIVE.into()) * 3 / 2,
            _ => asked,
        }
    }

    /// The bytes by which the client with this number opens a connection.
    pub(crate) fn greeting(self, number: usize) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Echo | Self::Http => Ok(Vec::new()),
            Self::WebSocket => Ok(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
                Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
                .to_vec()),
            Self::Mqtt => {
                let connect = Connect { keep_alive: KEEP_ALIVE, ..Connect::new(topic(number)) };
                let subscribe = Subscribe::new(topic(number), QoS::AtLeastOnce);
                let subscribe = Subscribe { pkid: 1, ..subscribe };
                mqtt(&[Packet::Connect(connect), Packet::Subscribe(subscribe)])
            }
        }
    }

    /// The length of the answer to the greeting, or `None` if it is incomplete.
    pub(crate) fn greeted(self, bytes: &[u8]) -> Result<Option<usize>, Failure> {
        match self {
            Self::Echo | Self::Http => Ok(Some(0)),
            Self::WebSocket => Ok(http_head(bytes, 101)?.map(|(head, _)| head)),
            Self::Mqtt => {
                let mut stream = BytesMut::from(bytes);
                while let Some(packet) = mqtt_packet(&mut stream)? {
                    if let Packet::SubAck(_) = packet {
                        return Ok(Some(bytes.len() - stream.len()));
                    }
                }
                Ok(None)
            }
        }
    }

    /// A request of the client with this number.
    pub(crate) fn request(self, number: usize) -> Result<Cow<'static, [u8]>, Failure> {
        Ok(match self {
            Self::Echo => TEXT[..].into(),
            Self::Http => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..].into(),
            Self::WebSocket => {
                // A final binary frame whose mask is zero.
                let mut frame = vec![0x82, 0x80 | LENGTH, 0, 0, 0, 0];
                frame.extend_from_slice(TEXT);
                frame.into()
            }
            Self::Mqtt => {
                let publish = Publish::new(topic(number), QoS::AtLeastOnce, TEXT);
                mqtt(&[Packet::Publish(Publish { pkid: 1, ..publish })])?.into()
            }
        })
    }

    /// The message at the beginning of these bytes, or `None` if it is incomplete.
    pub(crate) fn message(self, bytes: &[u8]) -> Result<Option<Message>, Failure> {
        let answer = |length| Message { length, is_answer: true, reply: Vec::new() };
        match self {
            Self::Echo => {
                let so_far = bytes.len().min(TEXT.len());
                if bytes[..so_far] != TEXT[..so_far] {
                    return Err("the answer is not what was sent".into());
                }
                Ok((so_far == TEXT.len()).then(|| answer(so_far)))
            }
            Self::Http => Ok(http_answer(bytes)?.map(answer)),
            Self::WebSocket => match *bytes {
                [0x82, LENGTH, ..] => {
                    let length = TEXT.len() + 2;
                    Ok((bytes.len() >= length).then(|| answer(length)))
                }
                // A ping without content, and the pong.
                [0x89, 0, ..] => {
                    let reply = vec![0x8a, 0x80, 0, 0, 0, 0];
                    Ok(Some(Message { length: 2, is_answer: false, reply }))
                }
                [] | [_] => Ok(None),
                _ => Err("an unexpected frame".into()),
            },
            Self::Mqtt => mqtt_message(bytes),
        }
    }
}

/// The status line and the fields of an answer, as its length and the field `Content-Length`.
fn http_head(bytes: &[u8], status: u16) -> Result<Option<(usize, Option<usize>)>, Failure> {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut response = Response::new(&mut fields);
    let Status::Complete(head) = response.parse(bytes)? else {
        return Ok(None);
    };
    if response.code != Some(status) {
        return Err(format!("the answer has status {:?}", response.code).into());
    }
    let length = response.headers.iter().find(|it| it.name.eq_ignore_ascii_case("content-length"));
    let length =
        length.map(|length| Ok::<_, Failure>(std::str::from_utf8(length.value)?.trim().parse()?));
    Ok(Some((head, length.transpose()?)))
}

fn http_answer(bytes: &[u8]) -> Result<Option<usize>, Failure> {
    let Some((head, length)) = http_head(bytes, 200)? else {
        return Ok(None);
    };
    let whole = head + length.ok_or("the answer does not say how long it is")?;
    Ok((bytes.len() >= whole).then_some(whole))
}

/// The topic of the client with this number.
fn topic(number: usize) -> String {
    format!("clients/{number}")
}

fn mqtt(packets: &[Packet]) -> Result<Vec<u8>, Failure> {
    let mut bytes = BytesMut::new();
    for packet in packets {
        packet.write(&mut bytes, LONGEST)?;
    }
    Ok(bytes.to_vec())
}

/// Takes the first packet, or returns `None` if it is incomplete.
fn mqtt_packet(stream: &mut BytesMut) -> Result<Option<Packet>, Failure> {
    match Packet::read(stream, LONGEST) {
        Ok(packet) => Ok(Some(packet)),
        Err(rumqttc::mqttbytes::Error::InsufficientBytes(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn mqtt_message(bytes: &[u8]) -> Result<Option<Message>, Failure> {
    let mut stream = BytesMut::from(bytes);
    let Some(packet) = mqtt_packet(&mut stream)? else {
        return Ok(None);
    };
    let mut message = Message { length: bytes.len() - stream.len(), ..Message::default() };
    match packet {
        // A delivery that is ignored comes again.
        Packet::Publish(publish) if publish.dup || fastrand::u32(..IGNORED_OF) > 0 => {
            message.is_answer = true;
            message.reply = mqtt(&[Packet::PubAck(PubAck::new(publish.pkid))])?;
        }
        Packet::Publish(_) | Packet::PubAck(_) => {}
        _ => return Err("an unexpected packet".into()),
    }
    Ok(Some(message))
}
