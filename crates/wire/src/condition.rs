//! The conditions under which an operation on an object goes ahead.
//!
//! Versions begin at 1. Version 0, [`Version::NONE`], means that there is no object:
//! [`Condition::VersionIs`] with it holds if the key is absent, just as [`Condition::Absent`] does.

use crate::Version;

/// The condition under which an operation on an object goes ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// Only when the key does not exist.
    Absent,
    /// Only when the key exists.
    Present,
    /// Only when the key has exactly this version. Version 0 ([`Version::NONE`]) means absent: then
    /// it is the same as [`Condition::Absent`].
    VersionIs(Version),
    /// Only when the key has a version below this one, or does not exist.
    VersionBelow(Version),
}

impl Condition {
    /// Whether it holds for an object that has this version now.
    #[inline]
    #[must_use]
    pub fn holds(self, current: Version) -> bool {
        match self {
            Condition::Always => true,
            Condition::Absent => current == Version::NONE,
            Condition::Present => current != Version::NONE,
            Condition::VersionIs(version) => current == version,
            Condition::VersionBelow(version) => current == Version::NONE || current < version,
        }
    }
}
