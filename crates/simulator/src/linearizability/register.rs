//! What one key is, as far as the answers so far tell, and what each operation does to it.

use super::{Action, Condition, Operation, Outcome, Version};
use std::fmt;

/// A key's state. Versions that no answer has told yet are known by their bounds only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// No version up to here can be given to anything any more.
    last: Version,
    live: Option<Live>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Live {
    /// Its version, or nothing when it is only known to be above `last`.
    version: Option<Version>,
    value: u64,
}

/// What an operation requires of the state before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Absence,
    Presence,
    Version(Version),
}

/// Whether an outcome is one that changes nothing.
pub(super) fn only_observes(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Found(..) | Outcome::Absent | Outcome::Refused(_))
}

fn holds(condition: Condition, version: Version) -> bool {
    match condition {
        Condition::Always => true,
        Condition::Absent => version == Version::NONE,
        Condition::Present => version != Version::NONE,
        Condition::VersionIs(expected) => version == expected,
    }
}

/// Whether an outcome can be an answer to an action at all.
pub(super) fn answers<K>(operation: &Operation<K>) -> bool {
    match (operation.action, operation.outcome) {
        (_, Outcome::Unknown) | (Action::Read, Outcome::Absent) => true,
        (Action::Read, Outcome::Found(version, _)) => version != Version::NONE,
        (Action::Write { value, .. }, Outcome::Done(version, now)) => {
            version != Version::NONE && value == now
        }
        (Action::Increment { .. }, Outcome::Done(version, _)) => version != Version::NONE,
        (Action::Delete { condition }, Outcome::Deleted(version)) => {
            version != Version::NONE && holds(condition, version)
        }
        (Action::Delete { condition }, Outcome::Absent) => holds(condition, Version::NONE),
        (Action::Write { condition, .. } | Action::Delete { condition }, Outcome::Refused(at)) => {
            !holds(condition, at)
        }
        _ => false,
    }
}

/// The versions that an operation saw, with their values where it saw those.
pub(super) fn versions_seen<K>(operation: &Operation<K>) -> Vec<(Version, Option<u64>)> {
    let mut seen = Vec::new();
    match operation.outcome {
        Outcome::Found(version, value) => seen.push((version, Some(value))),
        Outcome::Deleted(version) => seen.push((version, None)),
        Outcome::Refused(version) if version != Version::NONE => seen.push((version, None)),
        _ => {}
    }
    if let (Action::Write { condition: Condition::VersionIs(version), .. }, Outcome::Done(..)) =
        (operation.action, operation.outcome)
    {
        seen.push((version, None));
    }
    seen
}

/// What an operation with its outcome requires of the state before it.
pub(super) fn needs(action: Action, outcome: Outcome) -> Need {
    let condition = match action {
        Action::Write { condition, .. } | Action::Delete { condition } => condition,
        Action::Read | Action::Increment { .. } => Condition::Always,
    };
    match outcome {
        Outcome::Found(version, _) | Outcome::Deleted(version) => Need::Version(version),
        Outcome::Absent | Outcome::Refused(Version::NONE) => Need::Absence,
        Outcome::Refused(version) => Need::Version(version),
        Outcome::Done(..) | Outcome::Unknown => match condition {
            Condition::Always => Need::Nothing,
            Condition::Absent => Need::Absence,
            Condition::Present => Need::Presence,
            Condition::VersionIs(version) => Need::Version(version),
        },
    }
}

impl State {
    /// The state after an operation with its outcome, if it can happen now. An unknown outcome
    /// stands for having happened, not for having been refused: that would change nothing.
    pub(super) fn after(self, action: Action, outcome: Outcome) -> Option<State> {
        let met = self.meeting(needs(action, outcome))?;
        let given = match outcome {
            Outcome::Found(_, value) => return met.with_value(value),
            Outcome::Absent | Outcome::Refused(_) => return Some(met),
            Outcome::Deleted(_) => return Some(met.deleted()),
            Outcome::Done(version, _) => Some(version),
            Outcome::Unknown => None,
        };
        let value = match action {
            Action::Read => return Some(met),
            Action::Delete { .. } => return met.live.map(|_| met.deleted()),
            Action::Write { value, .. } => value,
            Action::Increment { by } => met.live.map_or(0, |live| live.value).wrapping_add(by),
        };
        if let Outcome::Done(_, answered) = outcome
            && answered != value
        {
            return None;
        }
        let last = met.deleted().last;
        match given {
            Some(version) if version <= last => None,
            Some(version) => {
                let live = Some(Live { version: Some(version), value });
                Some(State { last: version, live })
            }
            None => Some(State { last, live: Some(Live { version: None, value }) }),
        }
    }

    /// The state if it is as required, with what that tells about it.
    fn meeting(self, need: Need) -> Option<State> {
        match (need, self.live) {
            (Need::Nothing, _) | (Need::Absence, None) | (Need::Presence, Some(_)) => Some(self),
            (Need::Version(version), Some(live)) => match live.version {
                Some(known) => (known == version).then_some(self),
                None if version > self.last => {
                    let live = Some(Live { version: Some(version), ..live });
                    Some(State { last: version, live })
                }
                None => None,
            },
            (Need::Version(version), None) => (version == Version::NONE).then_some(self),
            (Need::Absence, Some(_)) | (Need::Presence, None) => None,
        }
    }

    fn with_value(self, value: u64) -> Option<State> {
        (self.live?.value == value).then_some(self)
    }

    /// The state without the object; a version that nobody was told is used up all the same.
    fn deleted(self) -> State {
        let used = self.live.is_some_and(|live| live.version.is_none());
        State { last: if used { self.last.next() } else { self.last }, live: None }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.live {
            None => write!(f, "absent, after {}", self.last),
            Some(Live { version: Some(version), value }) => write!(f, "{value} at {version}"),
            Some(Live { version: None, value }) => {
                write!(f, "{value} at an unknown version above {}", self.last)
            }
        }
    }
}
