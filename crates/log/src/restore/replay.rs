//! Rebuilds tablets from segments, whole or torn, in any order. Recovery consists of this. The
//! promises are with [`Replay`]; this page says how they are kept.
//!
//! Every record is compared with the newest known record of its key, and the newest wins:
//!
//! - an object is taken in if no object and no tombstone of its version or a later one is known;
//! - a tombstone kills the older versions that are known, and is remembered until the end, because
//!   other versions that it kills may come later.
//!
//! An object that is taken in is appended to the new log as any write is, with its own version. So
//! the new log's records name the new log's segments, and its tombstones are complete (an object
//! that is taken in and killed afterwards gets a tombstone there). Replaying a segment twice, or
//! replaying it again after an error, changes nothing.
//!
//! Remembered tombstones live in seglets and an index of their own, not in the log, and are freed
//! when the replay is finished or dropped.
//!
//! [`Rebuild`] replays piece by piece, [`Replay`] segment by segment; the result is the same.
//!
//! A tablet comes with the position at which its former master took it over. Entries born earlier
//! belong to a former stay of the tablet in that log and are skipped.

use super::Rebuild;
use crate::append::Log;
use crate::error::{Damage, Error};
use thunderhead_wire::{SegmentId, TabletRange};

/// Rebuilds tablets in a log from the segments of another one, whole or torn, in any order.
///
/// # The promises
///
/// The newest version of each key counts, whether it is an object or a tombstone, in any order of
/// the segments. So after all of them the tablets hold exactly the objects that they held when the
/// last durable byte was appended, under the same versions. Replaying a segment twice, or again
/// after an error, changes nothing. Entries that fail their checksum are reported and skipped, and
/// never taken for other entries. Rebuilt objects are appended to the new log as any write is, with
/// tombstones if they are needed. So the new log stands on its own once it is durable up to
/// [`Log::appended`] after [`Replay::finish`].
///
/// A tablet comes with the segment at which its former owner took it over ([`Log::tablets`]).
/// Entries born earlier belong to a former stay of the tablet in that log and are skipped.
///
/// # The caller's duties
///
/// **Give it complete segments.** A replay cannot notice a segment that it was never given. The
/// segments of a log are those in the last digest of its newest open head (`docs/format.md`), and
/// all of them must be there:
///
/// - Read the copies with [`SegmentReader`]. The newest open head is the segment with the highest
///   id whose header says [`SegmentKind::Head`] or [`SegmentKind::EmergencyHead`], which holds a
///   digest and was not closed. The [`Replicator`](crate::Replicator) must remember which segments
///   were closed. The head's last [`Entry::Digest`] lists the ids.
/// - Each of these segments must be among the copies, with all the bytes that were durable: a
///   closed segment with the length from the call of `closed`. Only the open head may end inside an
///   entry ([`Damage::Torn`]): that entry was not durable.
/// - Use another copy of a segment that is refused or that [`Report::damage`] names. Leave out
///   segments that the digest does not name.
///
/// **Do not use an unfinished replay.** The tablets exist in the log from [`Replay::new`] on, and
/// stay, half filled, if the replay is dropped before its end. To abandon it, drop the `Replay` and
/// then its tablets ([`Log::drop_tablet`]). Completion records that came with them stay. A new
/// replay finds and keeps them; if there will be none, forget them one by one
/// ([`Log::forget_completion`]). If the log was made for the replay, drop it as a whole.
///
/// [`SegmentReader`]: crate::inspect::SegmentReader
/// [`Entry::Digest`]: crate::inspect::Entry::Digest
/// [`SegmentKind::Head`]: crate::SegmentKind::Head
/// [`SegmentKind::EmergencyHead`]: crate::SegmentKind::EmergencyHead
pub struct Replay<'a> {
    log: &'a mut Log,
    rebuild: Rebuild,
}

/// The work that a replay has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Segments read.
    pub segments: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Objects met.
    pub objects: u64,
    /// Tombstones met.
    pub tombstones: u64,
    /// Completion records met.
    pub completions: u64,
    /// Entries that belong to no tablet in this replay.
    pub elsewhere: u64,
    /// Objects taken in; some may have been killed or replaced later.
    pub taken: u64,
    /// Each damage, with the segment in which it was.
    pub damage: Vec<(SegmentId, Damage)>,
}

/// The reason why a segment could not be replayed to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The segment as a whole is unusable; use another replica.
    #[error("the segment cannot be used: {0}")]
    Damaged(#[from] Damage),
    /// The new log cannot go on. With [`Error::CleanerBehind`] it has no room at this moment:
    /// replay the segment again once the cleaners have run. With [`Error::MemoryFull`] its memory
    /// is too small for the live objects, and trying again does not help.
    #[error("the log that is being rebuilt cannot go on: {0}")]
    Log(#[from] Error),
}

impl<'a> Replay<'a> {
    /// Begins to rebuild tablets in a log that does not hold them yet. Each comes with the segment
    /// from which on its entries count. From now on the log holds the tablets, however the replay
    /// ends: to abandon it, drop them.
    ///
    /// # Errors
    /// When the log already holds one of the tablets, or there is no memory.
    pub fn new(
        log: &'a mut Log,
        tablets: impl IntoIterator<Item = (TabletRange, SegmentId)>,
    ) -> Result<Replay<'a>, Error> {
        let rebuild = Rebuild::begin(log, tablets)?;
        Ok(Replay { log, rebuild })
    }

    /// Replays one segment.
    ///
    /// Damage inside the segment is reported in [`Report::damage`]; all intact entries are used.
    ///
    /// # Errors
    /// When the segment has no usable header, or belongs to another log than the segments before.
    /// When it holds an entry that this version must understand and does not: then no rebuilt
    /// tablet may be used. When an entry is too long for the new log's segments. When the log is
    /// out of memory at this moment ([`Error::CleanerBehind`]); then the same segment may be
    /// replayed again. Or when its memory is too small ([`Error::MemoryFull`]).
    pub fn segment(&mut self, bytes: &[u8]) -> Result<(), ReplayError> {
        let mut at = Some(0);
        while let Some(from) = at {
            at = self.rebuild.step(self.log, bytes, from, usize::MAX, usize::MAX)?;
        }
        Ok(())
    }

    /// Ends the replay and logs its safe version, so that no deleted version is used again. The old
    /// segments may be freed once the log is durable up to [`Log::appended`].
    ///
    /// # Errors
    /// [`Error::CleanerBehind`]: try again shortly.
    pub fn finish(&mut self) -> Result<Report, Error> {
        self.rebuild.finish(self.log)
    }
}
