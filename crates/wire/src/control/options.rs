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
}

impl TableOptions {
    /// The options of a table that was made without any.
    pub const DEFAULT: TableOptions = TableOptions { ttl_ms: 0, policy: Policy::Durable };

    /// Whether the table was made without any.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == TableOptions::DEFAULT
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
        let options = TableOptions { ttl_ms: 9, policy: Policy::Cache };
        let golden = br#"{"ttl_ms":9,"policy":"cache"}"#;
        assert_eq!(to_body(&options), golden);
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
        let options = TableOptions { ttl_ms: 9, policy: Policy::Cache };
        let attributes = options.attributes(Timestamp(5));
        assert_eq!((attributes.expires, attributes.is_cached), (Timestamp(14), true));
        let zero = options.with_time_to_live(TimeToLive::Milliseconds(0));
        assert_eq!(zero, Err(Status::BadTimeToLive));
        let never = options.with_time_to_live(TimeToLive::Never).unwrap();
        assert_eq!(never.ttl_ms, 0);
    }
}
