//! Scenes: events in a certain order, each of which lasts until the next one has happened.

use super::World;
use super::windows::millis;
use crate::scenario::plan::Scene;
use crate::scenario::user::{NARROW, TABLES, WIDE};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::sim::Link;
use thunderhead_runtime::Random;
use thunderhead_runtime::sim::disk::DiskModel;
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
            Scene::NoCoordinator => self.stop_all_coordinators(number, random),
            Scene::LostMemory => self.dies_as_a_backup_loses_its_memory(number, random),
        }
    }

    /// The network holds messages from users to a master for seconds: updates of a tablet, which
    /// then moves to another master. The users repeat the updates there, and they are done. The
    /// users acknowledge that with updates of another table, and the tablet moves back. Then the
    /// held messages arrive.
    pub(super) fn holds_updates(&mut self, random: &mut Random) {
        let Some((from, owner)) = self.first_master(NARROW) else { return };
        let others = self.others(from);
        let Some(to) = random.pick(&others).copied().and_then(|it| self.master_of(it)) else {
            return;
        };
        // All masters shall know all users.
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
        // Users without an answer fetch the map again within this time.
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

    /// Returns the server that has the first tablet of a table, and its master there.
    fn first_master(&self, table: usize) -> Option<(usize, MasterId)> {
        let tables = self.known()?.0.tables;
        let table = tables.iter().find(|it| it.name == TABLES[table])?;
        let tablet = table.tablets.first()?;
        let ip = tablet.address?.ip();
        let is_it = |host: &HostId| self.simulation.address(*host) == ip;
        let number = self.places.iter().position(|place| place.hosts.iter().any(is_it))?;
        Some((number, tablet.master))
    }

    /// Returns the first master of a server.
    fn master_of(&self, number: usize) -> Option<MasterId> {
        let identity = self.places[number].generation.borrow().identity();
        identity.and_then(|it| it.masters.first().copied())
    }

    /// Draws a server that has tablets.
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

    /// The answers of a server's backups arrive just before the server would stop waiting for them.
    /// Then it is declared crashed, and receives only messages in flight. One user asks its
    /// successors, the others ask the server.
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
        // A master does not show updates that it does not know to be durable. So nothing is written
        // for a while.
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

    /// All other servers are restarted, so a master begins the replicas of its head anew in the
    /// place of the existing ones. The master crashes meanwhile.
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

    /// All servers lose power, each at an operation of its disk, while much is written. Then a part
    /// of a round is on the disk; it may be the headers without their data.
    fn loses_power_in_rounds(&mut self, random: &mut Random) {
        self.seeing.press(Duration::from_secs(1));
        self.run_for(millis(random, 20..500));
        for place in self.places.clone() {
            self.simulation.stop_at_disk_operation(place.first(), random.within(1..12), true);
        }
        self.run_for(millis(random, 200..1000));
        // A user that overwrote a lost object now would not notice the loss.
        self.seeing.press(Duration::ZERO);
    }

    /// A server that may have a master's head gets no more of its bytes. Another server is lost, so
    /// its replicas are made again, from memory from which compaction has dropped overwritten
    /// entries meanwhile. Then the master crashes.
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
            // The server frees the replicas that it still has and that the master has made again.
            let is_back = |world: &World| {
                let identity = world.identity(lost);
                identity.is_some_and(|it| it != (server, generation))
            };
            self.until(Duration::from_millis(300), is_back);
            self.run_for(millis(random, 5..80));
        }
        self.stop(number, millis(random, 1000..3000));
        // A user that overwrote a lost object now would not notice the loss.
        self.seeing.press(Duration::ZERO);
    }

    /// A server is away, and a master goes on without it. It comes back with its old replicas, and
    /// gets the missed bytes over a slow link. At some moment of that the master and all others
    /// crash. The recovery of the master finds this server's replicas first, and must not take them
    /// for the end of the log.
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
        // A user that overwrote a lost object now would not notice the loss.
        self.seeing.press(Duration::ZERO);
    }

    /// A server is lost. A backup with a slow link to the recovery master is declared crashed while
    /// it has parts of side segments. It restarts, and does not get the message to free them. When
    /// they are made again elsewhere, and the tablets are served, the recovery master crashes, and
    /// with it three servers that may have the whole replicas.
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

    /// A backup with a slow disk loses the power, or only its memory, as when its container is
    /// restarted. A master crashes at the same time, before it learns of that. The backup is soon
    /// back with shorter replicas of the master's head. The other backups have all of it, and the
    /// coordinator's messages to them take long. No other fault comes before each segment has all
    /// its replicas again, so everything must be found.
    fn dies_as_a_backup_loses_its_memory(&mut self, number: usize, random: &mut Random) {
        let mut others = self.others(number);
        let forgets = others.swap_remove(random.below(others.len() as u64) as usize);
        let usual = self.seeing.plan.link;
        let disk = self.simulation.disk(self.places[forgets].first()).clone();
        let model = disk.model();
        let operation = millis(random, 5..60);
        disk.set_model(DiskModel { operation, sync: operation, ..model });
        self.seeing.press(Duration::from_secs(2));
        self.run_for(millis(random, 20..800));
        let far = Link { delay: millis(random, 255..400), ..usual };
        let leader = self.leader_host();
        for other in others {
            self.set_link_between(leader, other, far, Duration::from_secs(4));
        }
        let place = self.places[forgets].clone();
        self.loses_memory(&place, random.chance(0.5));
        disk.set_model(model);
        place.starts_at.set(Some(self.simulation.now() + millis(random, 1..50)));
        let identity = self.identity(number);
        self.stop(number, millis(random, 1500..3000));
        if let Some((server, generation)) = identity {
            self.give_up(server, generation);
        }
        // A user that overwrote a lost object now would not notice the loss.
        self.seeing.press(Duration::ZERO);
        self.run_for(Duration::from_secs(4));
        self.becomes_complete();
    }

    /// Waits until all servers are up and each segment has all its replicas.
    fn becomes_complete(&mut self) {
        self.until(Duration::from_secs(30), World::is_whole);
        // Masters ask a backup that has restarted for the replicas that it should have.
        self.run_for(Duration::from_secs(1));
        let is_done = Rc::new(Cell::new(false));
        let done = Rc::clone(&is_done);
        self.add_user("auditor", move |user| {
            let done = Rc::clone(&done);
            async move {
                user.sees_all_replicas().await;
                done.set(true);
            }
        });
        self.until(Duration::from_secs(60), |_| is_done.get());
    }

    /// Returns a server that rebuilds tablets.
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
