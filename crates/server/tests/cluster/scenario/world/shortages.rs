//! Too few replicas: `min_replicas` changes, a disk hangs for good, no coordinator answers for
//! long.

use super::World;
use super::windows::millis;
use std::time::Duration;
use thunderhead_runtime::Random;
use thunderhead_runtime::sim::disk::DiskModel;

/// How long an operation of a disk takes that hangs: longer than any run.
const HUNG: Duration = Duration::from_secs(24 * 3600);

/// How long an operation may take beside a hung disk. A master waits for that disk for two seconds,
/// and a user asks again only now and then.
const HUNG_MAX: Duration = Duration::from_secs(4);

/// How long all operations of a user may wait for that disk together. A master waits once.
const WAITED_MAX: Duration = Duration::from_secs(6);

impl World {
    /// An operator changes `min_replicas`.
    pub(super) fn changes_demand(&mut self, random: &mut Random) {
        let wanted = self.seeing.plan.another_min_replicas(random);
        self.demands(wanted);
    }

    pub(crate) fn demands(&mut self, min_replicas: u32) {
        self.add_user("operator", move |user| user.sets_min_replicas(min_replicas));
    }

    /// A server is away, so the others write with fewer replicas. An operator changes
    /// `min_replicas`, and a master crashes before or after the servers know the new value. During
    /// its recovery `min_replicas` changes again.
    pub(super) fn changes_demand_in_recovery(&mut self, number: usize, random: &mut Random) {
        let others: Vec<usize> = (0..self.places.len()).filter(|it| *it != number).collect();
        let lasts = self.seeing.plan.lasts_for_a_verdict(random);
        self.seeing.rush(Duration::from_secs(2));
        if let Some(away) = random.pick(&others).copied() {
            self.stop(away, lasts);
            if let Some((server, generation)) = self.identity(away) {
                self.give_up(server, generation);
            }
            self.run_for(millis(random, 20..400));
        }
        self.changes_demand(random);
        self.run_for(millis(random, 0..100));
        if let Some((server, generation)) = self.identity(number) {
            self.stop(number, millis(random, 500..3000));
            self.give_up(server, generation);
        }
        for _ in 0..random.within(1..4) {
            self.run_for(millis(random, 0..300));
            self.changes_demand(random);
        }
        // A user that overwrites a lost value would not notice the loss.
        self.seeing.press(Duration::ZERO);
        self.run_for(millis(random, 0..1000));
    }

    /// The disk of a server hangs for good. The server still answers, and takes replicas into its
    /// memory until that is full. This is the only fault, so writes must soon go on.
    pub(crate) fn hangs(&mut self, number: usize, random: &mut Random) {
        self.hung = Some(number);
        let plan = std::rc::Rc::clone(&self.seeing.plan);
        for host in self.hosts(number) {
            self.simulation.disk(host).set_model(DiskModel { operation: HUNG, ..plan.disk });
        }
        let lasts = millis(random, 9000..14_000);
        self.seeing.press(lasts);
        let until = self.simulation.now() + lasts;
        self.add_user("watcher", move |user| user.work_until(until, HUNG_MAX));
        self.run_for(lasts + HUNG_MAX);
        self.has_hung = true;
        let waited = self.seeing.seen.borrow().waited;
        if waited > WAITED_MAX {
            self.seeing.fail(format!("operations waited for a disk that hangs for {waited:?}"));
        }
    }

    /// A server crashes, is declared crashed or is asked to end while the disk of one server hangs.
    pub(super) fn goes_on_beside_a_hung_disk(&mut self, number: usize, random: &mut Random) {
        self.seeing.rush(Duration::from_secs(1));
        self.run_for(millis(random, 10..500));
        match random.below(4) {
            0 => self.changes_demand(random),
            1 => {
                if let Some((server, generation)) = self.identity(number) {
                    self.give_up(server, generation);
                }
            }
            2 => self.stop(number, self.seeing.plan.lasts_for_a_verdict(random)),
            _ => self.ask_to_leave(number),
        }
        self.run_for(millis(random, 100..3000));
    }

    /// No coordinator runs for so long.
    pub(crate) fn lose_coordinators(&mut self, lasts: Duration) {
        for seat in self.seats.clone() {
            self.simulation.crash(seat.host);
            self.simulation.after(lasts, move |it| it.start(seat.host));
        }
    }

    /// All masters need every replica, a server is away, and no coordinator answers for long. The
    /// masters need a coordinator's word that they were not declared crashed.
    pub(super) fn stop_all_coordinators(&mut self, number: usize, random: &mut Random) {
        let replicas = self.seeing.plan.settings.replicas;
        self.demands(if random.chance(0.7) { replicas } else { 1 });
        self.seeing.rush(Duration::from_secs(3));
        self.run_for(millis(random, 20..300));
        let lasts = Duration::from_millis(random.magnitude(2000..60_000));
        let is_told_before = random.chance(0.5);
        let away = lasts + millis(random, 0..2000) - Duration::from_millis(1000);
        self.stop(number, away);
        if is_told_before {
            if let Some((server, generation)) = self.identity(number) {
                self.give_up(server, generation);
            }
            self.run_for(millis(random, 0..300));
        }
        self.lose_coordinators(lasts);
        self.run_for(lasts);
        self.changes_demand(random);
        self.run_for(millis(random, 100..2000));
    }
}
