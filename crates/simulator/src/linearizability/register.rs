//! The state of one key, as far as the answers reveal it, and the effect of each operation on it.
//!
//! It is separate from the search so that the rules of the register are in one place.

use super::{Action, Condition, Operation, Outcome, TEXT, Version};
use std::fmt;

/// A key's state. A version that no answer contains is known only by its lower bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// No new object can get a version up to this one.
    last: Version,
    live: Option<LiveObject>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LiveObject {
    /// Its version, which then equals `last`; `None` if it is only known to be above `last`.
    version: Option<Version>,
    value: u64,
}

/// The state that an operation requires before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Absence,
    Presence,
    /// Exactly this version, which is never [`Version::NONE`].
    Version(Version),
}

/// Whether an operation with this outcome changes nothing.
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

/// Whether the outcome can be an answer to the action at all.
pub(super) fn answers<K>(operation: &Operation<K>) -> bool {
    match (operation.action, operation.outcome) {
        (_, Outcome::Unknown) | (Action::Read, Outcome::Absent) => true,
        (Action::Read, Outcome::Found(version, _))
        | (Action::Increment { .. }, Outcome::Done(version, _)) => version != Version::NONE,
        (Action::Write { value, .. }, Outcome::Done(version, now)) => {
            version != Version::NONE && value == now
        }
        (Action::Delete { condition }, Outcome::Deleted(version)) => {
            version != Version::NONE && holds(condition, version)
        }
        (Action::Delete { condition }, Outcome::Absent) => holds(condition, Version::NONE),
        (Action::Write { condition, .. } | Action::Delete { condition }, Outcome::Refused(at)) => {
            !holds(condition, at)
        }
        (Action::Increment { .. }, Outcome::Refused(at)) => at != Version::NONE,
        _ => false,
    }
}

/// Returns the state that an operation with its outcome requires before it.
pub(super) fn needs(action: Action, outcome: Outcome) -> Need {
    let condition = match (outcome, action) {
        (Outcome::Absent | Outcome::Refused(Version::NONE), _) => Condition::Absent,
        (Outcome::Found(version, _) | Outcome::Deleted(version), _)
        | (Outcome::Refused(version), _) => Condition::VersionIs(version),
        (_, Action::Write { condition, .. } | Action::Delete { condition }) => condition,
        (_, Action::Read | Action::Increment { .. }) => Condition::Always,
    };
    match condition {
        Condition::Always => Need::Nothing,
        Condition::Absent | Condition::VersionIs(Version::NONE) => Need::Absence,
        Condition::Present => Need::Presence,
        Condition::VersionIs(version) => Need::Version(version),
    }
}

/// Returns an update in normal form, so that updates of equal effect are equal, or `None` if it
/// never has an effect.
pub(super) fn effect(action: Action) -> Option<Action> {
    let nothing = Condition::VersionIs(Version::NONE);
    match action {
        Action::Read => None,
        Action::Write { value, condition } if condition == nothing => {
            Some(Action::Write { value, condition: Condition::Absent })
        }
        Action::Delete { condition } if condition == nothing => None,
        Action::Delete { condition: Condition::Absent } => None,
        Action::Delete { condition: Condition::Always } => {
            Some(Action::Delete { condition: Condition::Present })
        }
        Action::Write { .. } | Action::Delete { .. } | Action::Increment { .. } => Some(action),
    }
}

impl State {
    /// Returns the state after an operation with its outcome, if it can happen now. An unknown
    /// outcome means here that the operation changed something; otherwise the state would stay the
    /// same.
    pub(super) fn after(self, action: Action, outcome: Outcome) -> Option<State> {
        let met = self.meeting(needs(action, outcome))?;
        let value = match action {
            Action::Read | Action::Delete { .. } => None,
            Action::Write { value, .. } => Some(value),
            Action::Increment { by } => {
                let is_text = met.value().is_some_and(|value| value & TEXT != 0);
                if is_text != matches!(outcome, Outcome::Refused(_)) {
                    return None;
                }
                Some(met.value().unwrap_or(0).wrapping_add(by))
            }
        };
        match outcome {
            Outcome::Found(_, seen) => (met.value() == Some(seen)).then_some(met),
            Outcome::Absent | Outcome::Refused(_) => Some(met),
            Outcome::Done(version, answered) => {
                let live = Some(LiveObject { version: Some(version), value: answered });
                let fits = value == Some(answered) && version > met.used_up()?;
                fits.then_some(State { last: version, live })
            }
            Outcome::Unknown if value.is_some() => {
                let live = value.map(|value| LiveObject { version: None, value });
                Some(State { last: met.used_up()?, live })
            }
            Outcome::Deleted(_) | Outcome::Unknown => {
                met.live?;
                Some(State { last: met.used_up()?, live: None })
            }
        }
    }

    /// Returns the state if it meets the requirement, refined by the requirement.
    pub(super) fn meeting(self, need: Need) -> Option<State> {
        match (need, self.live) {
            (Need::Nothing, _) | (Need::Absence, None) | (Need::Presence, Some(_)) => Some(self),
            (Need::Version(version), Some(LiveObject { version: Some(known), .. })) => {
                (known == version).then_some(self)
            }
            (Need::Version(version), Some(LiveObject { version: None, value })) => {
                let live = Some(LiveObject { version: Some(version), value });
                (version > self.last).then_some(State { last: version, live })
            }
            (Need::Absence, Some(_)) | (Need::Presence | Need::Version(_), None) => None,
        }
    }

    /// Returns the value, if the key exists.
    pub(super) fn value(self) -> Option<u64> {
        self.live.map(|live| live.value)
    }

    pub(super) fn is_absent(self) -> bool {
        self.live.is_none()
    }

    /// Returns the version up to which no new one can be given; an existing object may have a
    /// higher one.
    pub(super) fn last(self) -> Version {
        self.last
    }

    /// Returns the version above which new ones begin. An unknown version of a live object is used
    /// up too. Returns `None` if there is no such version.
    fn used_up(self) -> Option<Version> {
        match self.live {
            Some(LiveObject { version: None, .. }) => self.last.0.checked_add(1).map(Version),
            _ => Some(self.last),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.live {
            None if self.last == Version::NONE => write!(f, "absent from the beginning"),
            None => write!(f, "absent, after {}", self.last),
            Some(LiveObject { version: Some(version), value }) => write!(f, "{value} at {version}"),
            Some(LiveObject { version: None, value }) => {
                write!(f, "{value} at an unknown version above {}", self.last)
            }
        }
    }
}
