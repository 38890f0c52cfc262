//! [`RedisHistory`], a Redis stream beside the keys of the store, which all services of the store
//! share.

#![forbid(unsafe_code)]

use super::link::Link;
use super::run::{History, HistoryError, Reply, Run};
use crate::config::HistoryBounds;
use redis::streams::StreamRangeReply;
use redis::{Value, from_redis_value};

/// The number of latest runs that are searched for the runs of one timer.
const SEARCHED: usize = 10_000;

pub(super) struct RedisHistory {
    link: Link,
    key: String,
    bounds: HistoryBounds,
}

impl RedisHistory {
    /// Returns the history of the store with this name.
    pub(super) fn new(link: Link, name: &str, bounds: HistoryBounds) -> Self {
        Self { link, key: format!("tb:{name}:history"), bounds }
    }
}

impl History for RedisHistory {
    fn add(&self, runs: Vec<Run>) -> Reply<()> {
        let (mut link, key) = (self.link.clone(), self.key.clone());
        let bounds = self.bounds.clone();
        Box::pin(async move {
            let mut pipe = redis::pipe();
            let mut now = 0;
            for run in &runs {
                now = now.max(run.ended_millis);
                let bytes = serde_json::to_vec(run).map_err(HistoryError::of)?;
                pipe.cmd("XADD").arg(&key).arg("*").arg("run").arg(bytes).ignore();
            }
            let age = bounds.age.as_millis().try_into().unwrap_or(u64::MAX);
            let before = now.saturating_sub(age);
            pipe.cmd("XTRIM").arg(&key).arg("MAXLEN").arg("~").arg(bounds.most.get()).ignore();
            pipe.cmd("XTRIM").arg(&key).arg("MINID").arg("~").arg(before).ignore();
            link.send(&pipe).await.map(drop).map_err(HistoryError::of)
        })
    }

    fn latest(&self, id: Option<String>, limit: usize) -> Reply<Vec<Run>> {
        let (mut link, key) = (self.link.clone(), self.key.clone());
        Box::pin(async move {
            let count = if id.is_some() { SEARCHED } else { limit };
            let mut pipe = redis::pipe();
            pipe.cmd("XREVRANGE").arg(key).arg("+").arg("-").arg("COUNT").arg(count);
            let mut replies = link.send(&pipe).await.map_err(HistoryError::of)?;
            let reply = from_redis_value(replies.pop().unwrap_or(Value::Nil));
            let reply: StreamRangeReply = reply.map_err(HistoryError::of)?;
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
