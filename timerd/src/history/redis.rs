//! [`RedisHistory`], a stream of Redis beside the keys of the store, which all services of the
//! store share.

#![forbid(unsafe_code)]

use super::super::config::HistoryBounds;
use super::{History, HistoryError, Reply, Run};
use redis::aio::ConnectionManager;
use redis::streams::StreamRangeReply;
use redis::{Client, ClientTlsConfig, TlsCertificates, Value, cmd, from_redis_value};
use timers::Certificates;

/// The number of runs in which those of one timer are searched.
const SEARCHED: usize = 10_000;

pub(crate) struct RedisHistory {
    connection: ConnectionManager,
    key: String,
    bounds: HistoryBounds,
}

impl RedisHistory {
    pub(crate) async fn connect(
        url: &str,
        name: &str,
        tls: Option<Certificates>,
        bounds: HistoryBounds,
    ) -> Result<Self, HistoryError> {
        let client = match tls {
            Some(Certificates { authority, client }) => {
                let client_tls = client
                    .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
                Client::build_with_tls(url, TlsCertificates { client_tls, root_cert: authority })
            }
            None => Client::open(url),
        };
        let client = client.map_err(HistoryError::of)?;
        let connection = client.get_connection_manager().await.map_err(HistoryError::of)?;
        Ok(Self { connection, key: format!("tb:{name}:history"), bounds })
    }
}

impl History for RedisHistory {
    fn add(&self, runs: Vec<Run>) -> Reply<()> {
        let (mut connection, key) = (self.connection.clone(), self.key.clone());
        let bounds = self.bounds.clone();
        Box::pin(async move {
            let mut pipe = redis::pipe();
            let mut now = 0;
            for run in &runs {
                now = now.max(run.ended_millis);
                let bytes = serde_json::to_vec(run).map_err(HistoryError::of)?;
                pipe.cmd("XADD").arg(&key).arg("MAXLEN").arg("~").arg(bounds.most);
                pipe.arg("*").arg("run").arg(bytes).ignore();
            }
            let age = bounds.age.as_millis().try_into().unwrap_or(u64::MAX);
            let before = now.saturating_sub(age);
            pipe.cmd("XTRIM").arg(&key).arg("MINID").arg("~").arg(before).ignore();
            pipe.query_async::<()>(&mut connection).await.map_err(HistoryError::of)
        })
    }

    fn latest(&self, id: Option<String>, limit: usize) -> Reply<Vec<Run>> {
        let (mut connection, key) = (self.connection.clone(), self.key.clone());
        Box::pin(async move {
            let count = if id.is_some() { SEARCHED } else { limit };
            let mut asked = cmd("XREVRANGE");
            asked.arg(key).arg("+").arg("-").arg("COUNT").arg(count);
            let reply: StreamRangeReply =
                asked.query_async(&mut connection).await.map_err(HistoryError::of)?;
            let runs = reply.ids.into_iter().filter_map(|mut entry| read(entry.map.remove("run")?));
            let wanted = runs.filter(|run| id.as_ref().is_none_or(|id| *id == run.id));
            Ok(wanted.take(limit).collect())
        })
    }
}

fn read(value: Value) -> Option<Run> {
    let bytes: Vec<u8> = from_redis_value(value).ok()?;
    serde_json::from_slice(&bytes).ok()
}
