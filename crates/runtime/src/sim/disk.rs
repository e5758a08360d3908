//! The disk of a simulated machine.
//!
//! It outlives the processes of its machine. Each file is what programs see of it, what is durable
//! of it, and the writes in between. When a *process* dies, nothing is lost. When the *power* goes,
//! each sector of each write that was not synced is kept or lost by itself, so writes are torn and
//! overtake one another. Changes of names are durable when they return without an error.
//!
//! Faults: a full disk; a slow one; bits that turn over; and operations that fail:
//!
//! - a write, after any part of it was done;
//! - a sync, after any part of what it was for became durable. The rest never will: no later sync
//!   is for it. Whether it can still be read is drawn too, and may change when the process starts
//!   again;
//! - a change of a name, which may have been done nevertheless, for good or until the power goes.
//!
//! A machine may also be made to stop at its nth operation, which may then have been done in part:
//! from there on nothing reaches the disk.

mod bytes;

use crate::files::{FileId, Files, Piece, check_name};
use crate::random::Random;
use crate::sim::trace::{fold, hash};
use bytes::Bytes;
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

/// Files by their names.
type Names = BTreeMap<String, Rc<RefCell<Content>>>;

#[derive(Debug)]
struct State {
    model: DiskModel,
    files: Names,
    /// What is left of the names when the power goes.
    durable_names: Names,
    random: Random,
    /// Everything that was ever written, as one number.
    digest: u64,
    /// What the operations since the last [`SimDisk::take_spent`] took.
    spent: Duration,
    operations: u64,
    stops_at: Option<u64>,
}

#[derive(Debug, Default)]
struct Content {
    seen: Bytes,
    durable: Bytes,
    unsynced: Vec<Change>,
    /// A sync has failed: some of what is seen may be in no file that was stored.
    is_doubtful: bool,
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

    /// Of what was not synced, each piece becomes durable with a probability; the rest never will.
    fn settle(&mut self, kept: f64, random: &mut Random) {
        for change in std::mem::take(&mut self.unsynced) {
            for piece in change.pieces() {
                if random.chance(kept) {
                    apply(&mut self.durable, &piece);
                }
            }
        }
    }

    /// From now on shows what is on the disk, and what may still get there.
    fn forget_cache(&mut self) {
        self.seen.clone_from(&self.durable);
        for change in &self.unsynced {
            apply(&mut self.seen, change);
        }
        self.is_doubtful = false;
    }
}

impl Change {
    /// The parts that are kept or lost by themselves.
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

/// How likely each piece is kept, drawn for the occasion: often none or all.
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
    /// An empty disk.
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

    /// The machine is not to stop, whatever was said before.
    pub fn keep_running(&self) {
        self.0.borrow_mut().stops_at = None;
    }

    /// Whether the machine has stopped in an operation.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        let state = self.0.borrow();
        state.stops_at.is_some_and(|at| state.operations >= at)
    }

    /// The machine starts again after a crash of the process: nothing is lost, but of a file whose
    /// sync has failed what is not on the disk may not be seen any more.
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

    /// The power goes: of what was not synced, each sector is lost with some probability that is
    /// drawn for the occasion, often none or all.
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

    /// A number that two disks share if just the same was ever written to them, and is in their
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

    /// A number that two disks share if just the same was ever written to them.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.0.borrow().digest
    }

    /// Turns over a bit of something that is stored; false when there is nothing.
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

    /// By how much files may grow.
    fn room(&self) -> usize {
        let used: usize = self.files.values().map(|file| file.borrow().seen.len()).sum();
        usize::try_from(self.model.capacity).unwrap_or(usize::MAX).saturating_sub(used)
    }

    /// Changes names. What has failed may have been done nevertheless, for good or not.
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

    /// Takes what is written into the number that stands for all of it.
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
        state.is_running()?;
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
        Ok(content.seen.read(usize::try_from(offset).unwrap_or(usize::MAX), into))
    }

    fn write_at(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let content = self.content(file)?;
        let offset = offset as usize;
        let mut state = self.disk.0.borrow_mut();
        let room_left = state.room();
        state.is_running()?;
        state.note(file, offset as u64, bytes);
        let begun = state.begin(bytes.len(), false);
        let mut content = content.borrow_mut();
        let room = content.seen.len().saturating_add(room_left).saturating_sub(offset);
        if room < bytes.len() {
            // A full disk takes a beginning.
            if room > 0 {
                content.change(Change::Write { offset, bytes: bytes[..room].to_vec() });
            }
            return begun.and(Err(rustix::io::Errno::NOSPC.into()));
        }
        let change = Change::Write { offset, bytes: bytes.to_vec() };
        if begun.is_ok() {
            content.change(change);
            return Ok(());
        }
        // What fails half way leaves anything.
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
        state.is_running()?;
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
        state.is_running()?;
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
        state.is_running()?;
        let content = state.files.get(from).cloned().ok_or_else(not_found)?;
        let begun = state.begin(0, false);
        state.change_names(begun, |names| {
            names.remove(from);
            put(names, to, &content);
        })
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.disk.0.borrow_mut();
        state.is_running()?;
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

    /// A disk does them in any order.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Content as Of;
    use std::collections::BTreeSet;

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

    /// Which of so many sectors hold this byte.
    fn sectors_of(found: &[u8], byte: u8, count: usize) -> Vec<bool> {
        let is_it = |at: usize| found.get(at * SECTOR).is_some_and(|it| *it == byte);
        (0..count).map(is_it).collect()
    }

    #[test]
    fn a_sync_that_fails_keeps_any_part_and_no_later_sync_is_for_the_rest() {
        let (mut partly, mut shown, mut forgotten) = (0, 0, 0);
        for seed in 0..100 {
            let disk = disk(seed);
            let mut files = disk.files();
            let file = files.open("journal", true).unwrap();
            files.write_at(file, 0, &[1; 8 * SECTOR]).unwrap();
            files.sync(file).unwrap();
            files.write_at(file, 0, &[2; 8 * SECTOR]).unwrap();
            disk.set_model(DiskModel { failure: 1.0, ..disk.model() });
            assert!(files.sync(file).is_err());
            disk.set_model(DiskModel::default());
            let read_back = sectors_of(&content(&disk, "journal"), 2, 8);
            files.write_at(file, 8 * SECTOR as u64, &[3; SECTOR]).unwrap();
            files.sync(file).unwrap();
            disk.restart();
            let after_restart = sectors_of(&content(&disk, "journal"), 2, 8);
            disk.lose_power();
            let found = content(&disk, "journal");
            assert_eq!(sectors_of(&found, 3, 9)[8..], [true], "what comes later is durable");
            let kept = sectors_of(&found, 2, 8);
            partly += usize::from(kept.contains(&true) && kept.contains(&false));
            shown += usize::from(read_back != kept);
            forgotten += usize::from(read_back != after_restart);
            assert!(
                read_back == kept || !read_back.contains(&false),
                "all is seen or what is there"
            );
            assert!(after_restart == kept || after_restart == read_back);
        }
        assert!((10..90).contains(&partly), "{partly} of 100 were kept in part");
        assert!((10..90).contains(&shown), "{shown} of 100 could be read and were not there");
        assert!((5..50).contains(&forgotten), "{forgotten} of 100 were gone after a restart");
    }

    #[test]
    fn a_write_that_fails_leaves_any_part_and_on_a_full_disk_a_beginning() {
        let mut in_the_middle = 0;
        for seed in 0..100 {
            let disk = disk(seed);
            let mut files = disk.files();
            let file = files.open("data", true).unwrap();
            disk.set_model(DiskModel { failure: 1.0, ..disk.model() });
            assert!(files.write_at(file, 0, &[1; 8 * SECTOR]).is_err());
            disk.set_model(DiskModel::default());
            let written = sectors_of(&content(&disk, "data"), 1, 8);
            in_the_middle += usize::from(written.windows(2).any(|pair| pair == [false, true]));
        }
        assert!((10..90).contains(&in_the_middle), "{in_the_middle} of 100 have holes");
        let disk = disk(0);
        let mut files = disk.files();
        let file = files.open("data", true).unwrap();
        disk.set_model(DiskModel { capacity: 10, ..disk.model() });
        assert!(files.write_at(file, 4, &[1; 11]).is_err());
        assert_eq!(content(&disk, "data"), [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
        assert!(files.write_at(file, 20, &[1; 11]).is_err());
        assert!(files.set_length(file, 11).is_err());
        assert_eq!(content(&disk, "data").len(), 10);
    }

    /// What a machine that stops in the midst has written, and what fails, is any of it.
    #[test]
    fn pieces_are_written_in_any_order_each_with_its_own_faults() {
        let (mut stopped, mut failed) = (BTreeSet::new(), BTreeSet::new());
        for seed in 0..200 {
            let together = |fails: f64, stop: u64| {
                let disk = disk(seed);
                let mut files = disk.files();
                let file = files.open("data", true).unwrap();
                disk.set_model(DiskModel { failure: fails, ..disk.model() });
                disk.stop_after(stop);
                let piece = |at| Piece { offset: at, content: Of::Bytes(b"x") };
                let results = files.write_together(file, &[0, 1, 2].map(piece));
                let results: Vec<bool> = results.iter().map(Result::is_ok).collect();
                disk.set_model(DiskModel::default());
                disk.restart();
                let mut found = content(&disk, "data");
                found.resize(3, 0);
                let told = results.iter().zip(&found).all(|(is_ok, it)| !is_ok || *it == b'x');
                assert!(told, "{results:?} {found:?}");
                results
            };
            stopped.insert(together(0.0, 2));
            failed.insert(together(0.5, 9));
            assert_eq!(together(0.0, 9), [true; 3]);
        }
        assert_eq!((stopped.len(), failed.len()), (3, 8));
    }

    /// A change of names that fails, on many disks: what was seen then, and after the power went.
    fn after_failed(change: impl Fn(&mut SimFiles) -> io::Result<()>) -> Vec<(String, String)> {
        let mut seen: Vec<(String, String)> = (0..100)
            .map(|seed| {
                let disk = disk(seed);
                let mut files = disk.files();
                files.open("old", true).unwrap();
                disk.set_model(DiskModel { failure: 1.0, ..disk.model() });
                assert!(change(&mut files).is_err());
                disk.set_model(DiskModel::default());
                let before = files.list().unwrap().join(" ");
                disk.lose_power();
                (before, files.list().unwrap().join(" "))
            })
            .collect();
        seen.sort();
        seen.dedup();
        seen
    }

    #[test]
    fn a_change_of_names_that_fails_may_be_done_for_good_or_until_the_power_goes() {
        let pairs = |all: [(&str, &str); 3]| all.map(|(a, b)| (a.to_owned(), b.to_owned()));
        let renamed = after_failed(|files| files.rename("old", "new"));
        assert_eq!(renamed, pairs([("new", "new"), ("new", "old"), ("old", "old")]));
        let removed = after_failed(|files| files.remove("old"));
        assert_eq!(removed, pairs([("", ""), ("", "old"), ("old", "old")]));
        let made = after_failed(|files| files.open("also", true).map(drop));
        assert_eq!(made, pairs([("also old", "also old"), ("also old", "old"), ("old", "old")]));
    }

    #[test]
    fn a_change_of_names_that_works_is_durable_and_makes_up_for_one_that_failed() {
        for seed in 0..100 {
            let disk = disk(seed);
            let mut files = disk.files();
            let file = files.open("new", true).unwrap();
            files.write_at(file, 0, b"content").unwrap();
            files.sync(file).unwrap();
            disk.set_model(DiskModel { failure: 1.0, ..disk.model() });
            assert!(files.rename("new", "old").is_err());
            assert!(files.open("also", true).is_err());
            disk.set_model(DiskModel::default());
            let _ = files.rename("new", "old");
            files.open("also", true).unwrap();
            files.rename("old", "final").unwrap();
            disk.lose_power();
            assert_eq!(files.list().unwrap(), ["also", "final"]);
            assert_eq!(content(&disk, "final"), b"content");
        }
    }

    #[test]
    fn the_digest_sees_every_byte_that_was_ever_written() {
        let digests = |byte: u8, at: u64| {
            let disk = disk(1);
            let mut files = disk.files();
            let file = files.open("data", true).unwrap();
            files.write_at(file, at, &[byte; 9]).unwrap();
            files.write_at(file, 0, &[7; 30]).unwrap();
            (disk.written(), disk.digest())
        };
        let (written, all) = digests(1, 0);
        assert_eq!(digests(1, 0), (written, all));
        for (byte, at) in [(2, 0), (1, 1)] {
            assert_ne!(digests(byte, at).0, written);
            assert_ne!(digests(byte, at).1, all);
        }
        let disk = disk(1);
        disk.files().open("data", true).unwrap();
        let before = disk.digest();
        let mut files = disk.files();
        let file = files.open("data", false).unwrap();
        files.write_at(file, 0, &[0]).unwrap();
        let after = disk.digest();
        assert_ne!(before, after);
        files.sync(file).unwrap();
        assert!(disk.rot());
        assert_ne!(disk.digest(), after);
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
