//! Scenes: things that happen in a certain order, each of them long enough that the next one meets it.

use super::World;
use super::windows::millis;
use crate::scenario::plan::Scene;
use crate::scenario::user::{NARROW, TABLES, WIDE};
use std::time::Duration;
use thunderhead_net::sim::Link;
use thunderhead_runtime::Random;
use thunderhead_simulator::HostId;
use thunderhead_wire::MasterId;

impl World {
    pub(super) fn plays(&mut self, scene: Scene, random: &mut Random) {
        let Some(number) = self.a_master(random) else { return };
        match scene {
            Scene::LateWords => self.hears_late(number, random),
            Scene::BegunAnew => self.dies_while_all_is_begun_anew(number, random),
            Scene::TornRounds => self.loses_power_in_rounds(random),
            Scene::CopiedEarly => self.dies_after_copies(number, random),
            Scene::HeldUpdates => self.holds_updates(random),
            Scene::LeftBehind => self.leaves_one_behind(number, random),
            Scene::PartsLeft => self.dies_with_parts_left(number, random),
            Scene::ChangedDemand => self.changes_demand_in_recovery(number, random),
            Scene::HungDisk if self.hung.is_none() => self.hangs(number, random),
            Scene::HungDisk => self.goes_on_beside_a_hung_disk(number, random),
            Scene::NoCoordinator => self.has_no_coordinator(number, random),
        }
    }

    /// The network holds what users send to a master for seconds: updates of a tablet, which then moves to another master.
    /// There users have them done. They acknowledge that with updates of another table, and the tablet
    /// moves back. Then what was held arrives.
    pub(super) fn holds_updates(&mut self, random: &mut Random) {
        let Some((from, owner)) = self.first_master(NARROW) else { return };
        let others = self.others(from);
        let Some(to) = random.pick(&others).copied().and_then(|it| self.master_of(it)) else {
            return;
        };
        // So that all masters know all users.
        self.seeing.keep_to(WIDE, Duration::from_millis(200));
        self.run_for(Duration::from_millis(200));
        let held = Link { delay: millis(random, 2300..3500), ..self.seeing.plan.link };
        let window = millis(random, 20..80);
        let until = self.simulation.now() + window + held.delay;
        for user in self.users.clone() {
            self.set_link_between(user, from, held, window);
        }
        self.seeing.keep_to(NARROW, window);
        self.run_for(window);
        self.seeing.keep_to(WIDE, Duration::from_secs(5));
        self.add_user("mover", move |user| user.move_to(NARROW, to));
        // Until users ask where the tablet is, for they have no answer.
        self.run_for(Duration::from_millis(1050) + millis(random, 200..600));
        self.add_user("mover", move |user| user.move_to(NARROW, owner));
        self.until(Duration::from_millis(500), |world| {
            world.first_master(NARROW).is_some_and(|(_, it)| it == owner)
        });
        let left = until.saturating_sub(self.simulation.now());
        self.run_for(left + Duration::from_millis(50));
        self.seeing.keep_to(NARROW, Duration::from_millis(100));
        self.run_for(Duration::from_millis(100));
    }

    /// The server that has the first tablet of a table, and its master there.
    fn first_master(&self, table: usize) -> Option<(usize, MasterId)> {
        let tables = self.known()?.0.tables;
        let table = tables.iter().find(|it| it.name == TABLES[table])?;
        let tablet = table.tablets.first()?;
        let ip = tablet.address?.ip();
        let is_it = |host: &HostId| self.simulation.address(*host) == ip;
        let number = self.places.iter().position(|place| place.hosts.iter().any(is_it))?;
        Some((number, tablet.master))
    }

    /// The first master of a server.
    fn master_of(&self, number: usize) -> Option<MasterId> {
        let identity = self.places[number].life.borrow().identity();
        identity.and_then(|it| it.masters.first().copied())
    }

    /// A server that has tablets.
    fn a_master(&self, random: &mut Random) -> Option<usize> {
        let tables = self.known()?.0.tables;
        let addresses = tables.iter().flat_map(|it| &it.tablets).filter_map(|it| it.address);
        let addresses: Vec<_> = addresses.collect();
        let ip = random.pick(&addresses)?.ip();
        let is_it = |host: &HostId| self.simulation.address(*host) == ip;
        self.places.iter().position(|place| place.hosts.iter().any(is_it))
    }

    fn others(&self, number: usize) -> Vec<usize> {
        (0..self.places.len()).filter(|it| *it != number).collect()
    }

    /// What its backups confirm comes to a server nearly too late to be waited for; then it is given up, and
    /// hears nothing but what is under way. One user asks who comes after it, the others ask it.
    fn hears_late(&mut self, number: usize, random: &mut Random) {
        let usual = self.seeing.plan.link;
        let lasts = Duration::from_secs(3);
        let late = Link { delay: millis(random, 180..248), ..usual };
        let others = self.others(number);
        for other in &others {
            self.set_links(*other, number, late, lasts);
        }
        self.seeing.part(lasts);
        self.seeing.rush(lasts);
        let Some(user) = self.users.first().copied() else { return };
        self.run_for(millis(random, 50..300));
        // What it does not know to be durable it does not tell of: so nothing is written for a while.
        self.simulation.crash(user);
        self.run_for(late.delay * 2 + millis(random, 0..500));
        if let Some((server, generation)) = self.identity(number) {
            let blocked = Link { blocked: true, ..usual };
            for other in &others {
                self.set_links(number, *other, blocked, Duration::from_millis(1500));
            }
            let mut deaf: Vec<HostId> = self.seats.iter().map(|seat| seat.host).collect();
            deaf.push(user);
            self.cut_off(number, &deaf, Duration::from_millis(1500));
            self.give_up(server, generation);
        }
        self.run_for(millis(random, 300..500));
        self.simulation.start(user);
        self.run_for(Duration::from_millis(1000));
    }

    /// All other servers are restarted, so that a master begins the replicas of its head anew in the
    /// place of those that they have; it dies while it does.
    fn dies_while_all_is_begun_anew(&mut self, number: usize, random: &mut Random) {
        let far = Link { delay: millis(random, 3..50), ..self.seeing.plan.link };
        self.seeing.rush(Duration::from_millis(500));
        self.run_for(millis(random, 10..300));
        let others = self.others(number);
        let former: Vec<_> = others.iter().map(|it| self.identity(*it)).collect();
        for other in &others {
            self.stop(*other, millis(random, 1..10));
            self.set_links(number, *other, far, Duration::from_secs(2));
        }
        self.until(Duration::from_secs(1), |world| {
            let now = |(it, former): (&usize, &Option<_>)| {
                let identity = world.identity(*it);
                identity.is_some() && identity != *former
            };
            others.iter().zip(&former).all(now)
        });
        self.run_for(far.delay.mul_f64(12.0 * random.fraction()));
        self.stop(number, self.seeing.plan.lasts_for_a_verdict(random));
    }

    /// All servers lose their power, each at an operation of its disk, while much is written: some of a round is there
    /// then, its headers without its data among it.
    fn loses_power_in_rounds(&mut self, random: &mut Random) {
        self.seeing.press(Duration::from_secs(1));
        self.run_for(millis(random, 20..500));
        for place in self.places.clone() {
            self.simulation.stop_at_disk_operation(place.first(), random.within(1..12), true);
        }
        self.run_for(millis(random, 200..1000));
        // Who would overwrite what is lost now would not notice it.
        self.seeing.press(Duration::ZERO);
    }

    /// Nothing that a master appends gets to one server, which may have its head; another one is lost, so
    /// that what that has is made again, from memory out of which was dropped what has been overwritten
    /// meanwhile. Then the master dies.
    fn dies_after_copies(&mut self, number: usize, random: &mut Random) {
        let mut others = self.others(number);
        let lost = others.swap_remove(random.below(others.len() as u64) as usize);
        let missed = others.swap_remove(random.below(others.len() as u64) as usize);
        self.seeing.press(Duration::from_secs(2));
        self.run_for(millis(random, 100..500));
        let blocked = Link { blocked: true, ..self.seeing.plan.link };
        self.set_links(number, missed, blocked, Duration::from_millis(1500));
        self.run_for(millis(random, 100..900));
        let Some((server, generation)) = self.identity(lost) else { return };
        let is_back_soon = random.chance(0.5);
        let lasts = if is_back_soon { millis(random, 50..150) } else { millis(random, 2000..3000) };
        self.stop(lost, lasts);
        self.give_up(server, generation);
        self.run_for(millis(random, 20..150));
        if is_back_soon {
            // It frees what it still has and the master has made again.
            let is_back = |world: &World| {
                let identity = world.identity(lost);
                identity.is_some_and(|it| it != (server, generation))
            };
            self.until(Duration::from_millis(300), is_back);
            self.run_for(millis(random, 5..80));
        }
        self.stop(number, millis(random, 1000..3000));
        // Who would overwrite what is lost now would not notice it.
        self.seeing.press(Duration::ZERO);
    }

    /// A server is away, and a master goes on without it. It comes back with what it has, and gets what it
    /// missed over a slow link; at some moment of that it is left alone: the master and all others die. Whoever
    /// recovers the master meets what it has first, and must not take it for the end of the log.
    fn leaves_one_behind(&mut self, number: usize, random: &mut Random) {
        let mut others = self.others(number);
        let left = others.swap_remove(random.below(others.len() as u64) as usize);
        self.seeing.rush(Duration::from_secs(2));
        self.run_for(millis(random, 20..200));
        let Some((server, generation)) = self.identity(left) else { return };
        self.stop(left, millis(random, 100..600));
        self.give_up(server, generation);
        self.run_for(millis(random, 50..300));
        let far = Link { delay: millis(random, 1..40), ..self.seeing.plan.link };
        self.set_links(number, left, far, Duration::from_secs(2));
        let is_back = |world: &World| {
            let identity = world.identity(left);
            identity.is_some_and(|it| it != (server, generation))
        };
        if !self.until(Duration::from_millis(800), is_back) {
            return;
        }
        self.run_for(far.delay.mul_f64(8.0 * random.fraction()));
        let lasts = millis(random, 1500..3000);
        self.stop(number, lasts);
        for other in others {
            self.stop(other, lasts + millis(random, 0..500));
        }
        // Who would overwrite what is lost now would not notice it.
        self.seeing.press(Duration::ZERO);
    }

    /// A server is lost. A backup far from the one that rebuilds its tablets is given up while it has parts of
    /// side segments; it comes again, and does not hear that it is to free them. When they are made again
    /// elsewhere, and the tablets are served, their master dies, and three servers with it that may have the
    /// whole ones.
    fn dies_with_parts_left(&mut self, lost: usize, random: &mut Random) {
        let usual = self.seeing.plan.link;
        let Some((server, generation)) = self.identity(lost) else { return };
        self.stop(lost, millis(random, 3000..5000));
        self.give_up(server, generation);
        self.until(Duration::from_secs(2), |world| world.rebuilds().is_some());
        let Some(number) = self.rebuilds() else { return };
        let mut others = self.others(number);
        others.retain(|other| *other != lost);
        let left = others.swap_remove(random.below(others.len() as u64) as usize);
        let far = Link { delay: millis(random, 10..30), ..usual };
        self.set_links(number, left, far, Duration::from_secs(1));
        self.run_for(millis(random, 30..250));
        let Some((server, generation)) = self.identity(left) else { return };
        self.stop(left, Duration::from_secs(5));
        self.give_up(server, generation);
        self.until(Duration::from_secs(2), |world| world.rebuilds().is_none());
        self.run_for(millis(random, 5..150));
        self.places[left].starts_at.set(Some(self.simulation.now() + millis(random, 1..100)));
        let identity = self.identity(number);
        for _ in 0..3 {
            let silent = others.swap_remove(random.below(others.len() as u64) as usize);
            self.stop(silent, millis(random, 2000..3000));
        }
        self.stop(number, millis(random, 2000..3000));
        if let Some((server, generation)) = identity {
            self.give_up(server, generation);
        }
        self.run_for(Duration::from_millis(2000));
    }

    /// A server that rebuilds tablets.
    fn rebuilds(&self) -> Option<usize> {
        let leader = self.leader()?;
        let recoveries = leader.recoveries()?;
        let by = recoveries.iter().find_map(|it| it.masters.first()).copied()?;
        let list = leader.servers()?;
        let mut shards = list.servers.iter().flat_map(|it| &it.shards);
        let ip = shards.find(|it| it.master == by)?.address.ip();
        let is_it = |host: &HostId| self.simulation.address(*host) == ip;
        self.places.iter().position(|place| place.hosts.iter().any(is_it))
    }
}
