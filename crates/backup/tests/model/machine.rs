//! A store, its workers, and the simulated machine that they run on.

use crate::promises::{Held, State};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_backup::layout::{FrameNumber, Geometry, Slot};
use thunderhead_backup::{
    Durability, Event, Identity, OpenError, Options, StartReport, Store, Ticket,
};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::files::{FileId, FileLock, Files, Piece};
use thunderhead_runtime::sim::clock::{SimClock, TrueTime};
use thunderhead_runtime::sim::disk::{DiskModel, SimDisk, SimFiles};
use thunderhead_runtime::sim::memory::SimMemories;
use thunderhead_runtime::sim::workers::SimWorkers;
use thunderhead_runtime::{Random, Time, World};
use thunderhead_wire::{ClusterId, ServerId};

pub(crate) const SEGMENT_BYTES: u32 = 20_000;
pub(crate) const FRAMES: u32 = 5;
pub(crate) const BUFFERS: u32 = 3;

/// The operations that a disk refuses, while it does all others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    /// The number of the next syncs that fail.
    pub(crate) syncs: Rc<Cell<u32>>,
    /// A bit for each frame whose headers it refuses, after those syncs.
    pub(crate) refused: Rc<Cell<u8>>,
    /// A bit for each frame whose data it refuses.
    pub(crate) refused_data: Rc<Cell<u8>>,
    /// Whether refused data cannot be read either.
    pub(crate) unreadable: Rc<Cell<bool>>,
}

/// The files on such a disk.
struct Troubled {
    files: SimFiles,
    disk: SimDisk,
    trouble: Trouble,
}

/// The machine of a store.
pub(crate) struct Machine {
    pub(crate) disk: SimDisk,
    pub(crate) trouble: Trouble,
    pub(crate) memories: SimMemories,
    pub(crate) random: Random,
}

/// A store and its workers.
pub(crate) struct Life {
    pub(crate) store: Store,
    pub(crate) workers: SimWorkers,
    pub(crate) now: Time,
    pub(crate) opened: StartReport,
    pub(crate) trouble: Trouble,
}

impl Trouble {
    fn files(&self, disk: &SimDisk) -> Box<dyn Files> {
        let (disk, trouble) = (disk.clone(), self.clone());
        Box::new(Troubled { files: disk.files(), disk, trouble })
    }

    fn refuses(&self, offset: u64) -> bool {
        let geometry = Geometry { segment_bytes: SEGMENT_BYTES, frames: FRAMES };
        let is_header = |frame| {
            Slot::BOTH.iter().any(|it| geometry.header_at(FrameNumber(frame), *it) == offset)
        };
        let has = |bits: &Cell<u8>, frame: u32| (bits.get() >> frame) & 1 == 1;
        let has_begun = self.syncs.get() == 0;
        let refused = |frame| {
            has(&self.refused, frame) && is_header(frame)
                || has(&self.refused_data, frame) && is_data(frame, offset)
        };
        has_begun && (0..FRAMES).any(refused)
    }

    fn hides(&self, offset: u64) -> bool {
        let is_bad = |frame| (self.refused_data.get() >> frame) & 1 == 1 && is_data(frame, offset);
        self.unreadable.get() && (0..FRAMES).any(is_bad)
    }

    pub(crate) fn ends(&self) {
        self.refused.set(0);
        self.refused_data.set(0);
        self.unreadable.set(false);
        self.syncs.set(0);
    }
}

fn is_data(frame: u32, offset: u64) -> bool {
    let geometry = Geometry { segment_bytes: SEGMENT_BYTES, frames: FRAMES };
    let begins = geometry.data_at(FrameNumber(frame));
    (begins..begins + geometry.frame_bytes() as u64).contains(&offset)
}

impl Files for Troubled {
    fn open(&mut self, name: &str, create: bool) -> io::Result<FileId> {
        self.files.open(name, create)
    }

    fn close(&mut self, file: FileId) {
        self.files.close(file);
    }

    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        match self.trouble.hides(offset) {
            true => Err(io::Error::other("a bad block")),
            false => self.files.read_at(file, offset, into),
        }
    }

    fn write_at(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self.trouble.refuses(offset) {
            true => Err(io::Error::other("a bad block")),
            false => self.files.write_at(file, offset, bytes),
        }
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        let Some(left) = self.trouble.syncs.get().checked_sub(1) else {
            return self.files.sync(file);
        };
        self.trouble.syncs.set(left);
        let model = self.disk.model();
        self.disk.set_model(DiskModel { failure: 1.0, ..model });
        let failed = self.files.sync(file);
        self.disk.set_model(model);
        failed
    }

    fn length(&mut self, file: FileId) -> io::Result<u64> {
        self.files.length(file)
    }

    fn set_length(&mut self, file: FileId, length: u64) -> io::Result<()> {
        self.files.set_length(file, length)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn list(&mut self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn write_together(&mut self, file: FileId, pieces: &[Piece<'_>]) -> Vec<io::Result<()>> {
        let is_taken = |piece: &&Piece<'_>| !self.trouble.refuses(piece.offset);
        let taken: Vec<Piece<'_>> = pieces.iter().filter(is_taken).cloned().collect();
        let mut results = self.files.write_together(file, &taken).into_iter();
        let result = |piece: &Piece<'_>| match self.trouble.refuses(piece.offset) {
            true => Err(io::Error::other("a bad block")),
            false => results.next().expect("each piece has a result"),
        };
        pieces.iter().map(result).collect()
    }

    fn lock(&mut self, name: &str) -> io::Result<FileLock> {
        self.files.lock(name)
    }
}

impl Machine {
    pub(crate) fn new(seed: u64) -> Machine {
        let mut random = Random::from_seed(seed);
        let disk = SimDisk::new(DiskModel::default(), random.split());
        let trouble = Trouble::default();
        Machine { disk, trouble, memories: SimMemories::default(), random }
    }

    pub(crate) fn start(&mut self, durability: Durability) -> Result<Life, OpenError> {
        self.start_with(durability, BUFFERS)
    }

    pub(crate) fn start_with(
        &mut self,
        durability: Durability,
        buffers: u32,
    ) -> Result<Life, OpenError> {
        let workers = SimWorkers::default();
        let (disk, trouble) = (self.disk.clone(), self.trouble.clone());
        let clock = SimClock::new(TrueTime::default(), Time(0), 0);
        let mut world = World {
            clock: Clock::Sim(clock.into()),
            random: self.random.split(),
            files: self.trouble.files(&self.disk),
            memories: Box::new(self.memories.clone()),
            workers: Box::new(workers.starter(move || trouble.files(&disk))),
            alarm: Alarm::sim(),
        };
        let identity = Identity { cluster: ClusterId(1), server: ServerId(2) };
        let options = Options {
            segment_bytes: SEGMENT_BYTES,
            buffers,
            durability,
            ..Options::new(identity, FRAMES)
        };
        let (store, opened) = Store::start(&mut world, options)?;
        Ok(Life { store, workers, now: Time(0), opened, trouble: self.trouble.clone() })
    }

    pub(crate) fn lose_power(&mut self) {
        self.disk.lose_power();
        self.memories.lose_power(&mut self.random);
    }
}

impl Life {
    /// Lets workers and reactor work until all work is done. Returns the events.
    pub(crate) fn settle(&mut self, disk: &SimDisk) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..100 {
            self.now = self.now + Duration::from_millis(200);
            let mut busy = self.store.turn(self.now, &mut |event| events.push(event));
            for worker in 0..self.workers.count() {
                while self.workers.is_ringing(worker) && !disk.has_stopped() {
                    self.workers.step(worker);
                    busy = true;
                }
            }
            if disk.has_stopped() || (!busy && self.store.is_settled()) {
                break;
            }
        }
        events
    }

    /// Runs some turns of the reactor, each much later than the previous one, with the workers'
    /// steps.
    pub(crate) fn turn_and_work(&mut self, times: u32) {
        for _ in 0..times {
            self.now = self.now + Duration::from_millis(500);
            self.store.turn(self.now, &mut |_| {});
            for worker in 0..self.workers.count() {
                if self.workers.is_ringing(worker) {
                    self.workers.step(worker);
                }
            }
        }
    }

    /// Runs until a ticket is durable. Later writes are never done.
    pub(crate) fn wait_for(&mut self, ticket: Ticket) {
        let mut is_durable = false;
        while !is_durable {
            let is_it = |event: &Event| matches!(event, Event::Durable(it) if *it == ticket);
            self.store.turn(self.now, &mut |event| is_durable |= is_it(&event));
            for worker in 0..self.workers.count() {
                if self.workers.is_ringing(worker) && !is_durable {
                    self.workers.step(worker);
                }
            }
        }
    }

    /// Returns all replicas that count, with their bytes.
    pub(crate) fn read_all(&mut self, disk: &SimDisk) -> State {
        let mut state = State::new();
        let replicas: Vec<_> = self.store.replicas().collect();
        for replica in replicas {
            let read = self.store.read(replica.id).unwrap();
            let mut found = None;
            for event in self.settle(disk) {
                if let Event::Read(id, outcome) = event {
                    assert_eq!(id, read);
                    found = Some(outcome);
                }
            }
            let bytes = found.expect("a read ends").expect("a replica that is listed is intact");
            assert_eq!(bytes.bytes().len(), replica.length as usize);
            let held = Held {
                epoch: replica.epoch,
                bytes: bytes.bytes().to_vec(),
                closed: replica.closed,
                committed: true,
                before: None,
            };
            state.insert(replica.id, held);
        }
        state
    }
}
