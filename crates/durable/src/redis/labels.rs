//! Reading the ids of timers by their labels.

#![forbid(unsafe_code)]

use super::operations::Operations;
use crate::error::DurableError;
use crate::model::label::Label;
use crate::store::Ids;
use futures_util::future::try_join_all;
use redis::cmd;

impl Operations {
    pub(super) async fn label_ids(
        &self,
        label: Label,
        ids: Ids,
        limit: usize,
    ) -> Result<Vec<String>, DurableError> {
        let (command, from, end, is_reversed) = match &ids {
            Ids::After(id) => ("ZRANGEBYLEX", bound(id.as_deref(), "-"), "+", false),
            Ids::Before(id) => ("ZREVRANGEBYLEX", bound(id.as_deref(), "+"), "-", true),
        };
        let each = (0..self.keys.partitions()).map(|partition| {
            let key = self.keys.label(partition, &label);
            let mut read = cmd(command);
            read.arg(&key).arg(&from).arg(end).arg("LIMIT").arg(0).arg(limit);
            async move { self.query::<Vec<String>>(&key, read).await }
        });
        let mut found: Vec<String> = try_join_all(each).await?.into_iter().flatten().collect();
        found.sort_unstable();
        if is_reversed {
            found.reverse();
        }
        found.truncate(limit);
        Ok(found)
    }

    pub(super) async fn label_len(&self, label: Label) -> Result<u64, DurableError> {
        let each = (0..self.keys.partitions()).map(|partition| {
            let key = self.keys.label(partition, &label);
            let mut count = cmd("ZCARD");
            count.arg(&key);
            async move { self.query::<u64>(&key, count).await }
        });
        Ok(try_join_all(each).await?.into_iter().sum())
    }
}

/// Returns the bound of a range that begins beyond an id, or at this end.
fn bound(id: Option<&str>, end: &str) -> String {
    id.map_or_else(|| end.to_owned(), |id| format!("({id}"))
}
