//! Users that overwrite much, so that logs roll to new heads and are cleaned.

use super::{KEYS, LONG, NUMBERS, User};
use std::time::Duration;
use thunderhead_client::{Action, Condition, KeyHash, Operation, TableId};
use thunderhead_simulator::linearizability::{self, Action as Judged};

/// The number of objects in each table that only fill memory, and how many are written at once.
const FILLERS: u64 = 16;
const FILLERS_AT_ONCE: usize = 20;

/// Their number if tablets are to be large.
const GROWN: u64 = 80;

/// How often a fading object is overwritten, and how often the log is filled afterwards.
const FADED_WRITES: std::ops::Range<u64> = 20..60;
const FADED_FILLINGS: std::ops::Range<u64> = 2..16;

fn filler(number: u64) -> Vec<u8> {
    format!("filler {number}").into_bytes()
}

impl User {
    pub(super) fn churns(&mut self) -> bool {
        let churn = self.seeing.plan.churn;
        churn > 0.0 && self.random.chance(churn)
    }

    /// Overwrites objects that only fill memory. It does not matter if some writes are refused.
    pub(super) async fn churn(&mut self) {
        let tables = self.seeing.seen.borrow().tables.clone();
        let fillers: Vec<Vec<u8>> = (0..FILLERS).map(filler).collect();
        let patience = Duration::from_secs(1);
        self.fill(&tables, &fillers, Condition::Always, patience).await;
    }

    /// Overwrites some objects, and many that only fill memory, and does not wait for long.
    pub(super) async fn press(&mut self) {
        let tables = self.seeing.seen.borrow().tables.clone();
        let table = tables[self.random.below(2) as usize];
        let patience = Duration::from_millis(self.random.within(20..120));
        let keys: Vec<u64> = (0..KEYS).filter(|_| self.random.chance(0.3)).collect();
        let wanted = keys.into_iter().map(|key| self.another(table, key)).collect();
        self.begin(wanted, patience, false).await;
        let fillers: Vec<Vec<u8>> = (0..FILLERS).map(filler).collect();
        self.fill(&tables, &fillers, Condition::Always, patience).await;
    }

    async fn fill(
        &mut self,
        tables: &[TableId],
        fillers: &[Vec<u8>],
        condition: Condition,
        patience: Duration,
    ) {
        let operations = (0..FILLERS_AT_ONCE).filter_map(|_| {
            let table = self.random.pick(tables).copied()?;
            let key = self.random.pick(fillers)?.clone();
            let length = self.random.within(LONG / 2..LONG) as usize;
            let action = match condition == Condition::Always && self.random.chance(0.1) {
                true => Action::Delete,
                false => Action::Write(vec![length as u8; length]),
            };
            Some(Operation { table, key, condition, action })
        });
        let operations = operations.collect();
        let _ = self.client.all(operations, patience).await;
    }

    /// Overwrites an object often, and deletes it. Overwrites others of its tablet until nothing of
    /// the object remains in the log, or only very old entries. Then its master crashes, and the
    /// user writes the object again.
    pub(super) async fn fade(&mut self) {
        let table = self.seeing.seen.borrow().tables[self.random.below(2) as usize];
        let key = self.random.within(NUMBERS..KEYS);
        let bytes = key.to_be_bytes().to_vec();
        let hash = KeyHash::of(&bytes);
        let is_near = |key: &Vec<u8>| KeyHash::of(key).0.abs_diff(hash.0) < u64::MAX / 8;
        let fillers: Vec<Vec<u8>> = (0..3 * FILLERS).map(filler).filter(is_near).collect();
        let patience = Duration::from_secs(1);
        self.fill(&[table], &fillers, Condition::Always, patience).await;
        let (always, its) = (Condition::Always, linearizability::Condition::Always);
        for _ in 0..self.random.within(FADED_WRITES) {
            self.overwrite(table, key, patience).await;
        }
        let action = Action::Delete;
        let deletion = Operation { table, key: bytes, condition: always, action };
        self.begin(vec![(key, Judged::Delete { condition: its }, deletion)], patience, false).await;
        for _ in 0..self.random.within(FADED_FILLINGS) {
            // New objects would have versions above those of the deleted object.
            self.fill(&[table], &fillers, Condition::Present, patience).await;
        }
        self.seeing.seen.borrow_mut().faded = Some((table, hash));
        for _ in 0..4 {
            self.fill(&[table], &fillers, Condition::Present, patience).await;
        }
        self.overwrite(table, key, Duration::from_secs(8)).await;
    }

    /// Makes a table of one tablet larger than one message of a migration.
    pub(super) async fn grow(&mut self) {
        if !self.seeing.plan.is_narrow_whole {
            return;
        }
        let tables = self.seeing.seen.borrow().tables.clone();
        for at in 0..GROWN.div_ceil(FILLERS) {
            let fillers: Vec<Vec<u8>> = (at * FILLERS..(at + 1) * FILLERS).map(filler).collect();
            self.fill(&tables[1..], &fillers, Condition::Absent, Duration::from_secs(1)).await;
        }
    }

    /// Writes another value, without a condition.
    pub(super) async fn overwrite(&mut self, table: TableId, key: u64, patience: Duration) {
        let wanted = self.another(table, key);
        self.begin(vec![wanted], patience, false).await;
    }

    fn another(&mut self, table: TableId, key: u64) -> (u64, Judged, Operation) {
        let value = self.random.below(1 << 48);
        let judged = Judged::Write { value, condition: linearizability::Condition::Always };
        let action = super::write(key, value);
        let (key_bytes, condition) = (key.to_be_bytes().to_vec(), Condition::Always);
        let operation = Operation { table, key: key_bytes, condition, action };
        (key, judged, operation)
    }
}
