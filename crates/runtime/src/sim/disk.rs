//! The disk of a simulated machine.
//!
//! It outlives the processes of its machine. Each file is what programs see of it, what is durable
//! of it, and the writes in between. When a *process* dies, nothing is lost. When the *power* goes,
//! each sector of each write that was not synced is kept or lost by itself, so writes are torn and
//! overtake one another. Names are durable at once.
//!
//! Faults: reads, writes and syncs that fail, after which any part of what was to be written may
//! have been; a full disk; a slow one; bits that turn over. A machine may also be made to stop at
//! its nth operation: from there on nothing reaches the disk.

use crate::files::{FileId, Files, check_name};
use crate::random::Random;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// What is written whole or not at all.
const SECTOR: usize = 512;

/// How a disk behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskModel {
    /// What each operation takes.
    pub operation: Duration,
    /// What a sync takes beside.
    pub sync: Duration,
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// Bytes of all files together.
    pub capacity: u64,
    /// How likely an operation fails.
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

/// A machine's disk. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct SimDisk(Rc<RefCell<State>>);

#[derive(Debug)]
struct State {
    model: DiskModel,
    files: BTreeMap<String, Rc<RefCell<Content>>>,
    random: Random,
    /// What the operations since the last [`SimDisk::take_spent`] took.
    spent: Duration,
    operations: u64,
    stops_at: Option<u64>,
}

#[derive(Debug, Default)]
struct Content {
    seen: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
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

    /// The power goes.
    fn lose(&mut self, kept: f64, random: &mut Random) {
        for change in std::mem::take(&mut self.unsynced) {
            match change {
                Change::Length(_) if random.chance(kept) => apply(&mut self.durable, &change),
                Change::Length(_) => {}
                Change::Write { offset, bytes } => {
                    let mut at = 0;
                    while at < bytes.len() {
                        let to = ((offset + at) / SECTOR + 1) * SECTOR - offset;
                        let sector = bytes[at..to.min(bytes.len())].to_vec();
                        if random.chance(kept) {
                            let part = Change::Write { offset: offset + at, bytes: sector };
                            apply(&mut self.durable, &part);
                        }
                        at = to;
                    }
                }
            }
        }
        self.seen.clone_from(&self.durable);
    }
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Length(length) => content.resize(*length, 0),
        Change::Write { offset, bytes } => {
            let end = offset + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*offset..end].copy_from_slice(bytes);
        }
    }
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new(model: DiskModel, random: Random) -> SimDisk {
        SimDisk(Rc::new(RefCell::new(State {
            model,
            files: BTreeMap::new(),
            random,
            spent: Duration::ZERO,
            operations: 0,
            stops_at: None,
        })))
    }

    /// The files as a process uses them, none of them open.
    #[must_use]
    pub fn files(&self) -> SimFiles {
        SimFiles { disk: self.clone(), open: BTreeMap::new(), count: 0 }
    }

    /// How it behaves from now on.
    pub fn set_model(&self, model: DiskModel) {
        self.0.borrow_mut().model = model;
    }

    /// How it behaves.
    #[must_use]
    pub fn model(&self) -> DiskModel {
        self.0.borrow().model
    }

    /// The machine is to stop at the nth operation from now on.
    pub fn stop_after(&self, operations: u64) {
        let mut state = self.0.borrow_mut();
        state.stops_at = Some(state.operations + operations);
    }

    /// Whether the machine has stopped in an operation.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        let state = self.0.borrow();
        state.stops_at.is_some_and(|at| state.operations >= at)
    }

    /// The machine starts again after a crash of the process: nothing is lost.
    pub fn restart(&self) {
        self.0.borrow_mut().stops_at = None;
    }

    /// The power goes: of what was not synced, each sector is lost with some probability that is
    /// drawn for the occasion, often none or all.
    pub fn lose_power(&self) {
        let mut state = self.0.borrow_mut();
        let State { files, random, .. } = &mut *state;
        let kept = match random.below(3) {
            0 => 0.0,
            1 => 1.0,
            _ => random.fraction(),
        };
        for content in files.values() {
            content.borrow_mut().lose(kept, random);
        }
        state.stops_at = None;
    }

    /// Turns over a bit of something that is stored; false when there is nothing.
    pub fn rot(&self) -> bool {
        let mut state = self.0.borrow_mut();
        let State { files, random, .. } = &mut *state;
        let contents: Vec<_> =
            files.values().filter(|file| !file.borrow().durable.is_empty()).collect();
        let Some(content) = random.pick(&contents) else { return false };
        let Content { seen, durable, .. } = &mut *content.borrow_mut();
        let at = random.below(durable.len() as u64) as usize;
        let bit = 1 << random.below(8);
        durable[at] ^= bit;
        if let Some(byte) = seen.get_mut(at) {
            *byte ^= bit;
        }
        true
    }

    /// What the operations since the last call took.
    #[must_use]
    pub fn take_spent(&self) -> Duration {
        std::mem::take(&mut self.0.borrow_mut().spent)
    }

    /// Operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.0.borrow().operations
    }
}

impl State {
    fn is_running(&self) -> io::Result<()> {
        if self.stops_at.is_some_and(|at| self.operations >= at) {
            return Err(io::Error::other("the machine has stopped"));
        }
        Ok(())
    }

    /// Counts an operation; says whether it goes ahead.
    fn begin(&mut self, bytes: usize, sync: bool) -> io::Result<()> {
        self.is_running()?;
        self.operations += 1;
        self.is_running()?;
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

    /// Whether there is room for a file to grow.
    fn has_room(&self, grows_by: usize) -> io::Result<()> {
        let used: usize = self.files.values().map(|file| file.borrow().seen.len()).sum();
        if grows_by > 0 && (used + grows_by) as u64 > self.model.capacity {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        Ok(())
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

fn not_found() -> io::Error {
    rustix::io::Errno::NOENT.into()
}

impl Files for SimFiles {
    fn open(&mut self, name: &str, create: bool) -> io::Result<FileId> {
        check_name(name)?;
        let mut state = self.disk.0.borrow_mut();
        state.begin(0, false)?;
        if create && !state.files.contains_key(name) {
            state.files.insert(name.to_owned(), Rc::default());
        }
        let content = state.files.get(name).cloned().ok_or_else(not_found)?;
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
        let rest = content.seen.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let content = self.content(file)?;
        let offset = offset as usize;
        let mut state = self.disk.0.borrow_mut();
        state.is_running()?;
        let begun = state.begin(bytes.len(), false);
        let grows_by = (offset + bytes.len()).saturating_sub(content.borrow().seen.len());
        if begun.is_ok() {
            state.has_room(grows_by)?;
            content.borrow_mut().change(Change::Write { offset, bytes: bytes.to_vec() });
            return Ok(());
        }
        // What fails half way leaves a beginning.
        let mut part = state.random.below(bytes.len() as u64 + 1) as usize;
        if offset.is_multiple_of(SECTOR) && bytes.len().is_multiple_of(SECTOR) {
            // As direct I/O has it.
            part -= part % SECTOR;
        }
        if part > 0 && state.has_room(grows_by).is_ok() {
            let bytes = bytes[..part].to_vec();
            content.borrow_mut().change(Change::Write { offset, bytes });
        }
        begun
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        let content = self.content(file)?;
        let mut state = self.disk.0.borrow_mut();
        state.is_running()?;
        let begun = state.begin(0, true);
        let State { random, .. } = &mut *state;
        let mut content = content.borrow_mut();
        let Content { durable, unsynced, .. } = &mut *content;
        if begun.is_ok() {
            for change in unsynced.drain(..) {
                apply(durable, &change);
            }
        } else {
            // Some of it has reached the disk; the rest never will, though it can be read.
            for change in unsynced.drain(..) {
                if random.chance(0.5) {
                    apply(durable, &change);
                }
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
        state.begin(0, false)?;
        let grows_by = (length as usize).saturating_sub(content.borrow().seen.len());
        state.has_room(grows_by)?;
        content.borrow_mut().change(Change::Length(length as usize));
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        check_name(to)?;
        let mut state = self.disk.0.borrow_mut();
        state.begin(0, false)?;
        let content = state.files.remove(from).ok_or_else(not_found)?;
        state.files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.disk.0.borrow_mut();
        state.begin(0, false)?;
        state.files.remove(name).map(drop).ok_or_else(not_found)
    }

    fn list(&mut self) -> io::Result<Vec<String>> {
        let mut state = self.disk.0.borrow_mut();
        state.begin(0, false)?;
        Ok(state.files.keys().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(seed: u64) -> SimDisk {
        SimDisk::new(DiskModel::default(), Random::from_seed(seed))
    }

    fn content(disk: &SimDisk, name: &str) -> Vec<u8> {
        let mut files = disk.files();
        let Ok(file) = files.open(name, false) else { return Vec::new() };
        let mut bytes = vec![0; 1 << 16];
        let count = files.read_at(file, 0, &mut bytes).unwrap();
        bytes.truncate(count);
        bytes
    }

    #[test]
    fn what_was_synced_survives_power_loss_and_what_was_not_may_be_torn() {
        let mut torn = 0;
        for seed in 0..100 {
            let disk = disk(seed);
            let mut files = disk.files();
            let file = files.open("journal", true).unwrap();
            files.write_at(file, 0, &[1; 2000]).unwrap();
            files.sync(file).unwrap();
            files.write_at(file, 1000, &[2; 2000]).unwrap();
            disk.lose_power();
            let found = content(&disk, "journal");
            assert_eq!(found[..1000], [1; 1000]);
            let mut new = vec![1; 1000];
            new.extend([2; 2000]);
            let mut old = vec![1; 2000];
            old.resize(found.len(), 0);
            torn += usize::from(found != new && found != old);
            for (at, byte) in found.iter().enumerate().skip(1000) {
                assert!([old[at], new[at]].contains(byte), "byte {at} is {byte}");
            }
        }
        assert!((10..90).contains(&torn), "{torn} of 100 were torn");
    }

    #[test]
    fn a_crash_of_the_process_loses_nothing() {
        let disk = disk(1);
        let mut files = disk.files();
        let file = files.open("journal", true).unwrap();
        files.write_at(file, 0, b"kept").unwrap();
        disk.restart();
        assert_eq!(content(&disk, "journal"), b"kept");
    }

    #[test]
    fn a_machine_that_stops_in_an_operation_does_nothing_more() {
        let disk = disk(3);
        let mut files = disk.files();
        let file = files.open("journal", true).unwrap();
        disk.stop_after(2);
        files.write_at(file, 0, b"one").unwrap();
        assert!(!disk.has_stopped());
        assert!(files.sync(file).is_err());
        assert!(disk.has_stopped());
        assert!(files.write_at(file, 3, b"two").is_err());
    }

    #[test]
    fn faults_are_as_the_model_says() {
        let disk = disk(2);
        let mut files = disk.files();
        let file = files.open("data", true).unwrap();
        disk.set_model(DiskModel { capacity: 10, ..disk.model() });
        let full = files.write_at(file, 0, &[0; 11]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        files.write_at(file, 0, &[0; 10]).unwrap();
        files.write_at(file, 0, &[1; 10]).unwrap();
        disk.set_model(DiskModel { failure: 1.0, ..disk.model() });
        assert!(files.sync(file).is_err());
        disk.set_model(DiskModel::default());
        let _ = disk.take_spent();
        files.write_at(file, 0, &[2; 10]).unwrap();
        files.sync(file).unwrap();
        assert!(disk.take_spent() >= DiskModel::default().sync);
        let before = content(&disk, "data");
        assert!(disk.rot());
        let flipped: u32 =
            before.iter().zip(content(&disk, "data")).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(flipped, 1);
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let mut files = disk(0).files();
        for name in ["", "..", ".", "a/b", "/etc/passwd", "a\0b"] {
            assert_eq!(files.open(name, true).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(files.open("none", false).unwrap_err().kind(), io::ErrorKind::NotFound);
        files.open("old", true).unwrap();
        files.rename("old", "new").unwrap();
        assert_eq!(files.list().unwrap(), ["new"]);
        files.remove("new").unwrap();
        assert_eq!(files.remove("new").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
