//! Rebuilds tablets from segments, whole or torn, in any order. Recovery is made of this. What it
//! promises is with [`Replay`]; this is how.
//!
//! Every record is compared with what is known of its key so far, and the newest wins:
//!
//! - an object is taken in if no object and no tombstone of its version or a later one is known;
//! - a tombstone kills what it must and is remembered until the end, for the object that it kills
//!   may come later.
//!
//! What is taken in is appended to the new log as any write is, with its own version, so the new
//! log's records name the new log's segments and its tombstones are complete (an object that is
//! taken in and killed afterwards gets a tombstone there). Replaying a segment twice, or after an
//! error replaying it again, changes nothing.
//!
//! Tombstones that are only remembered live in seglets and an index of their own, not in the log,
//! and are gone when the replay is finished or dropped.
//!
//! [`Rebuild`] does it piece by piece, [`Replay`] segment by segment; they are the same.
//!
//! A tablet gives the position at which its former master took it over; entries born earlier are
//! of a former life of the tablet and are passed over.

mod rebuild;
mod remembered;

pub use rebuild::{Abandoned, Adopted, Arrived, Incoming, Rebuild};

use crate::error::{Damage, Error};
use crate::log::Log;
use thunderhead_wire::{SegmentId, TabletRange};

/// Rebuilds tablets in a log from the segments of another one, whole or torn, in any order.
///
/// # What it promises
///
/// Of each key the newest version counts, be it an object or a tombstone, in whichever order the
/// segments come. So after all of them the tablets hold what they held when the last durable byte
/// was appended, under the same versions, and nothing that was deleted. Replaying a segment twice,
/// or again after an error, changes nothing. Entries that fail their checksum are reported and
/// passed over, and never taken for something else. What is rebuilt is appended to the new log as
/// any write is, with tombstones where they are needed, so the new log stands on its own once it is
/// durable up to [`Log::appended`] after [`Replay::finish`].
///
/// A tablet gives the segment at which its former owner took it over ([`Log::tablets`]); entries
/// born earlier belong to a former life of it and are passed over.
///
/// # What the caller must see to
///
/// **That the segments are complete.** A replay cannot miss what it was never shown. The segments
/// that belong to a log are those that the last digest of its newest open head names
/// (`docs/format.md`), and all of them must be there:
///
/// - Read the copies with [`SegmentReader`]. The newest open head is the one with the highest id
///   among the segments whose header says [`SegmentKind::Head`] or [`SegmentKind::EmergencyHead`],
///   that hold a digest and that were not closed; whether a segment was closed is for the
///   [`Replicator`](crate::Replicator) to remember. Its last [`Entry::Digest`] lists the ids.
/// - Each of them must be among the copies, with all the bytes that were durable: a closed one with
///   the length that `closed` told. Only the open head may end in the midst of an entry
///   ([`Damage::Torn`]): that one was not durable.
/// - Use another copy of a segment that is refused or that [`Report::damage`] names. Segments that
///   the digest does not name must stay out.
///
/// **That an unfinished replay is not used.** The tablets live in the log from [`Replay::new`] on,
/// and stay, half filled, when the replay is dropped before its end. To give up, drop the `Replay`
/// and then its tablets ([`Log::drop_tablet`]). Completion records that came with them stay; a new
/// replay finds and keeps them, and where there will be none they are to be forgotten one by one
/// ([`Log::forget_completion`]). Where the log was made for the replay, drop it as a whole.
///
/// [`SegmentReader`]: crate::inspect::SegmentReader
/// [`Entry::Digest`]: crate::inspect::Entry::Digest
/// [`SegmentKind::Head`]: crate::SegmentKind::Head
/// [`SegmentKind::EmergencyHead`]: crate::SegmentKind::EmergencyHead
pub struct Replay<'a> {
    log: &'a mut Log,
    rebuild: Rebuild,
}

/// What a replay has seen and done.
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
    /// Entries that belong to no tablet that is being rebuilt.
    pub elsewhere: u64,
    /// Objects taken in; some may have been killed or replaced later.
    pub taken: u64,
    /// What was damaged, with the segment that it was in.
    pub damage: Vec<(SegmentId, Damage)>,
}

/// Why a segment could not be replayed to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The segment as a whole is unusable; use another replica.
    #[error("the segment cannot be used: {0}")]
    Damaged(#[from] Damage),
    /// The new log cannot go on. With [`Error::CleanerBehind`] it has no room at this moment:
    /// replay the segment again once the cleaners have run. With [`Error::MemoryFull`] its memory
    /// is too small for what is alive, and trying again does not help.
    #[error("the log that is being rebuilt cannot go on: {0}")]
    Log(#[from] Error),
}

impl<'a> Replay<'a> {
    /// Begins to rebuild tablets in a log where they do not live yet. Each comes with the
    /// segment from which on its entries count. From now on the tablets live there, however the
    /// replay ends: to give it up, drop them.
    ///
    /// # Errors
    /// When one of the tablets already lives there, or there is no memory.
    pub fn new(
        log: &'a mut Log,
        tablets: impl IntoIterator<Item = (TabletRange, SegmentId)>,
    ) -> Result<Replay<'a>, Error> {
        let rebuild = Rebuild::begin(log, tablets)?;
        Ok(Replay { log, rebuild })
    }

    /// Replays one segment.
    ///
    /// Damage inside the segment is reported in [`Report::damage`]; everything that is intact is
    /// used.
    ///
    /// # Errors
    /// When the segment has no usable header, belongs to another log than the ones before, or
    /// holds what this version must understand and does not: nothing that was rebuilt may be used
    /// in the last case. When an entry is too long for the new log's segments. When the log is
    /// out of memory at this moment ([`Error::CleanerBehind`]); the same segment may then be
    /// replayed again. Or when its memory is too small ([`Error::MemoryFull`]).
    pub fn segment(&mut self, bytes: &[u8]) -> Result<(), ReplayError> {
        let mut at = Some(0);
        while let Some(from) = at {
            at = self.rebuild.step(self.log, bytes, from, usize::MAX, usize::MAX)?;
        }
        Ok(())
    }

    /// Ends the replay: what it learnt of versions that must not come again is logged. The old
    /// segments may go once the log is durable up to [`Log::appended`].
    ///
    /// # Errors
    /// [`Error::CleanerBehind`]: try again shortly.
    pub fn finish(&mut self) -> Result<Report, Error> {
        self.rebuild.finish(self.log)
    }
}
