//! Faults for which servers are declared crashed, or which make their recovery hard: a server is
//! silent for longer than a verdict takes, several crash one after the other, the leader crashes
//! with them, a disk fails and rots.
//!
//! At most one server's disk fails or rots, and only if each segment has a replica elsewhere. So no
//! acknowledged update may be lost.

use super::faults::{ENDINGS, Ending};
use super::{GENERATION_LASTS_MAX, Place, World};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_backup::FILE_NAME;
use thunderhead_net::sim::Link;
use thunderhead_runtime::sim::disk::{DiskModel, SimDisk, Unreadable};
use thunderhead_runtime::{Random, files::Files};
use thunderhead_simulator::HostId;
use thunderhead_wire::control::ServerState;

/// The offset of the frames in a backup's storage: `docs/format.md`.
const DATA_AT: u64 = 1 << 20;

/// The offset of the second slot of the superblock, which the headers follow.
const SECOND_SUPERBLOCK_AT: u64 = 4096;

impl World {
    /// Causes a fault for which a server is declared crashed, and the worst faults while others
    /// rebuild its tablets.
    pub(super) fn ends_a_generation(&mut self, random: &mut Random) {
        let plan = Rc::clone(&self.seeing.plan);
        let number = random.below(self.places.len() as u64) as usize;
        let lasts = plan.lasts_for_a_verdict(random);
        match ENDINGS.draw(random) {
            Ending::Stop => self.stop(number, lasts),
            Ending::StopTwo => {
                self.stop(number, lasts);
                self.run_for(Duration::from_millis(random.within(200..1000)));
                let other = random.below(self.places.len() as u64) as usize;
                self.stop(other, plan.lasts_for_a_verdict(random));
            }
            Ending::StopWithLeader => {
                self.stop(number, lasts);
                let leader = self.leader_host();
                self.run_for(Duration::from_millis(random.within(0..1000)));
                self.simulation.restart_after(leader, plan.lasts(random));
                self.simulation.crash(leader);
            }
            Ending::Pause => {
                for host in self.hosts(number) {
                    self.simulation.pause(host, lasts);
                }
            }
            Ending::Mute => {
                let from = self.simulation.address(self.places[number].first());
                let mut others: Vec<HostId> = self.places.iter().map(Place::first).collect();
                if random.chance(0.5) {
                    others.extend(self.seats.iter().map(|seat| seat.host));
                }
                for other in others {
                    let to = self.simulation.address(other);
                    let blocked = Link { blocked: true, ..plan.link };
                    self.simulation.network().set_link(from, to, blocked);
                    let usual = plan.link;
                    self.simulation.after(lasts, move |it| it.network().set_link(from, to, usual));
                }
            }
            Ending::Weaken => self.weakens(lasts, random),
            Ending::Zombie => self.is_a_zombie(number, lasts, random),
            Ending::LeaveAlone => self.is_left_alone(number, lasts, random),
            Ending::LoseAnswers => self.loses_answers(number, lasts, random),
            Ending::UnheardVerdict => self.is_given_up_unheard(number, lasts, random),
            Ending::LoseLeaderHalfWay => self.loses_its_leader_half_way(number, lasts, random),
            Ending::ChangeDemand => self.changes_demand_in_recovery(number, random),
            Ending::OtherRots => self.dies_as_another_rots(number, lasts, random),
            Ending::SlowLinks => self.dies_behind_slow_links(number, lasts, random),
        }
    }

    /// Coordinators and one user cannot reach a server, but other users can. The server is declared
    /// crashed and does not learn it. That user asks its successors, the others ask the server. Its
    /// backups hear it all the time, or never, or until the verdict.
    fn is_a_zombie(&mut self, number: usize, lasts: Duration, random: &mut Random) {
        let lasts = (lasts + Duration::from_secs(1)).min(GENERATION_LASTS_MAX);
        let servers = self.places.len();
        let one = random.below(servers as u64) as usize;
        let alone = random.below(3);
        let hears_not = |it: &usize| *it != number && (alone == 1 || *it == one);
        let mut others: Vec<HostId> = self.seats.iter().map(|seat| seat.host).collect();
        others.extend((0..servers).filter(hears_not).flat_map(|it| self.hosts(it)));
        others.extend(self.users.first());
        self.cut_off(number, &others, lasts);
        self.seeing.part(lasts);
        let Some((server, generation)) = self.identity(number).filter(|_| alone == 2) else {
            return;
        };
        let is_given_up = |world: &World| {
            let list = world.known().map(|(_, list)| list.servers).unwrap_or_default();
            let mut known = list.iter().filter(|it| it.server == server);
            known.any(|it| it.generation != generation || it.state != ServerState::Up)
        };
        let begin = self.simulation.now();
        while !is_given_up(self) && self.simulation.now() - begin < lasts {
            self.run_for(Duration::from_millis(5));
        }
        let others: Vec<HostId> =
            (0..servers).filter(|it| *it != number).flat_map(|it| self.hosts(it)).collect();
        self.cut_off(number, &others, lasts.saturating_sub(self.simulation.now() - begin));
    }

    /// Cuts a server off from other hosts for some time.
    pub(super) fn cut_off(&mut self, number: usize, others: &[HostId], lasts: Duration) {
        for one in self.hosts(number) {
            for other in others {
                self.cut_between(one, *other, lasts);
            }
        }
    }

    /// Loses a server's answers to users, then crashes it: the users ask its successors again.
    fn loses_answers(&mut self, number: usize, lasts: Duration, random: &mut Random) {
        let usual = self.seeing.plan.link;
        let missed = Duration::from_millis(random.within(5..200));
        for from in self.hosts(number) {
            for user in self.users.clone() {
                let from = self.simulation.address(from);
                let to = self.simulation.address(user);
                let blocked = Link { blocked: true, ..usual };
                self.simulation.network().set_link(from, to, blocked);
                let ends = missed + Duration::from_millis(5);
                self.simulation.after(ends, move |it| it.network().set_link(from, to, usual));
            }
        }
        self.seeing.hurry(missed);
        self.run_for(missed);
        self.stop(number, lasts);
    }

    /// A server misses replication messages of another one, for a moment or for longer. Then all
    /// others crash.
    fn is_left_alone(&mut self, number: usize, lasts: Duration, random: &mut Random) {
        let missed = Duration::from_millis(random.within(20..500));
        let other = random.below(self.places.len() as u64) as usize;
        match random.below(4) {
            _ if other == number => {}
            0 => self.stop(number, Duration::from_millis(random.within(1..100))),
            1 => self.comes_again_while_nothing_is_noted(number, random),
            _ => {
                for (one, other) in self.pairs(number, other) {
                    self.cut_between(one, other, missed);
                }
            }
        }
        let leader = self.leader_host();
        if random.chance(0.3) {
            // The other server's messages to the coordinator come late.
            for host in self.hosts(other) {
                self.cut_between(
                    host,
                    leader,
                    missed + Duration::from_millis(random.within(1..300)),
                );
            }
        }
        self.seeing.hurry(missed + Duration::from_millis(100));
        self.run_for(Duration::from_nanos((missed.as_nanos() as f64 * random.fraction()) as u64));
        for server in 0..self.places.len() {
            if server != number {
                let more = Duration::from_millis(random.within(0..1000));
                self.stop(server, (lasts + more).min(GENERATION_LASTS_MAX));
            }
        }
    }

    /// A server restarts. When the cluster knows its new generation, the metastore stops for a
    /// while, so that nothing more can be written, such as the epochs of heads that had replicas
    /// there.
    fn comes_again_while_nothing_is_noted(&mut self, number: usize, random: &mut Random) {
        let before = self.identity(number);
        self.stop(number, Duration::from_millis(random.within(1..100)));
        for _ in 0..200 {
            let now = self.identity(number);
            if now.is_some() && now != before {
                break;
            }
            self.run_for(Duration::from_millis(2));
        }
        self.store.stop();
        let (store, lasts) = (self.store.clone(), Duration::from_millis(random.within(300..1000)));
        self.simulation.after(lasts, move |_| store.start());
    }

    pub(super) fn pairs(&self, one: usize, other: usize) -> Vec<(HostId, HostId)> {
        let others = self.hosts(other);
        let with =
            |host: HostId| others.iter().map(move |other| (host, *other)).collect::<Vec<_>>();
        self.hosts(one).into_iter().flat_map(with).collect()
    }

    /// Cuts the links between two hosts for some time.
    pub(super) fn cut_between(&mut self, one: HostId, other: HostId, lasts: Duration) {
        let usual = self.seeing.plan.link;
        let (a, b) = (self.simulation.address(one), self.simulation.address(other));
        for (from, to) in [(a, b), (b, a)] {
            self.simulation.network().set_link(from, to, Link { blocked: true, ..usual });
            self.simulation.after(lasts, move |it| it.network().set_link(from, to, usual));
        }
    }

    /// Counts the shards that have taken back the log of their former generation, by the list of
    /// servers.
    pub(crate) fn see_lineages(&mut self) {
        let servers = self.known().map_or(Vec::new(), |(_, list)| list.servers);
        let lineages = servers.iter().flat_map(|server| &server.lineages);
        self.taken_back.extend(lineages.map(|(master, _)| *master));
    }

    /// The weak disk fails for a while, or rots.
    fn weakens(&mut self, lasts: Duration, random: &mut Random) {
        let plan = Rc::clone(&self.seeing.plan);
        let Some(place) = plan.weak.and_then(|number| self.places.get(number)) else { return };
        let disk = self.simulation.disk(place.first()).clone();
        if random.chance(0.5) {
            let failure = random.fraction();
            disk.set_model(DiskModel { failure: failure * failure, ..plan.disk });
            let usual = plan.disk;
            return self.simulation.after(lasts, move |_| disk.set_model(usual));
        }
        self.rots(&disk, random);
    }

    pub(super) fn rots(&mut self, disk: &SimDisk, random: &mut Random) {
        let usual = disk.model();
        disk.set_model(DiskModel { failure: 0.0, ..usual });
        self.rotted += rot(disk, random);
        if random.chance(0.3) {
            spoil(disk, random);
        }
        disk.set_model(usual);
        let _ = disk.take_spent();
    }
}

/// Flips bits of replicas, and returns how many. The superblock and the headers stay intact:
/// without them the store would be a different one.
fn rot(disk: &SimDisk, random: &mut Random) -> u64 {
    let mut files = disk.files();
    let Ok(file) = files.open(FILE_NAME, false) else { return 0 };
    let length = files.length(file).unwrap_or(0);
    let bits = if length > DATA_AT { random.magnitude(1..500) } else { 0 };
    let mut turns = || {
        let (at, mut byte) = (random.within(DATA_AT..length), [0]);
        let read = files.read_at(file, at, &mut byte);
        let turned = [byte[0] ^ 1 << random.below(8)];
        read.and_then(|_| files.write_at(file, at, &turned)).is_ok()
    };
    // The machine may be set to stop at one of these operations.
    (0..bits).take_while(|_| turns()).count() as u64
}

/// Makes sectors unreadable, in headers and in replicas. One superblock stays intact: without it
/// the store would be a different one.
fn spoil(disk: &SimDisk, random: &mut Random) {
    let mut files = disk.files();
    let Ok(file) = files.open(FILE_NAME, false) else { return };
    let length = files.length(file).unwrap_or(0);
    for _ in 0..random.magnitude(1..20) {
        let until =
            if random.chance(0.5) { SECOND_SUPERBLOCK_AT..DATA_AT } else { DATA_AT..length };
        let how = match random.chance(0.5) {
            true => Unreadable::UntilWritten,
            false => Unreadable::ForGood,
        };
        disk.spoil(FILE_NAME, random.within(until), how);
    }
}
