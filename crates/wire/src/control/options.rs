//! The options of a table, which are part of it from its creation on.

use super::is_zero;
use crate::{Attributes, Status, TableId, TimeToLive, Timestamp};
use serde::{Deserialize, Serialize};

/// The behaviour of a table if memory is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Its objects stay, and writes are refused.
    #[default]
    Durable,
    /// Objects that were not used lately make room for new ones.
    Cache,
}

impl Policy {
    /// Whether it is the default.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        *self == Policy::Durable
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Policy::Durable => "durable",
            Policy::Cache => "cache",
        }
    }
}

/// The options of a table. A program refuses options that it does not know: it must not make a
/// table that ignores them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableOptions {
    /// The time to live of an object, in milliseconds, if its write names none. 0: for ever.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ttl_ms: u64,
    /// The behaviour of the table if memory is full.
    #[serde(default, skip_serializing_if = "Policy::is_durable")]
    pub policy: Policy,
    /// The most bytes that the live objects of the table may take, with their keys and headers.
    /// Each tablet has a share in proportion to its hash range. 0: there is no limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_bytes: u64,
    /// The bytes of the table of which none are evicted for other tables, divided in the same way.
    /// Only for a cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserved_bytes: u64,
}

impl TableOptions {
    /// The options of a table that was made without any.
    pub const DEFAULT: TableOptions =
        TableOptions { ttl_ms: 0, policy: Policy::Durable, max_bytes: 0, reserved_bytes: 0 };

    /// Whether the table was made without any.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == TableOptions::DEFAULT
    }

    /// Checks that the options go together.
    ///
    /// # Errors
    /// [`Status::BadTimeToLive`] for the number that means for ever, and [`Status::BadOptions`].
    pub fn check(&self) -> Result<(), Status> {
        if TimeToLive::of_code(self.ttl_ms) == TimeToLive::Never {
            return Err(Status::BadTimeToLive);
        }
        let is_too_much = self.max_bytes > 0 && self.reserved_bytes > self.max_bytes;
        if is_too_much || self.reserved_bytes > 0 && self.policy.is_durable() {
            return Err(Status::BadOptions);
        }
        Ok(())
    }

    /// The same options with this default time to live.
    ///
    /// # Errors
    /// [`Status::BadTimeToLive`]: it is 0.
    pub fn with_time_to_live(self, time: TimeToLive) -> Result<TableOptions, Status> {
        let ttl_ms = match time {
            TimeToLive::Never => 0,
            TimeToLive::Milliseconds(0) => return Err(Status::BadTimeToLive),
            TimeToLive::Milliseconds(milliseconds) => milliseconds,
        };
        Ok(TableOptions { ttl_ms, ..self })
    }

    /// The attributes of an object that is written at a time, and whose write does not say how long
    /// it lives.
    #[must_use]
    pub fn attributes(&self, now: Timestamp) -> Attributes {
        let expires = if self.ttl_ms == 0 { Timestamp::ZERO } else { now.after(self.ttl_ms) };
        Attributes { expires, is_cached: self.policy == Policy::Cache, ..Attributes::NONE }
    }
}

/// A table that has options. Masters learn the options when they begin to own a tablet of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionsOfTable {
    /// The table.
    pub table: TableId,
    /// Its options.
    pub options: TableOptions,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{of_body, to_body};

    #[test]
    fn options_are_read_for_ever_and_unknown_ones_are_refused() {
        let options = TableOptions { ttl_ms: 9, policy: Policy::Cache, ..TableOptions::DEFAULT };
        let golden = br#"{"ttl_ms":9,"policy":"cache"}"#;
        assert_eq!(to_body(&options), golden);
        let all = TableOptions { max_bytes: 30, reserved_bytes: 20, ..options };
        let golden_all = br#"{"ttl_ms":9,"policy":"cache","max_bytes":30,"reserved_bytes":20}"#;
        assert_eq!(to_body(&all), golden_all);
        assert_eq!(of_body(golden_all), Some(all));
        assert_eq!(of_body(golden), Some(options));
        assert_eq!(to_body(&TableOptions::DEFAULT), b"{}");
        assert_eq!(of_body(b"{}"), Some(TableOptions::DEFAULT));
        for unknown in [&br#"{"colour":"red"}"#[..], br#"{"policy":"archive"}"#] {
            assert_eq!(of_body::<TableOptions>(unknown), None);
        }
    }

    #[test]
    fn objects_get_the_attributes_of_their_table() {
        let plain = TableOptions::DEFAULT.attributes(Timestamp(5));
        assert!(plain.is_none());
        let options = TableOptions { ttl_ms: 9, policy: Policy::Cache, ..TableOptions::DEFAULT };
        let attributes = options.attributes(Timestamp(5));
        assert_eq!((attributes.expires, attributes.is_cached), (Timestamp(14), true));
        let zero = options.with_time_to_live(TimeToLive::Milliseconds(0));
        assert_eq!(zero, Err(Status::BadTimeToLive));
        let never = options.with_time_to_live(TimeToLive::Never).unwrap();
        assert_eq!(never.ttl_ms, 0);
    }

    #[test]
    fn only_caches_reserve_memory_and_no_more_than_their_maximum() {
        let check = |policy, max_bytes, reserved_bytes| {
            TableOptions { ttl_ms: 0, policy, max_bytes, reserved_bytes }.check()
        };
        assert_eq!(check(Policy::Durable, 5, 0), Ok(()));
        assert_eq!(check(Policy::Durable, 0, 5), Err(Status::BadOptions));
        assert_eq!(check(Policy::Cache, 0, 5), Ok(()));
        assert_eq!(check(Policy::Cache, 5, 5), Ok(()));
        assert_eq!(check(Policy::Cache, 5, 6), Err(Status::BadOptions));
        let never = TableOptions { ttl_ms: u64::MAX, ..TableOptions::DEFAULT };
        assert_eq!(never.check(), Err(Status::BadTimeToLive));
    }
}
