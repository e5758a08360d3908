//! Users create, split and drop tables and open and close leases, each among its own names.
//! Meanwhile leaders crash, stand still and are cut off from a store that loses messages, and
//! servers crash and restart. Every answer must hold under every later leader:
//!
//! - a table exists from the answer to its creation to the first attempt to drop it, under one id,
//!   whole, with one owner for each tablet; a dropped table does not return;
//! - no id of a table, lease, server or master is given out twice;
//! - a lease that was reported as over stays so, and a lease that was not closed lasts;
//! - versions of the map do not go back;
//! - replicas are freed only when no tablet remains (the servers check the store);
//! - after all faults have healed, all unfinished work is done.

use crate::control_plane::{ControlPlane, options, stored};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_metastore::sim::Faults;
use thunderhead_rpc::{CallError, Node, Opcode};
use thunderhead_runtime::Random;
use thunderhead_testkit::{Place, User as Asker, Weighted};
use thunderhead_wire::control::{
    CheckLeases, CreateTable, DropTable, Empty, Lease, LeaseOpened, LeasesChecked, Map, MapRequest,
    SplitTablet, TableInfo, of_body, to_body,
};
use thunderhead_wire::{KeyHash, LeaseId, Status, TableId, TabletRange};

const USERS: usize = 3;
const NAMES: u64 = 3;
const FAULTS_LAST: Duration = Duration::from_secs(40);

/// A user's knowledge of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Absent,
    Present(TableId),
    /// An attempt to create or to drop it may have succeeded.
    Unknown,
}

/// The observations of all users.
#[derive(Default)]
struct Seen {
    tables: BTreeMap<TableId, String>,
    leases: BTreeSet<LeaseId>,
    ended: BTreeSet<LeaseId>,
    /// Leases for which attempts to close were made.
    closing: BTreeSet<LeaseId>,
    known: BTreeMap<String, Known>,
    done: usize,
    unknown: usize,
    stops: bool,
    stopped: usize,
    /// The events, in order.
    log: Vec<String>,
}

type Shared = Rc<RefCell<Seen>>;

struct User {
    number: usize,
    asker: Asker,
    seen: Shared,
    random: Random,
    map_version: u64,
}

impl User {
    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        opcode: Opcode,
        message: &impl serde::Serialize,
    ) -> Result<T, CallError> {
        let answer = self.asker.ask_for(Duration::from_secs(4), opcode, to_body(message)).await;
        let mut seen = self.seen.borrow_mut();
        let time = self.asker.tasks.now();
        seen.log.push(format!("{time:?} user {}: {opcode}: {answer:?}", self.number));
        match &answer {
            Ok(_) => seen.done += 1,
            Err(_) => seen.unknown += 1,
        }
        answer.map(|body| of_body(&body).expect("a well-formed answer"))
    }

    fn learn(&self, name: &str, known: Known) {
        self.seen.borrow_mut().known.insert(name.to_owned(), known);
    }

    fn known(&self, name: &str) -> Known {
        self.seen.borrow().known.get(name).copied().unwrap_or(Known::Absent)
    }

    async fn create(&mut self, name: &str) {
        let before = self.known(name);
        self.learn(name, Known::Unknown);
        let server_span = self.random.within(1..6) as u32;
        let message = CreateTable::spread(name, server_span);
        match self.ask::<TableInfo>(Opcode::CreateTable, &message).await {
            Ok(table) => {
                assert!(!matches!(before, Known::Present(_)), "{name} was made twice");
                let old = self.seen.borrow_mut().tables.insert(table.id, name.to_owned());
                assert_eq!(old, None, "{} is given out twice", table.id);
                whole(&table);
                self.learn(name, Known::Present(table.id));
            }
            // The table exists, but no answer told its id.
            Err(CallError::Refused { status: Status::InProgress, .. }) => {}
            Err(CallError::Refused { status: Status::TableExists, .. }) => {
                assert_ne!(before, Known::Absent, "{name} exists, and no user created it");
                self.learn(name, before);
            }
            Err(CallError::Refused { status, .. }) if status != Status::LeadershipLost => {
                self.learn(name, before);
            }
            Err(_) => {}
        }
    }

    async fn drop_table(&mut self, name: &str) {
        let before = self.known(name);
        self.learn(name, Known::Unknown);
        match self.ask::<Empty>(Opcode::DropTable, &DropTable::named(name)).await {
            Ok(Empty {}) => {
                assert_ne!(before, Known::Absent, "{name} was dropped and not there");
                self.learn(name, Known::Absent);
            }
            Err(CallError::Refused { status: Status::NoSuchTable, .. }) => {
                assert!(!matches!(before, Known::Present(_)), "{name} was lost");
                // An unfinished creation has not written the table yet. It was sent before, so it
                // will fail.
                self.learn(name, Known::Absent);
            }
            Err(CallError::Refused { status, .. }) if status != Status::LeadershipLost => {
                self.learn(name, before);
            }
            Err(_) => {}
        }
    }

    async fn split(&mut self, name: &str) {
        let at = KeyHash(self.random.number());
        let message = SplitTablet { table: name.to_owned(), at };
        if let Ok(table) = self.ask::<TableInfo>(Opcode::SplitTablet, &message).await {
            assert!(table.tablets.iter().any(|tablet| tablet.first == at));
            whole(&table);
        }
    }

    async fn look(&mut self) {
        let before = self.seen.borrow().known.clone();
        let Ok(map) = self.ask::<Map>(Opcode::Map, &MapRequest::default()).await else { return };
        assert!(map.version >= self.map_version, "the map's version went back");
        self.map_version = map.version;
        self.compare(&map, &before);
    }

    /// Own names must match the user's knowledge: no other user changes them.
    fn compare(&self, map: &Map, known: &BTreeMap<String, Known>) {
        let mut ids = BTreeSet::new();
        let mut names = BTreeMap::new();
        for table in &map.tables {
            assert!(ids.insert(table.id), "{} is there twice", table.id);
            let old = names.insert(table.name.clone(), table.id);
            assert_eq!(old, None, "{} is there twice", table.name);
            whole(table);
        }
        let own = format!("{}-", self.number);
        for (name, known) in known.iter().filter(|(name, _)| name.starts_with(&own)) {
            match known {
                Known::Absent => assert_eq!(names.get(name), None, "{name} was dropped"),
                Known::Present(id) => assert_eq!(names.get(name), Some(id), "{name} was made"),
                Known::Unknown => {}
            }
        }
    }

    async fn open(&self) {
        let Ok(opened) = self.ask::<LeaseOpened>(Opcode::OpenLease, &Empty {}).await else {
            return;
        };
        let new = self.seen.borrow_mut().leases.insert(opened.lease);
        assert!(new, "lease {} is given out twice", opened.lease);
    }

    async fn close(&mut self) {
        let leases: Vec<LeaseId> = self.seen.borrow().leases.iter().copied().collect();
        let Some(lease) = self.random.pick(&leases).copied() else { return };
        self.seen.borrow_mut().closing.insert(lease);
        if self.ask::<Empty>(Opcode::CloseLease, &Lease { lease }).await.is_ok() {
            self.seen.borrow_mut().ended.insert(lease);
        }
    }

    async fn check(&self) {
        let (leases, before) = {
            let seen = self.seen.borrow();
            (seen.leases.iter().copied().collect(), seen.ended.clone())
        };
        let checked = self.ask::<LeasesChecked>(Opcode::CheckLeases, &CheckLeases { leases }).await;
        let Ok(LeasesChecked { ended, .. }) = checked else { return };
        let ended: BTreeSet<LeaseId> = ended.into_iter().collect();
        let mut seen = self.seen.borrow_mut();
        assert!(before.is_subset(&ended), "a lease that ended is open again");
        assert!(ended.is_subset(&seen.closing), "a lease ended that no user closed");
        seen.ended.extend(ended);
    }

    async fn live(mut self) {
        while !self.seen.borrow().stops {
            let name = format!("{}-{}", self.number, self.random.below(NAMES));
            match self.random.below(9) {
                0 | 1 => self.create(&name).await,
                2 => self.drop_table(&name).await,
                3 => self.split(&name).await,
                4 | 5 => self.look().await,
                6 => self.open().await,
                7 => self.close().await,
                _ => self.check().await,
            }
            let wait = Duration::from_millis(self.random.below(200));
            self.asker.tasks.sleep(wait).await;
        }
        self.seen.borrow_mut().stopped += 1;
    }
}

fn whole(table: &TableInfo) {
    let tablets = &table.tablets;
    assert_eq!(tablets.first().map(|it| it.first), Some(KeyHash::MIN));
    assert_eq!(tablets.last().map(|it| it.last), Some(KeyHash::MAX));
    for pair in tablets.windows(2) {
        assert_eq!(pair[0].last.0 + 1, pair[1].first.0, "a gap, or two owners");
    }
}

fn add_user(cluster: &mut ControlPlane, number: usize, seen: &Shared, random: &mut Random) {
    let coordinators: Rc<[SocketAddr]> = cluster.addresses(Place::Coordinator).into();
    let (seen, random) = (Rc::clone(seen), random.split());
    cluster.add_user(move |boot| {
        let node = Node::new(boot.world, boot.transport, ());
        let asker = Asker::new(&node, coordinators[0], &coordinators);
        let user =
            User { number, asker, seen: Rc::clone(&seen), random: random.clone(), map_version: 0 };
        node.tasks().spawn(user.live());
        Box::new(node)
    });
}

#[derive(Clone, Copy)]
enum Fault {
    CrashCoordinator,
    PauseCoordinator,
    StopStore,
    CutOffFromStore,
    CrashServer,
    PauseServer,
    /// A verdict on a live server, which learns it only later.
    Verdict,
}

const FAULTS: Weighted<Fault> = Weighted(&[
    (1, Fault::CrashCoordinator),
    (1, Fault::PauseCoordinator),
    (1, Fault::StopStore),
    (1, Fault::CutOffFromStore),
    (1, Fault::CrashServer),
    (1, Fault::PauseServer),
    (1, Fault::Verdict),
]);

/// Plans the faults.
fn plan(cluster: &mut ControlPlane, random: &mut Random) {
    let mut at = Duration::from_secs(2);
    while at < FAULTS_LAST {
        let coordinator = random.below(cluster.seats.len() as u64) as usize;
        let server = random.below(cluster.servers.len() as u64) as usize;
        let length = Duration::from_millis(random.within(50..5000));
        let deaf = random.chance(0.5);
        let fault = FAULTS.draw(random);
        plan_fault(cluster, fault, at, length, (coordinator, server, deaf));
        at += Duration::from_millis(random.within(200..4000));
    }
}

fn plan_fault(
    cluster: &mut ControlPlane,
    fault: Fault,
    at: Duration,
    length: Duration,
    (coordinator, server, deaf): (usize, usize, bool),
) {
    let (seat, store) = (cluster.seats[coordinator].clone(), cluster.store.clone());
    let known = Rc::clone(&cluster.servers[server]);
    let coordinator = cluster.host(Place::Coordinator(coordinator));
    let server = cluster.host(server);
    let simulation = &mut cluster.simulation;
    match fault {
        Fault::CrashCoordinator => simulation.at(at, move |it| {
            it.crash(coordinator);
            it.after(length, move |it| it.start(coordinator));
        }),
        Fault::PauseCoordinator => simulation.at(at, move |it| it.pause(coordinator, length)),
        Fault::StopStore => simulation.at(at, move |it| {
            store.stop();
            it.after(length / 2, move |_| store.start());
        }),
        Fault::CutOffFromStore => simulation.at(at, move |it| {
            let Some(client) = seat.client() else { return };
            if deaf {
                store.deafen(client);
            } else {
                store.cut(client);
            }
            it.after(length, move |_| store.mend(client));
        }),
        Fault::CrashServer => simulation.at(at, move |it| {
            it.crash(server);
            it.after(length / 4, move |it| it.start(server));
        }),
        Fault::PauseServer => simulation.at(at, move |it| it.pause(server, length)),
        Fault::Verdict => simulation.at(at, move |it| {
            let generation = {
                let known = known.borrow();
                let generation = known.enlisted.as_ref().map(|it| it.generation);
                known.known.map(|it| it.server).zip(generation)
            };
            if let Some((server, generation)) = generation
                && let Some((handle, _)) = &*seat.handle.borrow()
            {
                handle.server_failed(server, generation);
            }
            it.after(length, move |it| {
                it.crash(server);
                it.start(server);
            });
        }),
    }
}

/// Runs a seed. Returns values that differ between seeds: its digest, the number of successes, of
/// failures and of leaders.
fn run(seed: u64) -> (u64, usize, usize, u64) {
    let mut random = Random::from_seed(seed);
    let mut cluster = ControlPlane::new(seed, 2, 3, &options());
    let seen = Shared::default();
    for number in 0..USERS {
        add_user(&mut cluster, number, &seen, &mut random);
    }
    cluster.rest();
    let mut faults = Faults::drawn(&mut random);
    faults.delay.1 = faults.delay.1.min(Duration::from_millis(50));
    cluster.store.set_faults(faults);
    plan(&mut cluster, &mut random);
    cluster.simulation.run_until(FAULTS_LAST);
    // All faults have healed.
    cluster.store.set_faults(Faults::none());
    cluster.store.start();
    for seat in cluster.seats.clone() {
        seat.client().into_iter().for_each(|client| cluster.store.mend(client));
    }
    cluster.simulation.run_for(Duration::from_secs(6));
    seen.borrow_mut().stops = true;
    cluster.until("users stop", |_| seen.borrow().stopped == USERS);
    cluster.until_all_are_there();
    cluster.until("a coordinator leads", |cluster| cluster.leader().is_some());
    let is_settled = |cluster: &ControlPlane| {
        let all = |name: &str| stored(&cluster.store, name);
        let of = |it: &serde_json::Value, what: &str| it[what].as_array().unwrap().clone();
        all("servers").iter().all(|it| of(it, "former").is_empty())
            && all("tables").iter().all(|it| of(it, "tablets").iter().all(|it| it["taken"] == true))
            && all("tables").iter().all(|it| it["dropped"] == false)
            && cluster.leader().is_some()
    };
    cluster.until(&format!("seed {seed}: all is done"), is_settled);
    // The last master may not know yet that it owns its rebuilt tablets.
    cluster.until(&format!("seed {seed}: tablets are where the map says"), all_have_their_tablets);
    let map = cluster.handle().map().unwrap();
    let seen = seen.borrow();
    for (name, known) in &seen.known {
        let there = map.tables.iter().find(|table| table.name == *name).map(|table| table.id);
        match known {
            Known::Absent => assert_eq!(there, None, "seed {seed}: {name}"),
            Known::Present(id) => assert_eq!(there, Some(*id), "seed {seed}: {name}"),
            Known::Unknown => {}
        }
    }
    // Each start of a server gives new masters, and every tablet is where the map says.
    let mut masters = BTreeSet::new();
    for server in &cluster.servers {
        let server = server.borrow();
        for master in &server.enlisted.as_ref().unwrap().masters {
            assert!(masters.insert(*master), "seed {seed}: {master} is given out twice");
        }
    }
    map.tables.iter().for_each(whole);
    let (done, unknown) = (seen.done, seen.unknown);
    let terms = map.version >> 20;
    (cluster.simulation.digest(), done, unknown, terms)
}

/// Whether every tablet is where the map says.
fn all_have_their_tablets(cluster: &ControlPlane) -> bool {
    let Some(map) = cluster.leader().and_then(|_| cluster.handle().map()) else { return false };
    let mut tablets =
        map.tables.iter().flat_map(|table| table.tablets.iter().map(move |it| (table.id, it)));
    tablets.all(|(table, tablet)| {
        cluster.servers.iter().any(|server| {
            let server = server.borrow();
            let masters = server.enlisted.as_ref().map_or(&[][..], |it| &it.masters);
            let has =
                server.tablets.get(&tablet.master).filter(|_| masters.contains(&tablet.master));
            has.is_some_and(|has| {
                let holds = |it: &TabletRange| it.first <= tablet.first && tablet.last <= it.last;
                has.iter().any(|it| it.table == table && holds(it))
            })
        })
    })
}

#[test]
fn answers_hold_under_every_later_leader() {
    let (mut done, mut failed, mut terms) = (0, 0, 0);
    let seeds = 120;
    for seed in 0..seeds {
        let (_, done_here, failed_here, terms_here) = run(seed);
        done += done_here;
        failed += failed_here;
        terms += terms_here;
    }
    // Otherwise the test would prove nothing.
    let seeds = seeds as usize;
    assert!(done > 100 * seeds && failed > 20 * seeds, "{done} done, {failed} failed");
    assert!(terms > 3 * seeds as u64, "{terms} leaders");
}

#[test]
fn a_seed_repeats_the_same_run() {
    for seed in [3, 17] {
        assert_eq!(run(seed), run(seed));
    }
}
