//! The disk of a simulated machine.
//!
//! It outlives the processes of its machine. Each file has three parts: its contents as programs
//! see them, its durable contents, and the writes in between. A crash of a *process* loses nothing.
//! When the *power* fails, each sector of each unsynced write is kept or lost by itself, so writes
//! are torn and reordered. Changes of names are durable when they return without an error.
//!
//! Faults: a full disk; a slow one; flipped bits; sectors that stay unreadable; and operations that
//! fail:
//!
//! - a write, after any part of it was done;
//! - a sync, after any part of the unsynced data became durable. The rest never will: no later sync
//!   covers it. Whether it can still be read is drawn too, and may change when the process
//!   restarts;
//! - a change of a name, which may have been done nevertheless, for good or until the power fails.
//!
//! A machine may also be made to stop at its nth operation, which may then have been done in part.
//! From then on no write reaches the disk.

mod bytes;
mod sectors;
#[cfg(test)]
mod tests;

use crate::files::{FileId, Files, Piece, check_name};
use crate::random::Random;
use crate::sim::trace::{fold, hash};
use bytes::Bytes;
use sectors::Sectors;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

pub use sectors::Unreadable;

/// The unit that is written whole or not at all.
const SECTOR: usize = 512;

/// The behaviour of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskModel {
    /// The time of each operation.
    pub operation: Duration,
    /// The additional time of a sync.
    pub sync: Duration,
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// Bytes of all files together.
    pub capacity: u64,
    /// The probability that an operation fails.
    pub failure: f64,
}

impl Default for DiskModel {
    fn default() -> Self {
        DiskModel {
            operation: Duration::from_micros(10),
            sync: Duration::from_micros(150),
            bytes_per_second: 2_000_000_000,
            capacity: 1 << 40,
            failure: 0.0,
        }
    }
}

/// A machine's disk. Clones are handles to the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk(Rc<RefCell<State>>);

/// Files by their names.
type Names = BTreeMap<String, Rc<RefCell<Content>>>;

#[derive(Debug)]
struct State {
    model: DiskModel,
    files: Names,
    /// The names that remain when the power fails.
    durable_names: Names,
    random: Random,
    /// A digest of all writes ever.
    digest: u64,
    /// The time of the operations since the last [`SimDisk::take_spent`].
    spent: Duration,
    operations: u64,
    stops_at: Option<u64>,
}

#[derive(Debug, Default)]
struct Content {
    seen: Bytes,
    durable: Bytes,
    unsynced: Vec<Change>,
    /// A sync has failed: parts of `seen` may never have been stored.
    is_doubtful: bool,
    /// The sectors that the disk cannot read.
    sectors: Sectors,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

impl Content {
    fn change(&mut self, change: Change) {
        apply(&mut self.seen, &change);
        self.unsynced.push(change);
    }

    /// Makes each unsynced piece durable with a probability; the other pieces are lost for good.
    fn settle(&mut self, kept: f64, random: &mut Random) {
        for change in std::mem::take(&mut self.unsynced) {
            for piece in change.pieces() {
                if random.chance(kept) {
                    apply(&mut self.durable, &piece);
                }
            }
        }
    }

    /// Shows only the durable contents and the pending writes from now on.
    fn forget_cache(&mut self) {
        self.seen.clone_from(&self.durable);
        for change in &self.unsynced {
            apply(&mut self.seen, change);
        }
        self.is_doubtful = false;
    }
}

impl Change {
    /// Returns the parts that are kept or lost by themselves.
    fn pieces(self) -> Vec<Change> {
        let Change::Write { offset, bytes } = self else { return vec![self] };
        let first = (SECTOR - offset % SECTOR).min(bytes.len());
        let (head, rest) = bytes.split_at(first);
        let mut at = offset;
        std::iter::once(head)
            .chain(rest.chunks(SECTOR))
            .map(|sector| {
                let piece = Change::Write { offset: at, bytes: sector.to_vec() };
                at += sector.len();
                piece
            })
            .collect()
    }
}

/// Draws a probability that a piece is kept; often 0 or 1.
fn share(random: &mut Random) -> f64 {
    match random.below(3) {
        0 => 0.0,
        1 => 1.0,
        _ => random.fraction(),
    }
}

fn apply(content: &mut Bytes, change: &Change) {
    match change {
        Change::Length(length) => content.resize(*length),
        Change::Write { offset, bytes } => content.write(*offset, bytes),
    }
}

impl SimDisk {
    /// Returns an empty disk.
    #[must_use]
    pub fn new(model: DiskModel, random: Random) -> SimDisk {
        SimDisk(Rc::new(RefCell::new(State {
            model,
            files: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            random,
            digest: 0,
            spent: Duration::ZERO,
            operations: 0,
            stops_at: None,
        })))
    }

    /// Returns the files as a process uses them, none of them open.
    #[must_use]
    pub fn files(&self) -> SimFiles {
        SimFiles { disk: self.clone(), open: BTreeMap::new(), count: 0 }
    }

    /// Changes its behaviour from now on.
    pub fn set_model(&self, model: DiskModel) {
        self.0.borrow_mut().model = model;
    }

    /// Returns its behaviour.
    #[must_use]
    pub fn model(&self) -> DiskModel {
        self.0.borrow().model
    }

    /// Makes the machine stop at the nth operation from now on.
    pub fn stop_after(&self, operations: u64) {
        let mut state = self.0.borrow_mut();
        state.stops_at = Some(state.operations + operations);
    }

    /// Cancels every planned stop of the machine.
    pub fn keep_running(&self) {
        self.0.borrow_mut().stops_at = None;
    }

    /// Whether the machine has stopped in an operation.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        let state = self.0.borrow();
        state.stops_at.is_some_and(|at| state.operations >= at)
    }

    /// Restarts the machine after a crash of the process. Nothing is lost, except that a file whose
    /// sync has failed may no longer show its unstored parts.
    pub fn restart(&self) {
        let mut state = self.0.borrow_mut();
        state.stops_at = None;
        let State { files, random, .. } = &mut *state;
        for content in files.values() {
            let mut content = content.borrow_mut();
            if content.is_doubtful && random.chance(0.5) {
                content.forget_cache();
            }
        }
    }

    /// Fails the power: each unsynced sector is lost with a probability that is drawn anew, often 0
    /// or 1.
    pub fn lose_power(&self) {
        let mut state = self.0.borrow_mut();
        let State { files, durable_names, random, .. } = &mut *state;
        files.clone_from(durable_names);
        let kept = share(random);
        for content in files.values() {
            let mut content = content.borrow_mut();
            content.settle(kept, random);
            content.forget_cache();
        }
        state.stops_at = None;
    }

    /// Returns a number that two disks share only if they had the same writes and have the same
    /// files.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let state = self.0.borrow();
        let mut digest = state.digest;
        for (name, content) in state.files.iter().chain(&state.durable_names) {
            let content = content.borrow();
            for number in [hash(name.as_bytes()), content.seen.digest(), content.durable.digest()] {
                digest = fold(digest, number);
            }
        }
        digest
    }

    /// Returns a number that two disks share only if they had the same writes.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.0.borrow().digest
    }

    /// Flips a stored bit. Returns false if no data is stored.
    pub fn rot(&self) -> bool {
        let mut state = self.0.borrow_mut();
        let State { files, random, .. } = &mut *state;
        let contents: Vec<_> =
            files.values().filter(|file| file.borrow().durable.len() > 0).collect();
        let Some(content) = random.pick(&contents) else { return false };
        let Content { seen, durable, .. } = &mut *content.borrow_mut();
        let at = random.below(durable.len() as u64) as usize;
        let bit = 1 << random.below(8);
        durable.flip(at, bit);
        seen.flip(at, bit);
        true
    }

    /// Makes the sector at an offset of a file unreadable. Returns false if it does not exist.
    pub fn spoil(&self, name: &str, offset: u64, how: Unreadable) -> bool {
        let state = self.0.borrow();
        let Some(content) = state.files.get(name) else { return false };
        let mut content = content.borrow_mut();
        let is_there = offset < content.seen.len() as u64;
        if is_there {
            content.sectors.spoil(offset as usize, how);
        }
        is_there
    }

    /// Returns the time of the operations since the last call.
    #[must_use]
    pub fn take_spent(&self) -> Duration {
        std::mem::take(&mut self.0.borrow_mut().spent)
    }

    /// Returns the number of operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.0.borrow().operations
    }
}

impl State {
    fn check_running(&self) -> io::Result<()> {
        if self.stops_at.is_some_and(|at| self.operations >= at) {
            return Err(io::Error::other("the machine has stopped"));
        }
        Ok(())
    }

    /// Counts an operation. Returns whether it goes ahead.
    fn begin(&mut self, bytes: usize, sync: bool) -> io::Result<()> {
        self.check_running()?;
        self.operations += 1;
        self.check_running()?;
        let DiskModel { operation, sync: synced, bytes_per_second, failure, .. } = self.model;
        self.spent += operation;
        self.spent += Duration::from_nanos(bytes as u64 * 1_000_000_000 / bytes_per_second.max(1));
        if sync {
            self.spent += synced;
        }
        if failure > 0.0 && self.random.chance(failure) {
            return Err(rustix::io::Errno::IO.into());
        }
        Ok(())
    }

    /// Returns the number of bytes by which files may grow.
    fn room(&self) -> usize {
        let used: usize = self.files.values().map(|file| file.borrow().seen.len()).sum();
        usize::try_from(self.model.capacity).unwrap_or(usize::MAX).saturating_sub(used)
    }

    /// Changes names. A failed change may have been done nevertheless, for good or until the power
    /// fails.
    fn change_names(
        &mut self,
        begun: io::Result<()>,
        change: impl Fn(&mut Names),
    ) -> io::Result<()> {
        let is_done = begun.is_ok() || self.random.chance(0.5);
        if is_done {
            change(&mut self.files);
        }
        if begun.is_ok() || is_done && self.random.chance(0.5) {
            change(&mut self.durable_names);
        }
        begun
    }

    /// Adds a write to the digest of all writes.
    fn note(&mut self, file: FileId, offset: u64, bytes: &[u8]) {
        for number in [u64::from(file.0), offset, hash(bytes)] {
            self.digest = fold(self.digest, number);
        }
    }
}

/// The files of a simulated disk, as one process or worker uses them.
#[derive(Debug)]
pub struct SimFiles {
    disk: SimDisk,
    open: BTreeMap<FileId, Rc<RefCell<Content>>>,
    count: u32,
}

impl SimFiles {
    fn content(&self, file: FileId) -> io::Result<Rc<RefCell<Content>>> {
        self.open.get(&file).cloned().ok_or_else(|| io::Error::other("the file is not open"))
    }
}

/// Gives a file this name and no other.
fn put(names: &mut Names, name: &str, content: &Rc<RefCell<Content>>) {
    names.retain(|_, other| !Rc::ptr_eq(other, content));
    names.insert(name.to_owned(), Rc::clone(content));
}

fn not_found() -> io::Error {
    rustix::io::Errno::NOENT.into()
}

impl Files for SimFiles {
    fn open(&mut self, name: &str, create: bool) -> io::Result<FileId> {
        check_name(name)?;
        let mut state = self.disk.0.borrow_mut();
        state.check_running()?;
        let begun = state.begin(0, false);
        let found = state.files.get(name).cloned();
        let content = match found {
            found if create => {
                let content = found.unwrap_or_default();
                state.change_names(begun, |names| put(names, name, &content))?;
                content
            }
            found => begun.and(found.ok_or_else(not_found))?,
        };
        let id = FileId(self.count);
        self.count += 1;
        self.open.insert(id, content);
        Ok(id)
    }

    fn close(&mut self, file: FileId) {
        self.open.remove(&file);
    }

    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.disk.0.borrow_mut().begin(into.len(), false)?;
        let content = self.content(file)?;
        let content = content.borrow();
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if !content.sectors.can_read(offset..offset.saturating_add(into.len())) {
            return Err(rustix::io::Errno::IO.into());
        }
        Ok(content.seen.read(offset, into))
    }

    fn write_at(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let content = self.content(file)?;
        let offset = offset as usize;
        let mut state = self.disk.0.borrow_mut();
        let room_left = state.room();
        state.check_running()?;
        state.note(file, offset as u64, bytes);
        let begun = state.begin(bytes.len(), false);
        let mut content = content.borrow_mut();
        let room = content.seen.len().saturating_add(room_left).saturating_sub(offset);
        if room < bytes.len() {
            // A full disk takes the first part of a write.
            if room > 0 {
                content.change(Change::Write { offset, bytes: bytes[..room].to_vec() });
            }
            return begun.and(Err(rustix::io::Errno::NOSPC.into()));
        }
        let change = Change::Write { offset, bytes: bytes.to_vec() };
        if !content.sectors.write(offset..offset + bytes.len()) {
            return Err(rustix::io::Errno::IO.into());
        }
        if begun.is_ok() {
            content.change(change);
            return Ok(());
        }
        // A failed write leaves any part of it.
        let kept = share(&mut state.random);
        for piece in change.pieces() {
            if state.random.chance(kept) {
                content.change(piece);
            }
        }
        begun
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        let content = self.content(file)?;
        let mut state = self.disk.0.borrow_mut();
        state.check_running()?;
        let begun = state.begin(0, true);
        let mut content = content.borrow_mut();
        if begun.is_ok() {
            let Content { durable, unsynced, .. } = &mut *content;
            for change in unsynced.drain(..) {
                apply(durable, &change);
            }
        } else {
            let kept = share(&mut state.random);
            content.settle(kept, &mut state.random);
            content.is_doubtful = true;
            if state.random.chance(0.5) {
                content.forget_cache();
            }
        }
        begun
    }

    fn length(&mut self, file: FileId) -> io::Result<u64> {
        Ok(self.content(file)?.borrow().seen.len() as u64)
    }

    fn set_length(&mut self, file: FileId, length: u64) -> io::Result<()> {
        let content = self.content(file)?;
        let mut state = self.disk.0.borrow_mut();
        state.check_running()?;
        state.note(file, length, &[]);
        let begun = state.begin(0, false);
        let room = state.room();
        let mut content = content.borrow_mut();
        if (length as usize).saturating_sub(content.seen.len()) > room {
            return begun.and(Err(rustix::io::Errno::NOSPC.into()));
        }
        if begun.is_ok() || state.random.chance(0.5) {
            content.change(Change::Length(length as usize));
        }
        begun
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        check_name(to)?;
        let mut state = self.disk.0.borrow_mut();
        state.check_running()?;
        let content = state.files.get(from).cloned().ok_or_else(not_found)?;
        let begun = state.begin(0, false);
        state.change_names(begun, |names| {
            names.remove(from);
            put(names, to, &content);
        })
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.disk.0.borrow_mut();
        state.check_running()?;
        if !state.files.contains_key(name) {
            return Err(not_found());
        }
        let begun = state.begin(0, false);
        state.change_names(begun, |names| drop(names.remove(name)))
    }

    fn list(&mut self) -> io::Result<Vec<String>> {
        let mut state = self.disk.0.borrow_mut();
        state.begin(0, false)?;
        Ok(state.files.keys().cloned().collect())
    }

    /// Writes the pieces in any order, as a disk does.
    fn write_together(&mut self, file: FileId, pieces: &[Piece<'_>]) -> Vec<io::Result<()>> {
        let mut results: Vec<_> = pieces.iter().map(|_| Ok(())).collect();
        let mut left: Vec<usize> = (0..pieces.len()).collect();
        while let Some(last) = left.len().checked_sub(1) {
            let next = match last {
                0 => 0,
                _ => self.disk.0.borrow_mut().random.below(last as u64 + 1) as usize,
            };
            let number = left.swap_remove(next);
            results[number] = pieces[number].write(self, file);
        }
        results
    }
}
