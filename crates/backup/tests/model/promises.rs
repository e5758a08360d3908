//! The calls on the store, and the promises about their effects.

use crate::machine::{Life, SEGMENT_BYTES};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use thunderhead_backup::{Ack, Durability, Event, ReplicaId, Ticket};
use thunderhead_runtime::sim::disk::{DiskModel, SimDisk};
use thunderhead_wire::{Epoch, MasterId, SegmentId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) epoch: Epoch,
    pub(crate) bytes: Vec<u8>,
    pub(crate) closed: bool,
    pub(crate) committed: bool,
    /// The replica that this one replaces, until this one counts.
    pub(crate) before: Option<Box<Held>>,
}

impl Held {
    pub(crate) fn counts(&mut self) {
        (self.committed, self.before) = (true, None);
    }
}

pub(crate) type State = BTreeMap<ReplicaId, Held>;

/// Returns the replicas of a state that count.
pub(crate) fn visible(state: &State) -> State {
    let counting = |held: &Held| match held.committed {
        true => Some(held.clone()),
        false => held.before.as_deref().cloned(),
    };
    state.iter().filter_map(|(id, held)| Some((*id, counting(held)?))).collect()
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Open {
        id: ReplicaId,
        atomic: bool,
        later: u64,
    },
    Append {
        id: ReplicaId,
        bytes: Vec<u8>,
        back: u32,
        epoch: u64,
    },
    Close {
        id: ReplicaId,
    },
    Commit {
        id: ReplicaId,
    },
    Free {
        id: ReplicaId,
    },
    GivesWay {
        master: MasterId,
    },
    /// From now on so many quarters of the disk's operations fail.
    Fails {
        quarters: u64,
    },
    /// So many syncs fail. After that the disk refuses the headers of some frames, and the data of
    /// some.
    Refuses {
        frames: u8,
        data: u8,
        syncs: u32,
    },
    Turn {
        later: bool,
    },
    Work,
}

pub(crate) fn id() -> impl Strategy<Value = ReplicaId> {
    (0..2u64, 1..5u64).prop_map(|(master, segment)| ReplicaId {
        master: MasterId(master),
        segment: SegmentId(segment),
    })
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let bytes = (0..9000usize, any::<u8>())
        .prop_map(|(length, first)| (0..length).map(|at| first.wrapping_add(at as u8)).collect());
    prop_oneof![
        4 => (id(), any::<bool>(), 0..2u64)
            .prop_map(|(id, atomic, later)| Op::Open { id, atomic, later }),
        6 => (id(), bytes, 0..50u32, 0..3u64)
            .prop_map(|(id, bytes, back, epoch)| Op::Append { id, bytes, back, epoch }),
        3 => id().prop_map(|id| Op::Close { id }),
        1 => id().prop_map(|id| Op::Commit { id }),
        1 => id().prop_map(|id| Op::Free { id }),
        1 => (0..2u64).prop_map(|master| Op::GivesWay { master: MasterId(master) }),
        3 => any::<bool>().prop_map(|later| Op::Turn { later }),
        3 => Just(Op::Work),
    ]
}

/// Draws calls on few replicas, which replace each other, on a disk that refuses some writes.
pub(crate) fn op_in_trouble() -> impl Strategy<Value = Op> {
    let id = || {
        let id = |segment| ReplicaId { master: MasterId(0), segment: SegmentId(segment) };
        (1..3u64).prop_map(id)
    };
    let bytes = prop_oneof![
        (1..9u8).prop_map(|length| vec![length; length.into()]),
        (1..9u8).prop_map(|times| vec![times; 500 * usize::from(times)]),
    ];
    prop_oneof![
        2 => (id(), any::<bool>(), 0..2u64)
            .prop_map(|(id, atomic, later)| Op::Open { id, atomic, later }),
        5 => id().prop_map(|id| Op::Open { id, atomic: true, later: 1 }),
        4 => (id(), bytes, 0..3u64)
            .prop_map(|(id, bytes, epoch)| Op::Append { id, bytes, back: 0, epoch }),
        3 => id().prop_map(|id| Op::Close { id }),
        3 => id().prop_map(|id| Op::Commit { id }),
        1 => id().prop_map(|id| Op::Free { id }),
        2 => Just(Op::GivesWay { master: MasterId(0) }),
        2 => (0..5u64).prop_map(|quarters| Op::Fails { quarters }),
        1 => Just(Op::Fails { quarters: 0 }),
        3 => refuses(),
        6 => any::<bool>().prop_map(|later| Op::Turn { later }),
        6 => Just(Op::Work),
    ]
}

pub(crate) fn refuses() -> impl Strategy<Value = Op> {
    let frames = || prop_oneof![Just(0), 0..32u8];
    (frames(), frames(), prop_oneof![Just(0), 1..4u32])
        .prop_map(|(frames, data, syncs)| Op::Refuses { frames, data, syncs })
}

pub(crate) fn durability() -> impl Strategy<Value = Durability> {
    prop_oneof![
        Just(Durability::Synced),
        Just(Durability::Replicated),
        Just(Durability::Interval(Duration::from_millis(100))),
    ]
}

/// A replica from its beginning until it is freed or replaced. A replica that is begun again is
/// another one.
pub(crate) struct Begun {
    id: ReplicaId,
    /// The states in which it was open and counted.
    open: Vec<Held>,
    /// Its closing was acknowledged, or is durable.
    is_closed: bool,
    is_closed_durably: bool,
    /// It was open and had a buffer when it was freed.
    is_freed_in_buffer: bool,
}

/// The states after the calls, and the promises about them.
pub(crate) struct Model {
    /// The state after each call.
    pub(crate) history: Vec<State>,
    /// For each ticket, the number of calls before it.
    pub(crate) tickets: BTreeMap<Ticket, usize>,
    /// The number of durable calls.
    pub(crate) durable: usize,
    /// The replicas that this process has begun: others get nothing more.
    pub(crate) mine: BTreeSet<ReplicaId>,
    /// The replicas of `mine` without a buffer, and their calls that are not durable yet.
    pub(crate) resting: BTreeSet<ReplicaId>,
    pub(crate) not_yet: Vec<(Ticket, ReplicaId)>,
    /// The number of acknowledged, and of durable, calls of each replica.
    pub(crate) acknowledged: BTreeMap<ReplicaId, usize>,
    pub(crate) durable_of: BTreeMap<ReplicaId, usize>,
    pub(crate) of_ticket: BTreeMap<Ticket, ReplicaId>,
    pub(crate) failed: BTreeSet<Ticket>,
    /// All replicas in the order of their beginnings, and the place of each replica whose closing
    /// waits for the disk, by the ticket.
    pub(crate) begun: Vec<Begun>,
    pub(crate) closings: BTreeMap<Ticket, usize>,
    /// The latest epoch of each replica in all processes: masters do not go back.
    pub(crate) epochs: BTreeMap<ReplicaId, Epoch>,
    /// Whether the disk may fail.
    pub(crate) is_in_trouble: bool,
}

impl Model {
    pub(crate) fn new(
        before: State,
        epochs: BTreeMap<ReplicaId, Epoch>,
        is_in_trouble: bool,
    ) -> Model {
        let mut model = Model {
            history: vec![State::new()],
            tickets: BTreeMap::new(),
            durable: 0,
            mine: BTreeSet::new(),
            resting: BTreeSet::new(),
            not_yet: Vec::new(),
            acknowledged: BTreeMap::new(),
            durable_of: BTreeMap::new(),
            of_ticket: BTreeMap::new(),
            failed: BTreeSet::new(),
            begun: Vec::new(),
            closings: BTreeMap::new(),
            epochs,
            is_in_trouble,
        };
        for (id, held) in &before {
            model.begins(*id);
            model.observe(*id, held);
        }
        model.history = vec![before];
        model
    }

    fn begins(&mut self, id: ReplicaId) {
        self.begun.push(Begun {
            id,
            open: Vec::new(),
            is_closed: false,
            is_closed_durably: false,
            is_freed_in_buffer: false,
        });
    }

    /// Returns the place of the replica with this id that was begun last.
    fn last_begun(&self, id: ReplicaId) -> Option<usize> {
        self.begun.iter().rposition(|it| it.id == id)
    }

    fn observe(&mut self, id: ReplicaId, held: &Held) {
        if let Some(at) = self.last_begun(id).filter(|_| held.committed && !held.closed) {
            self.begun[at].open.push(held.clone());
        }
    }

    fn closed(&mut self, id: ReplicaId, ack: Ack) {
        let Some(at) = self.last_begun(id) else { return };
        match ack {
            Ack::Now => self.begun[at].is_closed = true,
            Ack::When(ticket) => _ = self.closings.insert(ticket, at),
        }
    }

    /// Whether a replica that was freed may be found so after a kill or a power loss.
    pub(crate) fn may_come_back(&self, id: ReplicaId, found: &Held, power: bool) -> bool {
        if found.closed {
            return self.is_since(0, id, Some(found));
        }
        let may = |it: &Begun| match power {
            true => !it.is_closed_durably,
            false => !it.is_closed && !it.is_freed_in_buffer,
        };
        self.begun.iter().any(|it| it.id == id && may(it) && it.open.contains(found))
    }

    /// Whether these replicas can be found after a power loss if a state was the last on the disk.
    pub(crate) fn fits(&self, state: &State, found: &State) -> bool {
        let state = visible(state);
        let was_replaced = |id: &ReplicaId| {
            let before = |it: &State| it.get(id).is_some_and(|held| held.before.is_some());
            self.history.iter().any(before)
        };
        let may_be_there = |(id, held): (&ReplicaId, &Held)| match state.get(id) {
            Some(expected) => expected == held,
            None => was_replaced(id) && self.may_come_back(*id, held, true),
        };
        state.keys().all(|id| found.contains_key(id)) && found.iter().all(may_be_there)
    }

    pub(crate) fn state(&self) -> State {
        self.history.last().unwrap().clone()
    }

    pub(crate) fn called(&mut self, id: ReplicaId, state: State, ack: Ack) {
        // A replica that does not count yet proves nothing about the replica that it replaces.
        let counts = state.get(&id).is_some_and(|held| held.committed);
        if let Some(held) = state.get(&id) {
            let latest = self.epochs.entry(id).or_default();
            *latest = held.epoch.max(*latest);
            self.observe(id, held);
        }
        self.history.push(state);
        if let Ack::When(ticket) = ack {
            self.tickets.insert(ticket, self.history.len());
            if counts {
                self.of_ticket.insert(ticket, id);
            }
            if self.resting.contains(&id) {
                self.not_yet.push((ticket, id));
            }
        } else if counts {
            self.acknowledged.insert(id, self.history.len());
        }
    }

    /// Whether the found state of a replica is the state after this call or a later one.
    pub(crate) fn is_since(&self, call: usize, id: ReplicaId, found: Option<&Held>) -> bool {
        self.history[call.max(1) - 1..].iter().any(|it| visible(it).get(&id) == found)
    }

    /// Whether the process after a process with a failing disk found an allowed state.
    pub(crate) fn allows(&self, found: &State, power: bool) -> bool {
        let now = self.state();
        let ids: BTreeSet<ReplicaId> =
            self.history.iter().chain([found]).flat_map(|it| it.keys().copied()).collect();
        ids.into_iter().all(|id| {
            let is = found.get(&id);
            if !visible(&now).contains_key(&id) {
                return is.is_none_or(|held| self.may_come_back(id, held, power));
            }
            let promised = if power { &self.durable_of } else { &self.acknowledged };
            let from = match self.not_yet.iter().any(|it| it.1 == id) || power {
                true => promised.get(&id).copied().unwrap_or_default(),
                false => self.history.len(),
            };
            self.is_since(from, id, is)
        })
    }

    /// Removes replicas without a buffer that have unacknowledged calls: after a crash of the
    /// process such a call has happened or not. Returns whether each found state is one of the two.
    pub(crate) fn forget_unacknowledged(&self, found: &mut State, state: &mut State) -> bool {
        let from = self.durable.max(1) - 1;
        let ids: BTreeSet<ReplicaId> = self.not_yet.iter().map(|(_, id)| *id).collect();
        ids.iter().all(|id| {
            let (is, _) = (found.remove(id), state.remove(id));
            self.history[from..].iter().any(|it| visible(it).get(id) == is.as_ref())
        })
    }

    pub(crate) fn heard(&mut self, event: &Event) {
        match event {
            Event::Durable(ticket) => {
                self.durable = self.durable.max(self.tickets[ticket]);
                let failed = &self.failed;
                self.not_yet.retain(|(other, _)| other > ticket || failed.contains(other));
                if let Some(at) = self.closings.get(ticket) {
                    let closed = &mut self.begun[*at];
                    (closed.is_closed, closed.is_closed_durably) = (true, true);
                }
                if let Some(id) = self.of_ticket.get(ticket) {
                    self.durable_of.insert(*id, self.tickets[ticket]);
                    self.acknowledged.insert(*id, self.tickets[ticket]);
                }
            }
            Event::Failed(ticket) if self.is_in_trouble => _ = self.failed.insert(*ticket),
            Event::Read(..) => {}
            other => panic!("nothing fails here but the machine: {other:?}"),
        }
    }

    /// Makes a call, and notes its effects.
    pub(crate) fn apply(&mut self, life: &mut Life, disk: &SimDisk, op: &Op) {
        self.call(life, disk, op);
        life.store.check_consistent();
    }

    fn call(&mut self, life: &mut Life, disk: &SimDisk, op: &Op) {
        let mut state = self.state();
        let store = &mut life.store;
        if let Op::Open { id, .. } | Op::Append { id, .. } | Op::Close { id } | Op::Commit { id } =
            op
            && store.is_resting(*id)
        {
            self.resting.insert(*id);
        }
        match op {
            Op::Open { id, atomic, later } => {
                let known = state.get(id);
                let latest = self.epochs.get(id).copied().unwrap_or(Epoch(1));
                let epoch = known.map_or(latest, |held| Epoch(held.epoch.0 + later));
                let Ok(ack) = store.open(*id, epoch, *atomic) else { return };
                let is_mine = self.mine.contains(id) && state.contains_key(id);
                let replaces = *atomic && known.is_some_and(|held| epoch > held.epoch);
                if !is_mine || replaces {
                    self.begins(*id);
                    let before = match known.filter(|_| replaces) {
                        Some(held) if held.committed => Some(Box::new(held.clone())),
                        Some(held) => held.before.clone(),
                        None => None,
                    };
                    let (bytes, closed, committed) = (Vec::new(), false, !atomic);
                    state.insert(*id, Held { epoch, bytes, closed, committed, before });
                    self.resting.remove(id);
                } else if let Some(held) = state.get_mut(id) {
                    held.epoch = epoch;
                }
                self.mine.insert(*id);
                self.called(*id, state, ack);
            }
            Op::Append { id, bytes, back, epoch } => {
                let Some(held) = state.get_mut(id) else {
                    assert_eq!(store.append(*id, Epoch(1), 0, bytes).unwrap_err().code(), 3);
                    return;
                };
                // Some earlier bytes are sent again.
                let back = (*back).min(held.bytes.len() as u32);
                let offset = held.bytes.len() as u32 - back;
                let mut sent = held.bytes[offset as usize..].to_vec();
                sent.extend_from_slice(bytes);
                let epoch = Epoch(held.epoch.0 + epoch / 2);
                let (front, back) = sent.split_at(7 * offset as usize % (sent.len() + 1));
                let result = store.append_pieces(*id, epoch, offset, [front, back].into_iter());
                let fits = offset as usize + sent.len() <= SEGMENT_BYTES as usize;
                let Ok(ack) = result else {
                    let rests = store.is_resting(*id) && !bytes.is_empty();
                    let may = held.closed || !fits || !self.mine.contains(id) || rests;
                    let may = may || self.is_in_trouble;
                    assert!(may, "{result:?}");
                    return;
                };
                held.bytes.extend_from_slice(bytes);
                held.epoch = epoch;
                let end = held.bytes.len() as u32;
                assert_eq!(
                    store.append(*id, epoch, end + 1, b"x").unwrap_err().code(),
                    5 + u16::from(end + 2 > SEGMENT_BYTES)
                );
                self.called(*id, state, ack);
            }
            Op::Close { id } => {
                let Some(held) = state.get_mut(id) else { return };
                let Ok(ack) = store.close(*id, held.epoch, held.bytes.len() as u32) else {
                    assert!(!self.mine.contains(id) || self.is_in_trouble);
                    return;
                };
                held.closed = true;
                held.counts();
                self.closed(*id, ack);
                self.called(*id, state, ack);
            }
            Op::Commit { id } => {
                let Some(held) = state.get_mut(id) else { return };
                let Ok(ack) = store.commit(*id, held.epoch) else { return };
                held.counts();
                self.called(*id, state, ack);
            }
            Op::Free { id } => {
                let had_buffer = self.mine.contains(id) && !store.is_resting(*id);
                let freed = state.remove(id);
                assert_eq!(store.free(*id), freed.is_some());
                if let Some(held) = freed.filter(|held| held.committed && !held.closed)
                    && let Some(at) = self.last_begun(*id)
                {
                    assert!(self.begun[at].open.contains(&held));
                    self.begun[at].is_freed_in_buffer = had_buffer;
                }
                self.called(*id, state, Ack::Now);
                // No master relies on the absence of the replica, nor on its presence.
                self.acknowledged.remove(id);
                self.durable_of.remove(id);
                self.of_ticket.retain(|_, other| other != id);
            }
            Op::GivesWay { master } => store.gives_way(*master),
            Op::Fails { quarters } => {
                let failure = *quarters as f64 / 4.0;
                disk.set_model(DiskModel { failure, ..DiskModel::default() });
            }
            Op::Refuses { frames, data, syncs } => {
                life.trouble.refused.set(*frames);
                life.trouble.refused_data.set(*data);
                life.trouble.syncs.set(*syncs);
            }
            Op::Turn { later } => {
                let by = if *later { Duration::from_millis(500) } else { Duration::ZERO };
                life.now = life.now + by;
                let mut events = Vec::new();
                life.store.turn(life.now, &mut |event| events.push(event));
                events.iter().for_each(|event| self.heard(event));
            }
            Op::Work => {
                for worker in 0..life.workers.count() {
                    if life.workers.is_ringing(worker) && !disk.has_stopped() {
                        life.workers.step(worker);
                    }
                }
            }
        }
    }
}
