//! Objects that expire. Each user has one of its own in each table, so it knows the possible
//! answers to its reads:
//!
//! - the last written version, with its value, until the object expires;
//! - nothing from then on: once a read has found the object gone, it never comes back, also
//!   after crashes, and if the dates of the machines are far apart;
//! - versions never go back, also over objects that have expired.

use super::User;
use std::time::Duration;
use thunderhead_client::{
    Action, Answer, Condition, Error, Operation, TableId, TimeToLive, Version,
};

/// How long the objects live: mostly shorter than a crash and its recovery take.
const LIVES_MS: std::ops::Range<u64> = 1..1_500;

/// How often an object is read after it was written, and the mean pause before each read.
const LOOKS: std::ops::Range<u64> = 2..8;
const LOOK_AFTER_NS: f64 = 200e6;

const PATIENCE: Duration = Duration::from_secs(8);

impl User {
    /// Writes an object with a time to live, and watches it go.
    pub(super) async fn expire(&mut self) {
        let table = self.seeing.seen.borrow().tables[self.random.below(2) as usize];
        let value = self.random.below(u64::MAX).to_le_bytes().to_vec();
        let time = TimeToLive::Milliseconds(self.random.within(LIVES_MS));
        let write = Action::WriteExpiring(value.clone(), time);
        let mut written = match self.on_expiring(table, write).await {
            Ok(Answer::Written(version)) => version,
            // It may have been done or not, so nothing is known of the object.
            Err(Error::Unknown(_) | Error::TimedOut(_)) => return,
            other => return self.seeing.fail(format!("an object that expires: {other:?}")),
        };
        self.rises(table, written);
        let mut is_gone = false;
        for _ in 0..self.random.within(LOOKS) {
            self.pause(LOOK_AFTER_NS).await;
            if self.random.chance(0.2) {
                let time = TimeToLive::Milliseconds(self.random.within(LIVES_MS));
                match self.on_expiring(table, Action::SetExpiry(time)).await {
                    Ok(Answer::Absent) => is_gone = true,
                    Ok(Answer::Written(_)) if is_gone => {
                        self.seeing.fail("an object that had expired got another time to live");
                    }
                    Ok(Answer::Written(version)) => {
                        written = version;
                        self.rises(table, written);
                    }
                    Err(Error::Unknown(_) | Error::TimedOut(_)) => return,
                    other => return self.seeing.fail(format!("a change of expiry: {other:?}")),
                }
                continue;
            }
            match self.on_expiring(table, Action::Read).await {
                Ok(Answer::Absent) => is_gone = true,
                Ok(Answer::Found { version, value: found }) => {
                    if is_gone {
                        self.seeing.fail(format!("an expired object came back as {version:?}"));
                    }
                    if (version, &found) != (written, &value) {
                        self.seeing.fail(format!("read {version:?} where {written:?} was written"));
                    }
                }
                Err(Error::TimedOut(_)) => {}
                other => return self.seeing.fail(format!("a read of an object: {other:?}")),
            }
        }
    }

    /// Does one operation on this user's own object that expires.
    async fn on_expiring(&mut self, table: TableId, action: Action) -> Result<Answer, Error> {
        let key = format!("expiring {}", self.number).into_bytes();
        let operation = Operation { table, key, condition: Condition::Always, action };
        let mut results = self.client.all(vec![operation], PATIENCE).await;
        results.pop().unwrap_or(Err(Error::Incomprehensible))
    }

    /// Checks that the versions of this user's own object only grow.
    fn rises(&mut self, table: TableId, version: Version) {
        let highest = self.expired.entry(table).or_default();
        if version <= *highest {
            self.seeing.fail(format!("version {version:?} of an object after {highest:?}"));
        }
        *highest = version;
    }
}
