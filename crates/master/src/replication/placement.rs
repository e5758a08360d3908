//! Which servers there are, and which of them gets a replica.

use super::remains::Remains;
use super::segment::Slot;
use super::{Settings, State};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_wire::control::{ServerList, ServerState};
use thunderhead_wire::{Epoch, Generation, SegmentId, ServerId};

/// The number of servers that are drawn.
const CANDIDATES: usize = 5;

/// How long a backup without room, or with its disk behind, is not chosen.
const PASSED_OVER: Duration = Duration::from_millis(50);

/// How long a segment waits for a backup that refuses every replica because its disk is behind. A
/// slow disk makes room within this time. A disk that hangs, or returns an error for each write,
/// never does.
const BEHIND_MAX: Duration = Duration::from_secs(2);

/// Refusals that are farther apart do not belong to one period in which the disk is behind.
const BEHIND_APART: Duration = Duration::from_secs(1);

/// How often a server is looked for where none was found: a list of servers that has changed is
/// looked at at once.
const PLACED_AGAIN: Duration = Duration::from_millis(50);

/// The assumed speed of reading a frame, if it was not measured.
const READ_BYTES_PER_SECOND: u64 = 500 << 20;

/// A server's backup.
#[derive(Clone, Debug)]
pub(super) struct Backup {
    pub(super) generation: Generation,
    pub(super) is_up: bool,
    pub(super) address: SocketAddr,
    host: String,
    rack: String,
    read_bytes_per_second: u64,
    /// The primary replicas of this master that it has.
    primaries: u64,
    avoided_until: Time,
    /// It is avoided because it has no room, not because its disk is behind.
    is_full: bool,
    /// Since when it has refused every replica because its disk is behind.
    behind_since: Option<Time>,
}

impl Backup {
    /// Whether a segment is to wait for its disk.
    fn is_awaited(&self, now: Time) -> bool {
        let has_hope = self.behind_since.is_none_or(|since| now < since + BEHIND_MAX);
        self.avoided_until > now && !self.is_full && has_hope
    }
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

    /// Whether the list has such a server, up or down.
    pub(super) fn is_known(&self, server: ServerId) -> bool {
        self.backups.contains_key(&server)
    }

    pub(super) fn count_primary(&mut self, server: ServerId, by: i64) {
        if let Some(backup) = self.backups.get_mut(&server) {
            backup.primaries = backup.primaries.saturating_add_signed(by);
        }
    }

    pub(super) fn avoid(&mut self, server: ServerId, now: Time, is_full: bool) {
        if let Some(backup) = self.backups.get_mut(&server) {
            let is_later = now > backup.avoided_until + BEHIND_APART;
            let since = backup.behind_since.filter(|_| !is_later).unwrap_or(now);
            backup.behind_since = (!is_full).then_some(since);
            (backup.avoided_until, backup.is_full) = (now + PASSED_OVER, is_full);
        }
    }

    /// Servers that refuse every replica because their disks are behind.
    pub(super) fn behind(&self) -> Vec<String> {
        let behind = self.up().filter(|(_, backup)| backup.behind_since.is_some());
        behind.map(|(server, _)| server.to_string()).collect()
    }

    /// Notes that a backup has begun a replica, so its disk makes progress.
    pub(super) fn on_opened(&mut self, server: ServerId) {
        if let Some(backup) = self.backups.get_mut(&server) {
            backup.behind_since = None;
        }
    }

    pub(super) fn remarks(&self, settings: &Settings) -> Option<String> {
        let others = self.backups.keys().filter(|id| **id != settings.server).count();
        let only_own = settings.self_backup && self.backups.len() == 1;
        let Settings { replicas, .. } = settings;
        if *replicas == 0 || self.backups.is_empty() || only_own {
            return None;
        }
        if others < *replicas as usize {
            return Some(format!(
                "the cluster has {others} other servers that keep replicas, too few for {replicas} replicas of \
                 each segment: start {} more",
                *replicas as usize - others
            ));
        }
        self.shares_hosts.then(|| {
            format!(
                "the cluster has too few hosts to keep {replicas} replicas apart from each other and from \
                 their master: replicas share hosts"
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
                is_full: known.is_some_and(|it| it.is_full),
                behind_since: known
                    .filter(|it| it.generation == info.generation)
                    .and_then(|it| it.behind_since),
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
    /// Learns the server list.
    pub(super) fn learn(&mut self, list: &ServerList) {
        if list.version <= self.servers.version {
            return;
        }
        let former: BTreeMap<ServerId, (Generation, bool)> =
            self.servers.backups.iter().map(|(id, it)| (*id, (it.generation, it.is_up))).collect();
        self.servers.take_in(list, &self.settings);
        self.learn_min_replicas(list.min_replicas);
        (self.mend_at, self.mend_from) = (Time(0), SegmentId::NONE);
        for id in &self.active {
            if let Some(segment) = self.segments.get_mut(id) {
                segment.place_at = Time(0);
            }
        }
        // Replicas on a server that is gone for good need not be freed.
        let servers = &self.servers;
        self.pending_frees.retain(|server, _| servers.backups.contains_key(server));
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
        // A long log has many segments, and mostly one server of many changes.
        let is_there = |slot: &Slot| slot.server.is_some_and(|it| changed.contains_key(&it));
        let there = self.segments.iter().filter(|(_, it)| it.slots.iter().any(is_there));
        let there: Vec<SegmentId> = there.map(|(id, _)| *id).collect();
        for id in there {
            self.learn_of_segment(id, &changed);
        }
    }

    /// Learns `min_replicas` of the cluster.
    fn learn_min_replicas(&mut self, list: Option<u32>) {
        let Some(min_replicas) = list.filter(|it| *it != self.settings.min_replicas) else {
            return;
        };
        self.settings.min_replicas = min_replicas;
        for id in &self.active {
            if let Some(segment) = self.segments.get_mut(id) {
                segment.update(min_replicas, &mut self.spare_blocks);
            }
        }
        self.update_durable();
    }

    /// Handles servers with replicas of a segment that have crashed or restarted.
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
        self.risk.assess(id, Some(&segment));
        self.segments.insert(id, segment);
    }

    /// Handles a replica that is lost or cannot be continued: its place is free for another
    /// replica.
    pub(super) fn lose(&mut self, segment: &mut super::Segment, number: usize) {
        let Some(slot) = segment.slots.get(number) else { return };
        if slot.server.is_none() {
            return;
        }
        // The remains of an open replica must not count beside the remaining replicas.
        let may_be_open = slot.may_count && !slot.is_closed && slot.copy.is_none();
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

    /// Empties a place; the server's replica in it is to be freed.
    pub(super) fn leave(&mut self, segment: &mut super::Segment, number: usize) {
        let Some(slot) = segment.slots.get(number) else { return };
        let was_begun = slot.was_sent || slot.is_atomic;
        let epoch = segment.epoch_for(slot);
        let Some(slot) = segment.slots.get_mut(number) else { return };
        // A segment that went on without this replica goes on without the next one, too.
        let is_waived = slot.is_waived;
        let next = Slot { is_atomic: was_begun, is_waived, ..Slot::default() };
        let slot = std::mem::replace(slot, next);
        let Some(server) = slot.server else { return };
        if number == 0 {
            self.servers.count_primary(server, -1);
        }
        if slot.was_sent {
            let remains = Remains::new(&slot, epoch);
            self.pending_frees.entry(server).or_default().add(segment.id, remains);
        }
    }

    /// Finds places for the replicas of a segment that have none.
    pub(super) fn place(&mut self, id: SegmentId) {
        if self.segments.get(&id).is_some_and(|it| it.is_whole) {
            self.settle(id);
        }
        let has_free = |it: &super::Segment| it.slots.iter().any(|slot| slot.server.is_none());
        if !self.segments.get(&id).is_some_and(has_free) {
            return;
        }
        let Some(mut segment) = self.segments.remove(&id) else { return };
        let is_due = segment.place_at <= self.now;
        let mut goes_on_without_more = false;
        for number in 0..segment.slots.len() {
            let Some(slot) = segment.slots.get(number) else { continue };
            let (is_free, is_waived) = (slot.server.is_none(), slot.is_waived);
            if !is_free || segment.is_whole && !self.copying.contains(&id) {
                continue;
            }
            if is_waived && !is_due {
                self.wake_at(segment.place_at);
                continue;
            }
            if self.place_one(&mut segment, number) || segment.is_whole {
                continue;
            }
            if is_waived || !self.is_behind(&segment) {
                segment.place_at = self.now + PLACED_AGAIN;
                self.wake_at(segment.place_at);
                if let Some(slot) = segment.slots.get_mut(number) {
                    slot.is_waived = true;
                }
                goes_on_without_more |= !is_waived;
            } else {
                segment.behind_since.get_or_insert(self.now);
            }
        }
        if goes_on_without_more {
            segment.update(self.settings.min_replicas, &mut self.spare_blocks);
        }
        self.segments.insert(id, segment);
        if goes_on_without_more {
            self.update_durable();
        }
    }

    /// Whether there is a server now that could take a replica.
    pub(super) fn can_place(&self, segment: &super::Segment) -> bool {
        let mut fitting = self::fitting(&self.settings, &self.servers, segment);
        fitting.any(|(_, backup)| backup.avoided_until <= self.now)
    }

    /// Whether a server that could take a replica refuses only because its disk is behind. The
    /// segment waits for it, for [`BEHIND_MAX`]: without that replica it would have fewer just when
    /// most is written.
    fn is_behind(&self, segment: &super::Segment) -> bool {
        // Other segments may get the buffers for which this one waits.
        if segment.behind_since.is_some_and(|since| self.now >= since + BEHIND_MAX) {
            return false;
        }
        let mut fitting = self::fitting(&self.settings, &self.servers, segment);
        fitting.any(|(_, backup)| backup.is_awaited(self.now))
    }

    /// Settles a segment that has become whole: cancels attempts at replicas that it went on
    /// without. They are made again from memory. Memory may be compacted from now on, and no longer
    /// match such an attempt.
    fn settle(&mut self, id: SegmentId) {
        let is_late = |slot: &Slot| slot.is_waived && !slot.is_in_flight;
        let has_late = |it: &super::Segment| it.is_whole && it.slots.iter().any(is_late);
        if !self.segments.get(&id).is_some_and(has_late) {
            return;
        }
        let Some(mut segment) = self.segments.remove(&id) else { return };
        for number in 0..segment.slots.len() {
            let Some(slot) = segment.slots.get_mut(number).filter(|slot| is_late(slot)) else {
                continue;
            };
            slot.is_waived = false;
            self.lose(&mut segment, number);
        }
        self.to_mend.insert(id);
        self.segments.insert(id, segment);
    }

    /// Finds a server for a replica. Returns whether there is one.
    fn place_one(&mut self, segment: &mut super::Segment, number: usize) -> bool {
        let Some(server) = self.choose(segment, number == 0) else { return false };
        let token = self.number();
        if number == 0 {
            self.servers.count_primary(server, 1);
        }
        let epoch = segment.epoch;
        let Some(slot) = segment.slots.get_mut(number) else { return false };
        (slot.server, slot.token, slot.begun_at) = (Some(server), token, epoch);
        true
    }

    /// Chooses a server for a replica: if there is another, none that has the remains of one. There
    /// it would take the place of these remains, which count until then.
    pub(super) fn choose(
        &mut self,
        segment: &super::Segment,
        is_primary: bool,
    ) -> Option<ServerId> {
        let State { settings, servers, pending_frees, now, random, .. } = self;
        let mut earliest: Option<Time> = None;
        let mut fitting: Vec<(ServerId, &Backup)> = Vec::with_capacity(8);
        let mut with_remains: Vec<(ServerId, &Backup)> = Vec::new();
        for (id, backup) in self::fitting(settings, servers, segment) {
            if backup.avoided_until > *now {
                let until = backup.avoided_until;
                earliest = Some(earliest.map_or(until, |known| known.min(until)));
                continue;
            }
            match pending_frees.get(&id).is_some_and(|pending| pending.has(segment.id)) {
                true => with_remains.push((id, backup)),
                false => fitting.push((id, backup)),
            }
        }
        if fitting.is_empty() {
            fitting = with_remains;
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

/// Returns the servers that may get a replica of a segment, without the servers that have one.
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
