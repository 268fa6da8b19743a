//! Keys that another codec wrote, written anew (I-18).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Start, StartCx};
use crate::broker::{Command, Transaction};
use crate::engine::epoch::{changelog_batch, epoch_batch};
use crate::error::{Error, ErrorKind, Result};
use crate::id::StoreId;
use crate::store::layout::row_of_local;
use crate::store::{ByteStore, Row, StoreKind};
use crate::time::Timestamp;
use crate::topology::graph::{Graph, Reencode};

impl Start {
    /// The places of the changelogs whose keys another codec wrote, and that codec.
    pub(super) fn outdated(&self) -> impl Iterator<Item = (usize, &str)> {
        let recorded = self.plan_record.as_ref().map(|p| &p.changelogs);
        self.plan().changelogs.iter().enumerate().filter_map(move |(i, c)| {
            let known = recorded?.get(&*c.topic)?;
            (known.codec != c.key_codec).then_some((i, known.codec.as_str()))
        })
    }

    /// Says of all stores that their keys are as the topology declares them.
    pub(super) fn take_new_codecs(&mut self) {
        let Some(record) = &mut self.plan_record else { return };
        for c in self.plan.iter().flat_map(|p| &p.changelogs) {
            if let Some(known) = record.changelogs.get_mut(&*c.topic) {
                known.codec.clone_from(&c.key_codec);
            }
        }
    }

    /// All rows of the stores that another codec wrote, written anew, and the plan that says so, in one transaction.
    pub(super) fn reencode(&mut self, cx: &StartCx<'_>, epochs: &Arc<str>) -> Result<Command> {
        let (mut all, mut weight) = (Vec::new(), 0);
        for (i, from) in self.outdated() {
            let c = &self.plan().changelogs[i];
            let how = reencoding(cx.graph, &c.name, from).ok_or_else(|| {
                Error::new(ErrorKind::Internal, format!("store `{}` is to be re-encoded, but nothing says how", c.name))
            })?;
            tracing::warn!(
                "the keys of store `{}`, written by codec {from}, are written anew with {}",
                c.name,
                c.key_codec
            );
            let rows =
                reencoded(&*cx.stores[i], c.kind, how, cx.wall).map_err(|e| e.at(format!("store `{}`", c.name)))?;
            weight += rows
                .iter()
                .map(|r| size_of::<Row>() + 2 * r.key.len() + r.value.as_ref().map_or(0, Vec::len))
                .sum::<usize>();
            all.push((StoreId(i as u32), rows));
        }
        let budget = cx.config.memory_budget.as_u64();
        if weight as u64 > budget {
            return Err(Error::new(
                ErrorKind::State,
                format!(
                    "to write keys anew with another codec takes {weight} bytes of memory, in one transaction: set \
                     `stoat.memory.budget` above that for this start; it is {budget} now"
                ),
            ));
        }
        let before = self.plan_record.clone();
        self.take_new_codecs();
        let record = self.record.clone().unwrap_or_default();
        let epoch = epoch_batch(epochs, &record, self.plan_record.as_ref(), cx.wall);
        // Until it is committed the plan is that of before.
        self.plan_record = before;
        let batches = vec![changelog_batch(&self.targets, &all), epoch];
        Ok(Command::Transact(Arc::new(Transaction { batches, ..Transaction::default() })))
    }
}

/// What writes the keys of a store anew that the codec `from` wrote.
pub(super) fn reencoding<'a>(graph: &'a Graph, store: &str, from: &str) -> Option<&'a Reencode> {
    graph.reencode.iter().find(|r| r.store == store && r.from == from)
}

/// The rows that turn a store's keys into those of another codec: one per key, so that their order does not matter.
fn reencoded(store: &dyn ByteStore, kind: StoreKind, how: &Reencode, now: Timestamp) -> Result<Vec<Row>> {
    let mut rows: BTreeMap<Vec<u8>, Row> = BTreeMap::new();
    let mut old = Vec::new();
    let mut done = Ok(());
    store.scan(None, None, &mut |key, value| {
        match reencoded_row(kind, how, key, value, now) {
            Ok((row, lane_key)) => {
                old.push((key.to_vec(), lane_key, row.timestamp));
                if rows.insert(row.key.clone(), row).is_some() {
                    done = Err(Error::new(
                        ErrorKind::State,
                        "two of its keys are one under the new codec, so one would be lost: choose a codec that tells them apart",
                    ));
                }
            }
            Err(e) => done = Err(e),
        }
        done.is_ok()
    })?;
    done?;
    for (key, lane_key, timestamp) in old {
        rows.entry(key).or_insert_with_key(|key| Row { key: key.clone(), lane_key, value: None, timestamp });
    }
    Ok(rows.into_values().collect())
}

/// A row under its new key, and the length of its old lane key.
fn reencoded_row(kind: StoreKind, how: &Reencode, key: &[u8], value: &[u8], now: Timestamp) -> Result<(Row, usize)> {
    let mut row = row_of_local(kind, key, value)?;
    if kind != StoreKind::TimestampedKeyValue {
        // Its kind keeps none.
        row.timestamp = now.max(Timestamp(0));
    }
    let (lane_key, tail) = key.split_at(row.lane_key);
    row.key.clear();
    (how.key)(lane_key, &mut row.key).map_err(|e| {
        Error::new(ErrorKind::State, format!("a key of {} bytes is none of codec {}: {e}", lane_key.len(), how.from))
    })?;
    row.lane_key = row.key.len();
    row.key.extend_from_slice(tail);
    Ok((row, lane_key.len()))
}
