//! What makes long what is a moment otherwise, and has something happen in it: bytes are on one backup and not
//! on another, or on none; an answer is on its way; a table is written and another one is not.

use super::{LIFE_LASTS_MAX, World};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::sim::Link;
use thunderhead_runtime::Random;
use thunderhead_simulator::HostId;
use thunderhead_wire::{KeyHash, TableId};

fn millis(random: &mut Random, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(random.within(range))
}

impl World {
    /// What a server sends to some of the others takes long, or does not arrive; then it dies. Before
    /// that another one may begin a new life, so that much is replicated anew.
    pub(super) fn dies_behind_slow_links(
        &mut self,
        number: usize,
        lasts: Duration,
        random: &mut Random,
    ) {
        let usual = self.seeing.plan.link;
        let other = random.below(self.places.len() as u64) as usize;
        if other != number && random.chance(0.5) {
            let wait = if random.chance(0.7) { millis(random, 1..50) } else { lasts };
            self.stop(other, wait);
        }
        let slow = millis(random, 20..600);
        for other in 0..self.places.len() {
            let link = match random.below(4) {
                _ if other == number => continue,
                0 => continue,
                1 => Link { bytes_per_second: random.magnitude(20_000..2_000_000), ..usual },
                2 => Link { delay: millis(random, 2..150), ..usual },
                _ => Link { blocked: true, ..usual },
            };
            self.set_links(number, other, link, slow);
        }
        match random.chance(0.5) {
            true => self.seeing.rush(slow),
            false => self.seeing.hurry(slow),
        }
        self.run_for(slow.mul_f64(random.fraction()));
        self.stop(number, lasts);
    }

    /// What goes from a server to another one goes otherwise for so long.
    fn set_links(&mut self, from: usize, to: usize, link: Link, lasts: Duration) {
        let usual = self.seeing.plan.link;
        for (from, to) in self.pairs(from, to) {
            let (from, to) = (self.simulation.address(from), self.simulation.address(to));
            self.simulation.network().set_link(from, to, link);
            self.simulation.after(lasts, move |it| it.network().set_link(from, to, usual));
        }
    }

    /// A server is given up that works well, and does not hear of it, as it hears nobody but users; what
    /// others had told it just before may still come, and late. A user begins anew, so that it asks
    /// those who come after the server; the others ask the server.
    pub(super) fn is_given_up_unheard(
        &mut self,
        number: usize,
        lasts: Duration,
        random: &mut Random,
    ) {
        let usual = self.seeing.plan.link;
        let lasts = (lasts + Duration::from_secs(1)).min(LIFE_LASTS_MAX);
        let others: Vec<usize> = (0..self.places.len()).filter(|it| *it != number).collect();
        self.seeing.rush(Duration::from_millis(1500));
        let answers_are_late = random.chance(0.5);
        if answers_are_late {
            let late = Link { delay: millis(random, 50..400), ..usual };
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

    /// The leader goes, or cannot write any more, when it has written who comes after a server for a part
    /// of what that had.
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
        let is_seen = random.chance(0.5);
        let until = self.simulation.now()
            + if is_seen { Duration::from_secs(1) } else { millis(random, 400..800) };
        let mut most = 0;
        while self.simulation.now() < until {
            self.run_for(Duration::from_millis(1));
            let lost = if is_seen { self.unserved() } else { 0 };
            if 0 < lost && lost < most {
                break;
            }
            most = most.max(lost);
        }
        match random.below(3) {
            0 => {
                self.store.stop();
                let store = self.store.clone();
                self.simulation.after(millis(random, 100..1000), move |_| store.start());
            }
            1 => {
                let leader = self.leader_host();
                self.simulation.restart_after(leader, plan.lasts(random));
                self.simulation.crash(leader);
            }
            _ => {
                let leader = self.leader_host();
                let others: Vec<HostId> =
                    (0..self.places.len()).flat_map(|it| self.hosts(it)).collect();
                let lasts = millis(random, 100..1500);
                others.into_iter().for_each(|it| self.cut_between(it, leader, lasts));
            }
        }
    }

    /// How many tablets nobody serves, as far as that is known.
    fn unserved(&self) -> usize {
        let tables = self.known().map_or(Vec::new(), |(map, _)| map.tables);
        let tablets = tables.iter().flat_map(|it| &it.tablets);
        tablets.filter(|it| it.address.is_none()).count()
    }

    /// A server dies, and the one whose disk fails begins a new life at the same time, with bits that have
    /// turned over.
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

    /// Servers are far from each other for a while, and tablets move.
    pub(super) fn moves_over_slow_links(&mut self, random: &mut Random) {
        let lasts = millis(random, 300..1500);
        let far = Link { delay: millis(random, 5..50), ..self.seeing.plan.link };
        for one in 0..self.places.len() {
            for other in (0..self.places.len()).filter(|it| *it != one) {
                self.set_links(one, other, far, lasts);
            }
        }
        self.seeing.hurry_and_move(lasts);
        self.run_for(lasts);
    }

    /// The master of a key dies.
    pub(super) fn lets_go_of(&mut self, table: TableId, hash: KeyHash) {
        if !self.is_troubled {
            return;
        }
        let tables = self.known().map_or(Vec::new(), |(map, _)| map.tables);
        let tablets = tables.iter().filter(|it| it.id == table).flat_map(|it| &it.tablets);
        let mut its = tablets.filter(|it| it.first <= hash && hash <= it.last);
        let Some(address) = its.find_map(|it| it.address) else { return };
        let is_it = |host: &HostId| self.simulation.address(*host) == address.ip();
        let place = self.places.iter().position(|place| place.hosts.iter().any(is_it));
        if let Some(number) = place {
            let plan = Rc::clone(&self.seeing.plan);
            let lasts = plan.lasts_for_a_verdict(&mut self.random);
            self.stop(number, lasts);
        }
    }
}
