//! Which servers there are, and which of them gets a replica.

use super::rests::Rest;
use super::segment::Slot;
use super::{Settings, State};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_wire::control::{ServerList, ServerState};
use thunderhead_wire::{Epoch, SegmentId, ServerId};

/// How many servers are drawn.
const CANDIDATES: usize = 5;

/// How long a backup is passed over that has no room, or is behind with its disk.
const PASSED_OVER: Duration = Duration::from_millis(50);

/// What a frame is read with where nobody has measured it.
const READ_BYTES_PER_SECOND: u64 = 500 << 20;

/// A server's backup.
#[derive(Clone, Debug)]
pub(super) struct Backup {
    pub(super) generation: u64,
    pub(super) is_up: bool,
    pub(super) address: SocketAddr,
    host: String,
    rack: String,
    read_bytes_per_second: u64,
    /// First replicas that it has of this master.
    primaries: u64,
    avoided_until: Time,
}

/// The servers that have backups, the own one too.
#[derive(Default)]
pub(super) struct Servers {
    pub(super) version: u64,
    pub(super) backups: BTreeMap<ServerId, Backup>,
    /// There are too few hosts, or racks, for all replicas to be apart.
    shares_hosts: bool,
    shares_racks: bool,
}

impl Servers {
    /// The backup of a server that is up.
    pub(super) fn get(&self, server: ServerId) -> Option<&Backup> {
        self.backups.get(&server).filter(|backup| backup.is_up)
    }

    pub(super) fn up(&self) -> impl Iterator<Item = (ServerId, &Backup)> {
        self.backups.iter().filter(|(_, backup)| backup.is_up).map(|(id, it)| (*id, it))
    }

    pub(super) fn count_primary(&mut self, server: ServerId, by: i64) {
        if let Some(backup) = self.backups.get_mut(&server) {
            backup.primaries = backup.primaries.saturating_add_signed(by);
        }
    }

    pub(super) fn avoid(&mut self, server: ServerId, now: Time) {
        if let Some(backup) = self.backups.get_mut(&server) {
            backup.avoided_until = now + PASSED_OVER;
        }
    }

    pub(super) fn remarks(&self, settings: &Settings) -> Option<String> {
        let shares = self.shares_hosts && settings.replicas > 0 && !self.backups.is_empty();
        let only_own = settings.self_backup && self.backups.len() == 1;
        (shares && !only_own).then(|| {
            format!(
                "the cluster has too few hosts to keep {} replicas apart from each other and from \
                 their master: replicas share hosts",
                settings.replicas
            )
        })
    }

    fn take_in(&mut self, list: &ServerList, settings: &Settings) {
        let former = std::mem::take(&mut self.backups);
        self.version = list.version;
        for info in &list.servers {
            let Some(backup) = info.backup else { continue };
            let known = former.get(&info.server);
            let backup = Backup {
                generation: info.generation,
                is_up: info.state == ServerState::Up,
                address: backup.address,
                host: info.host.clone(),
                rack: info.rack.clone(),
                read_bytes_per_second: backup.read_bytes_per_second,
                primaries: known.map_or(0, |it| it.primaries),
                avoided_until: known.map_or(Time(0), |it| it.avoided_until),
            };
            self.backups.insert(info.server, backup);
        }
        let others = self.backups.iter().filter(|(id, _)| **id != settings.server);
        let others: Vec<&Backup> = others.map(|(_, backup)| backup).collect();
        let apart = |own: &str, of: fn(&Backup) -> &str| {
            let named = others.iter().map(|it| of(it)).filter(|it| *it != own && !it.is_empty());
            named.collect::<BTreeSet<&str>>().len() >= settings.replicas as usize
        };
        self.shares_hosts = !apart(&settings.host, |it| &it.host);
        self.shares_racks = settings.rack.is_empty() || !apart(&settings.rack, |it| &it.rack);
    }
}

impl State {
    /// Learns who there is.
    pub(super) fn learn(&mut self, list: &ServerList) {
        if list.version <= self.servers.version {
            return;
        }
        let former: BTreeMap<ServerId, (u64, bool)> =
            self.servers.backups.iter().map(|(id, it)| (*id, (it.generation, it.is_up))).collect();
        self.servers.take_in(list, &self.settings);
        // What a server has that is gone for good need not be freed.
        let servers = &self.servers;
        self.frees.retain(|server, _| servers.backups.contains_key(server));
        let changed: BTreeMap<ServerId, bool> = former
            .iter()
            .filter_map(|(id, (generation, was_up))| match self.servers.backups.get(id) {
                Some(now) if now.is_up => {
                    (now.generation != *generation || !was_up).then_some((*id, true))
                }
                _ => Some((*id, false)),
            })
            .collect();
        if changed.is_empty() {
            return;
        }
        let ids: Vec<SegmentId> = self.segments.keys().copied().collect();
        for id in ids {
            self.learn_of_segment(id, &changed);
        }
    }

    /// Servers have gone, or live again.
    fn learn_of_segment(&mut self, id: SegmentId, changed: &BTreeMap<ServerId, bool>) {
        let Some(mut segment) = self.segments.remove(&id) else { return };
        for number in 0..segment.slots.len() {
            let Some(slot) = segment.slots.get_mut(number) else { continue };
            let Some(is_up) = slot.server.and_then(|server| changed.get(&server)) else { continue };
            match (*is_up, slot.is_closed) {
                // It may have lost it, though it should not have.
                (true, _) => {
                    (slot.is_doubtful, slot.is_away) = (true, false);
                    (slot.retry_at, slot.failures) = (Time(0), 0);
                }
                (false, true) if segment.is_whole => slot.is_away = true,
                (false, _) => self.lose(&mut segment, number),
            }
            if segment.is_whole {
                self.to_mend.insert(id);
            } else {
                self.active.insert(id);
            }
        }
        self.segments.insert(id, segment);
    }

    /// A replica is no more, or cannot be gone on with: its place is free for another one.
    pub(super) fn lose(&mut self, segment: &mut super::Segment, number: usize) {
        let Some(slot) = segment.slots.get(number) else { return };
        if slot.server.is_none() {
            return;
        }
        // What is left of an open replica must not count beside those that go on.
        let may_be_open = slot.was_sent && !slot.is_closed && slot.copy.is_none();
        if slot.is_there() || slot.is_closed {
            self.statistics.replicas_lost += 1;
        }
        let was_sent = slot.was_sent;
        let word = slot.server.map(|server| self.lease.word(server, slot.sent_at));
        // With the epoch that it has at most: the next one has a higher one.
        self.leave(segment, number);
        if was_sent {
            segment.epoch = Epoch(segment.epoch.0 + 1);
            if may_be_open && segment.is_head() && !segment.is_whole {
                segment.wanted = segment.epoch;
                segment.lost_word = segment.lost_word.into_iter().chain(word).min();
            }
        }
        if segment.is_whole {
            self.to_mend.insert(segment.id);
        } else {
            self.active.insert(segment.id);
        }
    }

    /// Empties a place; what the server has of it is to be freed.
    pub(super) fn leave(&mut self, segment: &mut super::Segment, number: usize) {
        let Some(slot) = segment.slots.get(number) else { return };
        let was_begun = slot.was_sent || slot.is_atomic;
        let epoch = segment.epoch_for(slot);
        let Some(slot) = segment.slots.get_mut(number) else { return };
        let slot = std::mem::replace(slot, Slot { is_atomic: was_begun, ..Slot::default() });
        let Some(server) = slot.server else { return };
        if number == 0 {
            self.servers.count_primary(server, -1);
        }
        if slot.was_sent {
            let rest = Rest::new(&slot, epoch);
            self.frees.entry(server).or_default().add(segment.id, rest);
        }
    }

    /// Finds places for the replicas of a segment that have none.
    pub(super) fn place(&mut self, id: SegmentId) {
        let has_free = |it: &super::Segment| it.slots.iter().any(|slot| slot.server.is_none());
        if !self.segments.get(&id).is_some_and(has_free) {
            return;
        }
        let Some(mut segment) = self.segments.remove(&id) else { return };
        for number in 0..segment.slots.len() {
            let is_free = segment.slots.get(number).is_some_and(|slot| slot.server.is_none());
            if is_free && (!segment.is_whole || self.copying.contains(&id)) {
                self.place_one(&mut segment, number);
            }
        }
        self.segments.insert(id, segment);
    }

    fn place_one(&mut self, segment: &mut super::Segment, number: usize) {
        let Some(server) = self.choose(segment, number == 0) else { return };
        let token = self.number();
        if number == 0 {
            self.servers.count_primary(server, 1);
        }
        // Also one that is not begun anew: where something counts already, a part must not.
        let is_late = segment.durable_length > 0;
        let epoch = segment.epoch;
        let Some(slot) = segment.slots.get_mut(number) else { return };
        (slot.server, slot.token, slot.begun_at) = (Some(server), token, epoch);
        slot.is_atomic |= is_late;
    }

    /// Chooses a server for a replica: if there is another, none that has the rest of one. There it would
    /// take the place of that rest, which counts until then.
    pub(super) fn choose(
        &mut self,
        segment: &super::Segment,
        is_primary: bool,
    ) -> Option<ServerId> {
        let State { settings, servers, frees, now, random, .. } = self;
        let mut earliest: Option<Time> = None;
        let mut fitting: Vec<(ServerId, &Backup)> = Vec::with_capacity(8);
        let mut with_rests: Vec<(ServerId, &Backup)> = Vec::new();
        for (id, backup) in self::fitting(settings, servers, segment) {
            if backup.avoided_until > *now {
                let until = backup.avoided_until;
                earliest = Some(earliest.map_or(until, |known| known.min(until)));
                continue;
            }
            match frees.get(&id).is_some_and(|frees| frees.has(segment.id)) {
                true => with_rests.push((id, backup)),
                false => fitting.push((id, backup)),
            }
        }
        if fitting.is_empty() {
            fitting = with_rests;
        }
        let mut best: Option<(u64, ServerId)> = None;
        for _ in 0..CANDIDATES.min(fitting.len()) {
            let at = random.below(fitting.len() as u64) as usize;
            if at >= fitting.len() {
                break;
            }
            let (id, backup) = fitting.swap_remove(at);
            let speed = match backup.read_bytes_per_second {
                0 => READ_BYTES_PER_SECOND,
                known => known,
            };
            let bytes = (backup.primaries + 1).saturating_mul(u64::from(settings.segment_bytes));
            let micros = bytes.saturating_mul(1_000_000) / speed;
            if best.is_none_or(|(least, _)| micros < least) {
                best = Some((micros, id));
            }
            if !is_primary {
                break;
            }
        }
        if best.is_none()
            && let Some(at) = earliest
        {
            self.wake_at(at);
        }
        best.map(|(_, id)| id)
    }
}

/// The servers that may have a replica of a segment besides those that have one.
fn fitting<'a>(
    settings: &'a Settings,
    servers: &'a Servers,
    segment: &'a super::Segment,
) -> impl Iterator<Item = (ServerId, &'a Backup)> {
    let taken: Vec<&Backup> =
        segment.slots.iter().filter_map(|slot| servers.backups.get(&slot.server?)).collect();
    let own = settings.server;
    let is_only = servers.up().all(|(id, _)| id == own);
    servers.up().filter(move |(id, backup)| {
        let suits = if *id == own {
            settings.self_backup && is_only
        } else {
            (servers.shares_hosts || backup.host != settings.host)
                && (servers.shares_racks || backup.rack != settings.rack)
        };
        let is_near = |other: &&Backup| {
            !servers.shares_hosts && other.host == backup.host
                || !servers.shares_racks && other.rack == backup.rack
        };
        let is_taken = segment.slots.iter().any(|slot| slot.server == Some(*id));
        suits && !is_taken && !taken.iter().any(is_near)
    })
}
