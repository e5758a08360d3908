//! The bytes of register requests and replies, as views.
//!
//! ```text
//!  read     0 key u64
//!  update   0 client u64   8 sequence u64   16 first_unacknowledged u64   24 key u64
//!          32 action u8   33 condition u8   34 (zero) [6]   40 version u64   48 value u64
//!  reply    0 outcome u8   1 (zero) [7]   8 version u64   16 value u64
//! ```

use crate::linearizability::{Action, Condition, Outcome, Version};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The identity of an update: its client and its place in the client's sequence.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(super) struct Identity {
    pub(super) client: U64,
    pub(super) sequence: U64,
    /// The client will not ask again for lower sequences.
    pub(super) first_unacknowledged: U64,
}

/// An update.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(super) struct Update {
    pub(super) identity: Identity,
    pub(super) key: U64,
    action: u8,
    condition: u8,
    zero: [u8; 6],
    version: U64,
    value: U64,
}

impl Update {
    pub(super) fn new(identity: Identity, key: u64, action: Action) -> Update {
        let (number, condition, value) = match action {
            Action::Write { value, condition } => (1, condition, value),
            Action::Delete { condition } => (2, condition, 0),
            Action::Increment { by } => (3, Condition::Always, by),
            Action::Read => (0, Condition::Always, 0),
        };
        let (condition, version) = match condition {
            Condition::Always => (0, 0),
            Condition::Absent => (1, 0),
            Condition::Present => (2, 0),
            Condition::VersionIs(version) => (3, version.0),
        };
        Update {
            identity,
            key: key.into(),
            action: number,
            condition,
            zero: [0; 6],
            version: version.into(),
            value: value.into(),
        }
    }

    /// Returns the requested action, if it is valid.
    pub(super) fn action(&self) -> Option<Action> {
        let condition = match self.condition {
            0 => Condition::Always,
            1 => Condition::Absent,
            2 => Condition::Present,
            3 => Condition::VersionIs(Version(self.version.get())),
            _ => return None,
        };
        match self.action {
            1 => Some(Action::Write { value: self.value.get(), condition }),
            2 => Some(Action::Delete { condition }),
            3 if self.condition == 0 => Some(Action::Increment { by: self.value.get() }),
            _ => None,
        }
    }
}

/// A reply.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(super) struct Reply {
    outcome: u8,
    zero: [u8; 7],
    version: U64,
    value: U64,
}

impl Reply {
    pub(super) fn new(outcome: Outcome) -> Reply {
        let (number, version, value) = match outcome {
            Outcome::Unknown => (0, Version::NONE, 0),
            Outcome::Found(version, value) => (1, version, value),
            Outcome::Absent => (2, Version::NONE, 0),
            Outcome::Done(version, value) => (3, version, value),
            Outcome::Deleted(version) => (4, version, 0),
            Outcome::Refused(version) => (5, version, 0),
        };
        let (version, value) = (version.0.into(), value.into());
        Reply { outcome: number, zero: [0; 7], version, value }
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        let (version, value) = (Version(self.version.get()), self.value.get());
        match self.outcome {
            1 => Some(Outcome::Found(version, value)),
            2 => Some(Outcome::Absent),
            3 => Some(Outcome::Done(version, value)),
            4 => Some(Outcome::Deleted(version)),
            5 => Some(Outcome::Refused(version)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_survive_encoding() {
        let identity =
            Identity { client: 1.into(), sequence: 2.into(), first_unacknowledged: 2.into() };
        let condition = Condition::VersionIs(Version(9));
        for action in [
            Action::Write { value: 7, condition },
            Action::Delete { condition: Condition::Absent },
            Action::Increment { by: 3 },
        ] {
            assert_eq!(Update::new(identity, 5, action).action(), Some(action));
        }
        assert_eq!(Update::new(identity, 5, Action::Read).action(), None);
        for outcome in [
            Outcome::Found(Version(1), 2),
            Outcome::Absent,
            Outcome::Done(Version(3), 4),
            Outcome::Deleted(Version(5)),
            Outcome::Refused(Version::NONE),
        ] {
            assert_eq!(Reply::new(outcome).outcome(), Some(outcome));
        }
        assert_eq!(Reply::read_from_bytes(&[9; 24]).unwrap().outcome(), None);
    }
}
