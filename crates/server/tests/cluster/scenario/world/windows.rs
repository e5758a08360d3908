//! Faults that prolong a moment, and let something happen during it: bytes are on one backup but
//! not on another, or on none; an answer is in flight; one table is written and another is not.

use super::{GENERATION_LASTS_MAX, World};
use crate::scenario::plan::Scene;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::sim::Link;
use thunderhead_runtime::Random;
use thunderhead_simulator::HostId;
use thunderhead_wire::{KeyHash, TableId};

pub(super) fn millis(random: &mut Random, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(random.within(range))
}

impl World {
    /// A server's messages to some other servers take long, or do not arrive. Then it crashes,
    /// perhaps with all others but one. Before that, another server may restart or stay away for
    /// longer, so that much is replicated again.
    pub(super) fn dies_behind_slow_links(
        &mut self,
        number: usize,
        lasts: Duration,
        random: &mut Random,
    ) {
        let others: Vec<usize> = (0..self.places.len()).filter(|it| *it != number).collect();
        let Some(left) = random.pick(&others).copied() else { return self.stop(number, lasts) };
        let mut slow = millis(random, 20..600);
        let usual = self.seeing.plan.link;
        let way = random.below(6);
        // The remaining server has a slow link, and gets the end of each head late.
        let is_left_far = way < 2;
        if is_left_far {
            slow = millis(random, 300..1500);
            let far = Link { delay: millis(random, 100..400), ..usual };
            self.set_links(number, left, far, slow);
        } else {
            let other = random.pick(&others).copied().filter(|_| random.chance(0.5));
            let is_long = random.chance(0.4);
            if let Some(other) = other {
                self.stop(other, if is_long { lasts } else { millis(random, 1..50) });
            }
            if other.is_some() && is_long {
                slow = millis(random, 400..1500);
            }
            for other in &others {
                let link = match random.below(4) {
                    _ if way < 4 && *other != left => continue,
                    0 if way >= 4 => continue,
                    2 if way >= 4 => Link { delay: millis(random, 2..150), ..usual },
                    3 if way >= 4 => Link { blocked: true, ..usual },
                    _ => Link { bytes_per_second: random.magnitude(20_000..1_000_000), ..usual },
                };
                self.set_links(number, *other, link, slow);
            }
        }
        match random.below(3) {
            0 => self.seeing.hurry(slow),
            1 => self.seeing.rush(slow),
            _ => {
                self.seeing.rush(slow);
                self.seeing.part(slow);
            }
        }
        self.run_for(slow.mul_f64(0.1 + 0.9 * random.fraction()));
        self.stop(number, lasts);
        if is_left_far || random.chance(0.3) {
            for other in others.into_iter().filter(|it| *it != left) {
                self.stop(other, (lasts + millis(random, 0..1000)).min(GENERATION_LASTS_MAX));
            }
        }
    }

    /// Changes the links from one server to another for some time.
    pub(super) fn set_links(&mut self, from: usize, to: usize, link: Link, lasts: Duration) {
        let usual = self.seeing.plan.link;
        for (from, to) in self.pairs(from, to) {
            let (from, to) = (self.simulation.address(from), self.simulation.address(to));
            self.simulation.network().set_link(from, to, link);
            self.simulation.after(lasts, move |it| it.network().set_link(from, to, usual));
        }
    }

    /// Changes the links from a host to a server for some time.
    pub(super) fn set_link_between(
        &mut self,
        host: HostId,
        server: usize,
        link: Link,
        lasts: Duration,
    ) {
        let (usual, from) = (self.seeing.plan.link, self.simulation.address(host));
        for to in self.hosts(server) {
            let to = self.simulation.address(to);
            self.simulation.network().set_link(from, to, link);
            self.simulation.after(lasts, move |it| it.network().set_link(from, to, usual));
        }
    }

    /// A healthy server is declared crashed and does not learn it, because it hears only users.
    /// Earlier messages of other servers may still arrive, late. One user restarts, so that it asks
    /// the server's successors; the others ask the server.
    pub(super) fn is_given_up_unheard(
        &mut self,
        number: usize,
        lasts: Duration,
        random: &mut Random,
    ) {
        let usual = self.seeing.plan.link;
        let lasts = (lasts + Duration::from_secs(1)).min(GENERATION_LASTS_MAX);
        let others: Vec<usize> = (0..self.places.len()).filter(|it| *it != number).collect();
        self.seeing.rush(Duration::from_millis(1500));
        self.seeing.part(Duration::from_millis(1500));
        let answers_are_late = random.chance(0.5);
        if answers_are_late {
            let late = Link { delay: millis(random, 200..480), ..usual };
            others.iter().for_each(|other| self.set_links(*other, number, late, lasts));
            self.run_for(late.delay + millis(random, 20..300));
        }
        let Some((server, generation)) = self.identity(number) else { return };
        for other in &others {
            let blocked = Link { blocked: true, ..usual };
            self.set_links(number, *other, blocked, lasts);
            if !answers_are_late {
                self.set_links(*other, number, blocked, lasts);
            }
        }
        let mut deaf: Vec<HostId> = self.seats.iter().map(|seat| seat.host).collect();
        deaf.extend(self.users.first());
        self.cut_off(number, &deaf, lasts);
        if let Some(user) = self.users.first().copied() {
            self.simulation.restart_after(user, Duration::from_millis(1));
            self.simulation.crash(user);
        }
        self.give_up(server, generation);
        self.run_for(millis(random, 300..1000));
    }

    /// The leader crashes, or can no longer write, when it has written the new owners of a part of
    /// a server's tablets.
    pub(super) fn loses_its_leader_half_way(
        &mut self,
        number: usize,
        lasts: Duration,
        random: &mut Random,
    ) {
        let plan = Rc::clone(&self.seeing.plan);
        let identity = self.identity(number);
        self.stop(number, lasts.max(Duration::from_millis(1500)));
        if let Some((server, generation)) = identity {
            self.give_up(server, generation);
        }
        // Owners are written no earlier than a read lease after that.
        self.run_for(Duration::from_millis(350));
        let is_seen = random.chance(0.7);
        let wait = if is_seen { 800..801 } else { 50..500 };
        let until = self.simulation.now() + millis(random, wait);
        let mut most = 0;
        while self.simulation.now() < until {
            self.run_for(if is_seen {
                Duration::from_micros(200)
            } else {
                Duration::from_millis(10)
            });
            let lost = if is_seen { self.unserved() } else { 0 };
            if 0 < lost && lost < most {
                break;
            }
            most = most.max(lost);
        }
        let (leader, way) = (self.leader_host(), random.below(6));
        if way < 4 {
            // Requests in flight to the store are lost, too.
            let store = self.store.clone();
            store.stop();
            let lasts = if way == 0 { millis(random, 100..1000) } else { millis(random, 1..50) };
            self.simulation.after(lasts, move |_| store.start());
        }
        match way {
            0 => {}
            1..5 => {
                self.simulation.restart_after(leader, plan.lasts(random));
                self.simulation.crash(leader);
                // The next leader begins anew, because a participant has crashed as well.
                self.until(Duration::from_secs(4), |world| world.leader().is_some());
                self.run_for(millis(random, 0..400));
                let other = random.below(self.places.len() as u64) as usize;
                if other != number {
                    self.stop(other, plan.lasts_for_a_verdict(random));
                }
            }
            _ => {
                let lasts = millis(random, 100..1500);
                for server in 0..self.places.len() {
                    for host in self.hosts(server) {
                        self.cut_between(host, leader, lasts);
                    }
                }
            }
        }
    }

    /// Returns the number of tablets that no master serves, by the leader's map.
    fn unserved(&self) -> usize {
        let tables = self.known().map_or(Vec::new(), |(map, _)| map.tables);
        let tablets = tables.iter().flat_map(|it| &it.tablets);
        tablets.filter(|it| it.address.is_none()).count()
    }

    /// A server crashes, and the server with the weak disk restarts at the same time, with flipped
    /// bits.
    pub(super) fn dies_as_another_rots(
        &mut self,
        number: usize,
        lasts: Duration,
        random: &mut Random,
    ) {
        let Some(weak) = self.seeing.plan.weak.filter(|weak| *weak != number) else {
            return self.dies_behind_slow_links(number, lasts, random);
        };
        let busy = millis(random, 20..200);
        self.seeing.hurry(busy);
        self.run_for(busy);
        self.stop(number, lasts);
        self.stop(weak, millis(random, 1..50));
        let disk = self.simulation.disk(self.places[weak].first()).clone();
        self.rots(&disk, random);
    }

    /// Links between servers are slow for a while, and tablets move that take more than one
    /// message.
    pub(super) fn moves_over_slow_links(&mut self, random: &mut Random) {
        let lasts = millis(random, 500..2000);
        let far = Link { delay: millis(random, 5..30), ..self.seeing.plan.link };
        for one in 0..self.places.len() {
            for other in (0..self.places.len()).filter(|it| *it != one) {
                self.set_links(one, other, far, lasts);
            }
        }
        self.seeing.hurry_and_move(lasts);
        self.run_for(lasts);
    }

    /// The master of a key crashes in a moment. Until then its messages to another server may be
    /// slow.
    pub(super) fn lets_go_of(&mut self, table: TableId, hash: KeyHash) {
        // The crash comes later. A disk that hangs is the only fault until then, and no other fault
        // may come beside a loss of memory.
        let is_alone = match self.seeing.plan.scene {
            Some(Scene::HungDisk) => !self.has_hung,
            Some(Scene::LostMemory) => true,
            _ => false,
        };
        if !self.is_troubled || is_alone {
            return;
        }
        let tables = self.known().map_or(Vec::new(), |(map, _)| map.tables);
        let tablets = tables.iter().filter(|it| it.id == table).flat_map(|it| &it.tablets);
        let mut its = tablets.filter(|it| it.first <= hash && hash <= it.last);
        let Some(address) = its.find_map(|it| it.address) else { return };
        let is_it = |host: &HostId| self.simulation.address(*host) == address.ip();
        let place = self.places.iter().position(|place| place.hosts.iter().any(is_it));
        let Some(number) = place else { return };
        let mut random = self.random.split();
        let (wait, usual) = (millis(&mut random, 1..300), self.seeing.plan.link);
        let other = random.below(self.places.len() as u64) as usize;
        if other != number && random.chance(0.7) {
            let bytes_per_second = random.magnitude(20_000..300_000);
            self.set_links(number, other, Link { bytes_per_second, ..usual }, wait);
        }
        for host in self.hosts(number) {
            self.simulation.after(wait, move |it| it.crash(host));
        }
        let lasts = self.seeing.plan.lasts_for_a_verdict(&mut random);
        self.places[number].starts_at.set(Some(self.simulation.now() + wait + lasts));
    }
}
