//! The objects of a cluster that loses a server: the writes, the acknowledgements, and the check of
//! all of them.
//!
//! Each object has one writer, and its value contains the writer's stamp. So the stamp that is read
//! must be the last acknowledged one or one sent after it. A lower stamp is a lost write, and a
//! higher one was never written.

use super::members::View;
use super::{Deadline, Screen};
use crate::content::{fill, is_right, key};
use anyhow::{Context as _, Result, bail};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use thunderhead_client::control::TabletInfo;
use thunderhead_client::{Client, KeyHash, TableId};

/// Objects in a request.
const TOGETHER: u64 = 512;

/// Threads that load and check.
const THREADS: u64 = 2;

/// The interval of progress reports.
const LOOK: Duration = Duration::from_millis(100);

/// All objects of a run.
pub struct Objects {
    /// The objects' table.
    pub table: TableId,
    /// The number of objects.
    pub count: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// For each object the last acknowledged stamp, and the last sent.
    stamps: Vec<[AtomicU32; 2]>,
}

/// The results of a check.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Found {
    /// The number of checked objects.
    pub checked: u64,
    /// Objects that are missing, or whose value is older than the acknowledged one.
    pub lost: u64,
    /// Objects with a value that was never written for them.
    pub wrong: u64,
    /// The first of these, for people.
    pub examples: Vec<String>,
}

/// The most examples that are reported.
const EXAMPLES: usize = 5;

impl Objects {
    /// Returns objects that are not written yet.
    #[must_use]
    pub fn new(table: TableId, count: u64, value_bytes: usize) -> Objects {
        let stamps = (0..count).map(|_| Default::default()).collect();
        Objects { table, count, value_bytes, stamps }
    }

    /// Returns the bytes of all values.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.count * self.value_bytes as u64
    }

    /// Returns a write of an object that has no other writer at this time: its key and its new
    /// value.
    pub fn next_write(&self, number: u64) -> ([u8; 30], Vec<u8>) {
        let mut value = vec![b'v'; self.value_bytes];
        let stamp = match self.stamps.get(number as usize) {
            Some([_, sent]) => sent.fetch_add(1, Ordering::Relaxed) + 1,
            None => 0,
        };
        fill(&mut value, number, u64::from(stamp));
        (key(number), value)
    }

    /// Records that the last write of an object was acknowledged.
    pub fn acknowledged(&self, number: u64) {
        if let Some([acknowledged, sent]) = self.stamps.get(number as usize) {
            acknowledged.store(sent.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Judges the value that was read of an object.
    fn judge(&self, number: u64, read: Option<&[u8]>, found: &mut Found) {
        found.checked += 1;
        let Some([acknowledged, sent]) = self.stamps.get(number as usize) else { return };
        let least = u64::from(acknowledged.load(Ordering::Relaxed));
        let most = u64::from(sent.load(Ordering::Relaxed));
        let label = match read {
            None if least == 0 => return,
            None => {
                found.lost += 1;
                format!("object {number} is gone; its write {least} was acknowledged")
            }
            Some(value) => {
                let stamp = value.first_chunk::<8>().map_or(u64::MAX, |it| u64::from_le_bytes(*it));
                let is_right = value.len() == self.value_bytes && is_right(value, number);
                if is_right && (least..=most).contains(&stamp) {
                    return;
                }
                if is_right && stamp < least {
                    found.lost += 1;
                    format!("object {number} has write {stamp}; write {least} was acknowledged")
                } else {
                    found.wrong += 1;
                    format!("object {number} has a value that was never written for it")
                }
            }
        };
        if found.examples.len() < EXAMPLES {
            found.examples.push(label);
        }
    }

    /// Writes each object once.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn load(&self, cluster: View, screen: &dyn Screen) -> Result<()> {
        self.in_parts(cluster, screen, "loading", |client, first, last| {
            let writes: Vec<_> = (first..last).map(|number| self.next_write(number)).collect();
            for (number, result) in (first..last).zip(client.put_many(self.table, writes)) {
                result.with_context(|| format!("write object {number}"))?;
                self.acknowledged(number);
            }
            Ok(())
        })
    }

    /// Reads each object and reports errors.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn check(&self, cluster: View, screen: &dyn Screen) -> Result<Found> {
        let found = Mutex::new(Found::default());
        self.in_parts(cluster, screen, "checking", |client, first, last| {
            let keys: Vec<_> = (first..last).map(key).collect();
            let values = client.get_many(self.table, &keys);
            let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            for (number, value) in (first..last).zip(values) {
                let value = value.with_context(|| format!("read object {number}"))?;
                self.judge(number, value.as_ref().map(|(_, value)| &value[..]), &mut found);
            }
            Ok(())
        })?;
        Ok(found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Applies a function to all objects, in parts, on several threads.
    fn in_parts(
        &self,
        cluster: View,
        screen: &dyn Screen,
        label: &str,
        work: impl Fn(&mut Client, u64, u64) -> Result<()> + Sync,
    ) -> Result<()> {
        let (next, done, running) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(THREADS));
        let one = || -> Result<()> {
            let mut client = cluster.client(Deadline::OPERATION)?;
            loop {
                let first = next.fetch_add(TOGETHER, Ordering::Relaxed);
                if first >= self.count {
                    return Ok(());
                }
                let last = (first + TOGETHER).min(self.count);
                work(&mut client, first, last)?;
                done.fetch_add(last - first, Ordering::Relaxed);
            }
        };
        let one = || {
            let outcome = one();
            if outcome.is_err() {
                // The other threads can stop too.
                next.store(self.count, Ordering::Relaxed);
            }
            running.fetch_sub(1, Ordering::Relaxed);
            outcome
        };
        let outcome = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
            while running.load(Ordering::Relaxed) > 0 {
                screen.progress(label, done.load(Ordering::Relaxed), self.count, self.value_bytes);
                std::thread::sleep(LOOK);
            }
            for thread in threads {
                match thread.join() {
                    Ok(outcome) => outcome?,
                    Err(_) => bail!("a thread panicked while {label}"),
                }
            }
            Ok(())
        });
        screen.progress(label, self.count, self.count, self.value_bytes);
        outcome.with_context(|| label.to_owned())
    }
}

/// Whether an object is in one of these tablets.
#[must_use]
pub fn is_in(tablets: &[TabletInfo], number: u64) -> bool {
    let hash = KeyHash::of(&key(number));
    tablets.iter().any(|it| (it.first..=it.last).contains(&hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(number: u64, stamp: u64) -> Vec<u8> {
        let mut value = vec![b'v'; 100];
        fill(&mut value, number, stamp);
        value
    }

    #[test]
    fn acknowledged_writes_must_be_there_and_sent_ones_may_be() {
        let objects = Objects::new(TableId(1), 4, 100);
        objects.next_write(2);
        objects.acknowledged(2);
        objects.next_write(2);
        objects.next_write(3);
        let judge = |number, read: Option<Vec<u8>>| {
            let mut found = Found::default();
            objects.judge(number, read.as_deref(), &mut found);
            (found.lost, found.wrong)
        };
        assert_eq!(judge(2, Some(value(2, 1))), (0, 0));
        assert_eq!(judge(2, Some(value(2, 2))), (0, 0));
        assert_eq!(judge(2, Some(value(2, 0))), (1, 0));
        assert_eq!(judge(2, None), (1, 0));
        assert_eq!(judge(2, Some(value(2, 3))), (0, 1));
        assert_eq!(judge(2, Some(value(1, 1))), (0, 1));
        assert_eq!(judge(2, Some(Vec::new())), (0, 1));
        // This object was never acknowledged.
        assert_eq!(judge(3, None), (0, 0));
        assert_eq!(judge(3, Some(value(3, 1))), (0, 0));
    }
}
