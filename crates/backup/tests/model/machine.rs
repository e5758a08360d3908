//! A store, its workers, and the simulated machine that they run on.

use crate::promises::{Held, State};
use std::time::Duration;
use thunderhead_backup::{Durability, Event, Identity, OpenError, Opened, Options, Store, Ticket};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::sim::clock::{SimClock, TrueTime};
use thunderhead_runtime::sim::disk::{DiskModel, SimDisk};
use thunderhead_runtime::sim::memory::SimMemories;
use thunderhead_runtime::sim::workers::SimWorkers;
use thunderhead_runtime::{Random, Time, World};
use thunderhead_wire::{ClusterId, ServerId};

pub(crate) const SEGMENT_BYTES: u32 = 20_000;
pub(crate) const FRAMES: u32 = 5;

/// A machine that a store runs on.
pub(crate) struct Machine {
    pub(crate) disk: SimDisk,
    pub(crate) memories: SimMemories,
    pub(crate) random: Random,
}

/// A store and its workers.
pub(crate) struct Life {
    pub(crate) store: Store,
    pub(crate) workers: SimWorkers,
    pub(crate) now: Time,
    pub(crate) opened: Opened,
}

impl Machine {
    pub(crate) fn new(seed: u64) -> Machine {
        let mut random = Random::from_seed(seed);
        let disk = SimDisk::new(DiskModel::default(), random.split());
        Machine { disk, memories: SimMemories::default(), random }
    }

    pub(crate) fn start(&mut self, durability: Durability) -> Result<Life, OpenError> {
        let workers = SimWorkers::default();
        let disk = self.disk.clone();
        let clock = SimClock::new(TrueTime::default(), Time(0), 0);
        let mut world = World {
            clock: Clock::Sim(clock.into()),
            random: self.random.split(),
            files: Box::new(self.disk.files()),
            memories: Box::new(self.memories.clone()),
            workers: Box::new(workers.starter(move || Box::new(disk.files()))),
            alarm: Alarm::sim(),
        };
        let identity = Identity { cluster: ClusterId(1), server: ServerId(2) };
        let options = Options {
            segment_bytes: SEGMENT_BYTES,
            buffers: 3,
            durability,
            ..Options::new(identity, FRAMES)
        };
        let (store, opened) = Store::start(&mut world, options)?;
        Ok(Life { store, workers, now: Time(0), opened })
    }

    pub(crate) fn lose_power(&mut self) {
        self.disk.lose_power();
        self.memories.lose_power(&mut self.random);
    }
}

impl Life {
    /// Lets workers and reactor work until there is nothing left to do; the tickets that came.
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

    /// Goes on until something is durable; what is to be written after that never is.
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

    /// All replicas that count, with their bytes.
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
