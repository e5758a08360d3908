//! Checks a store offline: reports the contents of every frame, and whether they are as they were
//! written. Never writes; refuses a store that is in use.

use crate::error::{OpenError, ReadError};
use crate::layout::{
    CountedHeader, FrameNumber, Header, JudgedFrame, ReplicaId, Superblock, judge,
};
use crate::pool::Pool;
use crate::reader::{SpareBuffers, read_data};
use crate::start::{counted_rounds, of_another_user, read_headers, read_superblock};
use std::io;
use thunderhead_runtime::files::{Files, Opening};
use thunderhead_runtime::lasting::{Memories, WrongOwner};
use thunderhead_wire::Epoch;

/// The contents of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing.
    Free,
    /// Its header cannot be read.
    HeaderDamaged,
    /// A replica.
    Replica {
        /// The replica's master and segment.
        id: ReplicaId,
        /// Its segment's epoch.
        epoch: Epoch,
        /// It is complete; otherwise it belongs to a head that was open.
        closed: bool,
        /// It counts; otherwise it is an unfinished copy.
        committed: bool,
        /// Its bytes.
        length: u32,
        /// The damage of its bytes, if any.
        damage: Option<ReadError>,
    },
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameReport {
    /// Its number.
    pub frame: FrameNumber,
    /// Its contents.
    pub content: Content,
    /// One of its header's slots was being written when the power failed. Nothing is lost by it.
    pub torn: bool,
    /// The older of its header's slots is damaged. Nothing is lost by it.
    pub spare_damaged: bool,
}

impl FrameReport {
    /// Whether part of it is lost.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        match &self.content {
            Content::Free => false,
            Content::HeaderDamaged => true,
            Content::Replica { damage, .. } => damage.is_some(),
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// The superblock of the file.
    pub superblock: Superblock,
    /// Every frame.
    pub frames: Vec<FrameReport>,
    /// The number of replicas that a killed server has left in memory, which the next start brings
    /// to the disk; or the reason why that memory cannot be read.
    pub in_memory: Result<u32, String>,
}

impl Report {
    /// Returns the number of frames of which part is lost.
    #[must_use]
    pub fn damaged(&self) -> usize {
        self.frames.iter().filter(|frame| frame.is_damaged()).count()
    }
}

/// Checks the store of a directory; `progress` gets the number of checked frames and of all
/// frames.
///
/// # Errors
/// If there is none, it is in use, or it cannot be read at all.
pub fn check(
    files: &mut dyn Files,
    memories: &mut dyn Memories,
    name: &str,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Report, OpenError> {
    let names = files.list()?;
    if !files.find(name)? {
        return Err(OpenError::Io(io::Error::new(
            io::ErrorKind::NotFound,
            format!("there is no {name} here"),
        )));
    }
    // Without a lock file no server has ever used the store. Making one would be a write.
    let lock = format!("{name}.lock");
    let _held = match names.contains(&lock).then(|| files.lock(&lock)).transpose() {
        Ok(held) => held,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(OpenError::InUse),
        Err(error) => return Err(error.into()),
    };
    let how = Opening { read_only: true, direct: true, ..Opening::default() };
    let file = files.open_with(name, how)?;
    let superblock = read_superblock(files, file)?;
    let headers = read_headers(files, file, &superblock, true)?;
    let counting = counted_rounds(files, file, &superblock, &headers)?;
    let total = superblock.geometry.frames;
    let mut frames = Vec::with_capacity(headers.len());
    let spare = SpareBuffers::default();
    for (number, slots) in headers.into_iter().enumerate() {
        let frame = FrameNumber::of_index(number);
        let JudgedFrame { newest, torn, damaged, .. } = judge(slots, &counting);
        let content = match newest {
            None => Content::HeaderDamaged,
            Some(CountedHeader { header: Header::Free, .. }) => Content::Free,
            Some(CountedHeader { header: Header::Used(used), .. }) => Content::Replica {
                id: used.id,
                epoch: used.epoch,
                closed: used.closed,
                committed: used.committed,
                length: used.length,
                damage: read_data(files, file, &superblock, frame, spare.replica(used)).err(),
            },
        };
        frames.push(FrameReport { frame, content, torn, spare_damaged: damaged });
        progress(frame.0 + 1, total);
    }
    files.close(file);
    // If another process has the buffers, the files checked here are a copy of that process's
    // files.
    let owner = files.owner(name)?;
    let pool = Pool::find(memories, &superblock);
    let pool = pool.map_err(|error| match WrongOwner::of(&error) {
        Some(other) => of_another_user(other.clone(), owner).to_string(),
        None => error.to_string(),
    });
    // The others are unfinished copies and freed replicas.
    let count = |pool: Pool| pool.claims().filter(|it| it.used.committed).count() as u32;
    let in_memory = pool.map(|pool| pool.map_or(0, count));
    Ok(Report { superblock, frames, in_memory })
}
