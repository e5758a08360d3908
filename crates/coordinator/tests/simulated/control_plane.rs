//! Real coordinators over one simulated store, fake servers that obey commands and record them, and
//! a user that sends requests.

mod fake_server;

use fake_server::FakeServer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_coordinator::{Coordinator, Handle, Options, Probing};
use thunderhead_metastore::sim::{ClientId, Faults, SimStore};
use thunderhead_metastore::{Answer, Key, Prefix, Request as Ask};
use thunderhead_rpc::{CallError, Node, Opcode};
use thunderhead_runtime::Random;
use thunderhead_runtime::sim::clock::TrueTime;
use thunderhead_simulator::Options as Simulated;
use thunderhead_testkit::{Cluster, Place, User, serve};
use thunderhead_wire::control::{
    BackupInfo, BeginRecovery, CheckLeases, ClusterStatus, CreateTable, DropTable, Empty, Enlist,
    Enlisted, Followed, Head, Known, LeaseOpened, LeasesChecked, Map, MapRequest, OptionsOfTable,
    Recover, Register, Registered, ReplicaInfo, ServerList, Settings, TableInfo, TabletStatus,
    of_body, to_body,
};
use thunderhead_wire::{
    Epoch, Format, LeaseId, MasterId, RecoveryId, SegmentId, ServerId, Status, TabletRange,
};

/// The address that each coordinator gives as its own.
pub(crate) const ADDRESS: &str = "0.0.0.0:7100";
pub(crate) const SHARD_PORT: u16 = 7200;
pub(crate) const BACKUP_PORT: u16 = 7300;

pub(crate) fn settings() -> Settings {
    Settings {
        replicas: 2,
        min_replicas: 1,
        durability: "replicated".into(),
        segment_bytes: 1 << 20,
        self_backup: false,
    }
}

pub(crate) fn options() -> Options {
    Options {
        settings: settings(),
        leadership_ttl: Duration::from_secs(2),
        // Most tests here have servers that are silent for long.
        probing: Probing::OFF,
        ..Options::default()
    }
}

/// The test's view of a coordinator.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) handle: Rc<RefCell<Option<(Handle, ClientId)>>>,
    pub(crate) newest: Rc<Cell<Format>>,
}

impl Seat {
    /// Returns the coordinator's connection to the store.
    pub(crate) fn client(&self) -> Option<ClientId> {
        self.handle.borrow().as_ref().map(|(_, client)| *client)
    }
}

/// A server's state and behaviour.
#[derive(Default)]
pub(crate) struct Server {
    /// Its identity, which outlasts its process.
    pub(crate) known: Option<Known>,
    /// Its present generation.
    pub(crate) enlisted: Option<Enlisted>,
    /// The tablets of its masters, of all generations.
    pub(crate) tablets: BTreeMap<MasterId, BTreeSet<TabletRange>>,
    /// The options of tables that came with tablets.
    pub(crate) options: Vec<OptionsOfTable>,
    /// The orders to recover that it got.
    pub(crate) recovers: Vec<Recover>,
    /// The reading lists that it got.
    pub(crate) begun: Vec<BeginRecovery>,
    /// Its replicas. They outlast its process.
    pub(crate) replicas: BTreeMap<MasterId, Vec<ReplicaInfo>>,
    /// Its answers about heads in place of the true ones.
    pub(crate) heads: BTreeMap<MasterId, Result<Head, Status>>,
    /// When it was fenced against masters, in this generation, by the world's time.
    pub(crate) fenced_at: BTreeMap<MasterId, u64>,
    /// Its backup does not answer.
    pub(crate) backup_is_deaf: bool,
    /// The memory of each of its shards; 0 if it does not report it.
    pub(crate) memory_bytes: u64,
    /// Its shards refuse tablets.
    pub(crate) is_full: bool,
    /// Its shards do not report that they are full.
    pub(crate) hides_its_room: bool,
    /// The segments of former logs that its shards report as needed.
    pub(crate) inherited: Option<Vec<SegmentId>>,
    /// Its backup's answer to a reading list, if it refuses.
    pub(crate) does_not_read: Option<Status>,
    /// Its answer to an order to recover, if it refuses.
    pub(crate) refuses: Option<Status>,
    /// Its reports of rebuilt tablets without an answer: it begins no part that overlaps them.
    pub(crate) telling: BTreeMap<(MasterId, RecoveryId, u32), Vec<TabletRange>>,
    /// The masters whose replicas it has freed.
    pub(crate) freed: BTreeSet<MasterId>,
    /// The newest server list that it got.
    pub(crate) list: ServerList,
    /// It reports success by itself.
    pub(crate) recovers_by_itself: bool,
    /// It reports this trouble instead.
    pub(crate) trouble: Option<String>,
    /// It answers no command.
    pub(crate) is_deaf: bool,
    /// The place of its storage; 0 if it does not report it.
    pub(crate) place: u64,
    /// The number of the latest leadership that it follows.
    pub(crate) follows: u64,
    /// The latest state that it reports to have followed.
    pub(crate) followed: Followed,
    pub(crate) newest_format: Format,
    pub(crate) refused: Option<CallError>,
}

pub(crate) type Shared = Rc<RefCell<Server>>;

/// The state that all servers share.
#[derive(Clone, Default)]
pub(crate) struct Common {
    pub(crate) servers: Rc<RefCell<Vec<Shared>>>,
    /// Bytes of live objects in a whole table.
    pub(crate) table_bytes: Rc<Cell<u64>>,
    truth: TrueTime,
}

impl Common {
    /// Gives a master a log, if it is the first call: one whole segment and a head, on its server
    /// and the next one.
    fn begin_log(&self, server: usize, master: MasterId) {
        let servers = self.servers.borrow();
        for number in [server, (server + 1) % servers.len()] {
            let replica = |segment, closed| ReplicaInfo {
                segment: SegmentId(segment),
                epoch: Epoch(0),
                length: 1000,
                closed,
            };
            let mut server = servers[number].borrow_mut();
            let replicas = server.replicas.entry(master);
            replicas.or_insert_with(|| vec![replica(1, true), replica(2, false)]);
        }
    }

    /// Returns the contents of the head of a log.
    fn head(&self, master: MasterId) -> Head {
        let mut statistics = Vec::new();
        for server in &*self.servers.borrow() {
            for range in server.borrow().tablets.get(&master).into_iter().flatten() {
                let share = (range.last.0 - range.first.0) as f64 / u64::MAX as f64;
                let bytes = (self.table_bytes.get() as f64 * share) as u64;
                statistics.push(TabletStatus { range: *range, objects: bytes / 1000, bytes });
            }
        }
        Head { digest: Some(vec![SegmentId(1), SegmentId(2)]), statistics, torn: None }
    }

    /// Returns when the first backup with a master's head was fenced. From then on no backup
    /// confirms the master's reads. Returns 0 if all of them are in other generations by now.
    fn fenced_at(&self, master: MasterId) -> u64 {
        let servers = self.servers.borrow();
        let times = servers.iter().filter_map(|it| it.borrow().fenced_at.get(&master).copied());
        times.min().unwrap_or(0)
    }

    /// Checks that masters are told only after the backups.
    fn check(&self, message: &Recover) {
        let servers = self.servers.borrow();
        let is_told = |server: &ServerId| {
            let mut all = servers.iter().map(|it| it.borrow());
            let server = all.find(|it| it.known.is_some_and(|it| it.server == *server));
            let begun = server.into_iter().flat_map(|it| it.begun.clone());
            let same = |it: &BeginRecovery| {
                (it.crashed, it.recovery) == (message.crashed, message.recovery)
            };
            begun
                .filter(same)
                .any(|it| it.partitions[message.partition as usize] == message.tablets)
        };
        assert_eq!(message.segments[0].segment, SegmentId(2), "the head comes first");
        for replicas in &message.segments {
            assert!(replicas.at.iter().any(|(server, _)| is_told(server)), "{message:?}");
        }
    }
}

/// The coordinators, their store, the servers that obey them, and a user.
pub(crate) struct ControlPlane {
    cluster: Cluster,
    pub(crate) common: Common,
    pub(crate) store: SimStore,
    pub(crate) seats: Vec<Seat>,
    pub(crate) servers: Vec<Shared>,
    asked: Rc<RefCell<Asked>>,
}

impl Deref for ControlPlane {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for ControlPlane {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

/// Requests to the user from outside of the simulation.
#[derive(Default)]
struct Asked {
    wanted: VecDeque<(u64, Opcode, Vec<u8>)>,
    answers: BTreeMap<u64, Result<Vec<u8>, CallError>>,
    count: u64,
    rests: bool,
}

async fn be_asked(user: User, asked: Rc<RefCell<Asked>>) {
    loop {
        let wanted = asked.borrow_mut().wanted.pop_front();
        if let Some((number, opcode, body)) = wanted {
            let (asking, asked) = (user.clone(), Rc::clone(&asked));
            user.tasks.spawn(async move {
                let answer = asking.ask_for(Duration::from_secs(10), opcode, body).await;
                asked.borrow_mut().answers.insert(number, answer);
            });
        } else {
            let rests = asked.borrow().rests;
            let wait = if rests { Duration::from_secs(1000) } else { Duration::from_millis(5) };
            user.tasks.sleep(wait).await;
        }
    }
}

/// Returns the masters with tablets that may have been written to, by the store.
pub(crate) fn owners(store: &SimStore) -> BTreeSet<MasterId> {
    let mut owners = BTreeSet::new();
    for table in stored(store, "tables") {
        if table["dropped"] == true {
            continue;
        }
        for tablet in table["tablets"].as_array().unwrap() {
            if tablet["taken"] == true {
                owners.insert(MasterId(tablet["master"].as_u64().unwrap()));
            }
        }
    }
    owners
}

/// Returns the store's values below a name.
pub(crate) fn stored(store: &SimStore, name: &str) -> Vec<serde_json::Value> {
    let mut after: Option<Key> = None;
    let mut values = Vec::new();
    loop {
        let prefix = Prefix::under(name).unwrap();
        let Answer::Page(page) = store.peek(&Ask::List { prefix, after: after.take() }) else {
            panic!("a list")
        };
        after = page.entries.last().map(|entry| entry.key.clone());
        values.extend(page.entries.iter().map(|it| serde_json::from_slice(&it.value).unwrap()));
        if !page.more {
            return values;
        }
    }
}

/// Returns the store's value of a key.
pub(crate) fn value(cluster: &ControlPlane, key: &str) -> serde_json::Value {
    match cluster.store.peek(&Ask::Get { key: Key::new(key).unwrap() }) {
        Answer::Value(Some(entry)) => serde_json::from_slice(&entry.value).unwrap(),
        other => panic!("{key}: {other:?}"),
    }
}

/// Returns how many former masters the store remembers.
pub(crate) fn formers(cluster: &ControlPlane) -> usize {
    let servers = stored(&cluster.store, "servers");
    servers.iter().map(|it| it["former"].as_array().unwrap().len()).sum()
}

/// Returns the tablets of each master, by the commands to it.
pub(crate) fn held(cluster: &ControlPlane) -> BTreeSet<(MasterId, TabletRange)> {
    let mut held = BTreeSet::new();
    for server in &cluster.servers {
        let server = server.borrow();
        let Some(enlisted) = &server.enlisted else { continue };
        for (master, tablets) in &server.tablets {
            if enlisted.masters.contains(master) {
                held.extend(tablets.iter().map(|tablet| (*master, *tablet)));
            }
        }
    }
    held
}

/// Returns the tablets of each master, by the map.
pub(crate) fn mapped(map: &Map) -> BTreeSet<(MasterId, TabletRange)> {
    let of = |table: &TableInfo| {
        let (table, tablets) = (table.id, table.tablets.clone());
        tablets
            .into_iter()
            .map(move |it| (it.master, TabletRange { table, first: it.first, last: it.last }))
    };
    map.tables.iter().flat_map(of).collect()
}

impl ControlPlane {
    pub(crate) fn new(
        seed: u64,
        coordinators: usize,
        servers: usize,
        options: &Options,
    ) -> ControlPlane {
        let cluster = Cluster::new(Simulated::calm(seed));
        let truth = cluster.simulation.truth();
        let mut control_plane = ControlPlane {
            cluster,
            store: SimStore::new(truth.clone(), Random::from_seed(seed + 1), Faults::none()),
            common: Common { truth, ..Common::default() },
            seats: Vec::new(),
            servers: Vec::new(),
            asked: Rc::default(),
        };
        for _ in 0..coordinators {
            control_plane.add_real_coordinator(options);
        }
        let coordinators = control_plane.addresses(Place::Coordinator).into();
        let asked = Rc::clone(&control_plane.asked);
        let nowhere = control_plane.shard;
        control_plane.add_user(move |boot| {
            let node = Node::new(boot.world, boot.transport, ());
            let user = User::new(&node, nowhere, &coordinators);
            node.tasks().spawn(be_asked(user, Rc::clone(&asked)));
            Box::new(node)
        });
        for _ in 0..servers {
            control_plane.add_fake_server(2);
        }
        control_plane
    }

    fn add_real_coordinator(&mut self, options: &Options) {
        let handle = Rc::new(RefCell::new(None));
        let newest = Rc::new(Cell::new(options.newest_format));
        let (seen, store, knows) = (Rc::clone(&handle), self.store.clone(), Rc::clone(&newest));
        // Coordinators on several machines may all listen at this address.
        let options = Options { address: ADDRESS.to_owned(), ..options.clone() };
        self.add_coordinator(move |boot| {
            let client = store.client(boot.world.clock.clone());
            let id = client.id();
            let options = Options { newest_format: knows.get(), ..options.clone() };
            let coordinator = Coordinator::new(Box::new(client), options);
            seen.replace(Some((coordinator.handle(), id)));
            serve(boot, coordinator)
        });
        self.seats.push(Seat { handle, newest });
    }

    /// Stops the user from looking for new requests.
    pub(crate) fn rest(&self) {
        self.asked.borrow_mut().rests = true;
    }

    pub(crate) fn add_fake_server(&mut self, shards: u16) -> usize {
        let newest_format = Format::NEWEST;
        let server = Server { recovers_by_itself: true, newest_format, ..Server::default() };
        let shared = Rc::new(RefCell::new(server));
        let (own, store) = (Rc::clone(&shared), self.store.clone());
        let addresses = self.addresses(Place::Coordinator).into();
        let (number, common) = (self.servers.len(), self.common.clone());
        common.servers.borrow_mut().push(Rc::clone(&shared));
        self.servers.push(shared);
        self.add_server(move |boot| {
            FakeServer::boot(boot, (number, &common), &own, &addresses, shards, &store)
        })
    }

    pub(crate) fn until(&mut self, goal: &str, holds: impl Fn(&ControlPlane) -> bool) {
        let end = self.simulation.now() + Duration::from_secs(60);
        while !holds(self) {
            assert!(self.simulation.now() < end, "did not happen: {goal}");
            self.simulation.run_for(Duration::from_millis(5));
        }
    }

    pub(crate) fn until_all_are_there(&mut self) {
        self.until_all_are_there_but(&[]);
    }

    pub(crate) fn until_all_are_there_but(&mut self, others: &[usize]) {
        self.until("all servers are enlisted", |cluster| {
            let mut servers = cluster.servers.iter().enumerate();
            servers.all(|(number, it)| others.contains(&number) || it.borrow().enlisted.is_some())
        });
    }

    /// Sends a request without waiting for the answer.
    pub(crate) fn begin(&mut self, opcode: Opcode, message: &impl Serialize) -> u64 {
        self.begin_raw(opcode, to_body(message))
    }

    pub(crate) fn begin_raw(&mut self, opcode: Opcode, body: Vec<u8>) -> u64 {
        let mut asked = self.asked.borrow_mut();
        asked.count += 1;
        let number = asked.count;
        asked.wanted.push_back((number, opcode, body));
        number
    }

    pub(crate) fn answer(&self, number: u64) -> Option<Result<Vec<u8>, CallError>> {
        self.asked.borrow().answers.get(&number).cloned()
    }

    /// Sends a request and waits for the answer.
    pub(crate) fn ask<T: DeserializeOwned>(
        &mut self,
        opcode: Opcode,
        message: &impl Serialize,
    ) -> Result<T, Status> {
        self.ask_raw(opcode, to_body(message))
    }

    pub(crate) fn ask_raw<T: DeserializeOwned>(
        &mut self,
        opcode: Opcode,
        body: Vec<u8>,
    ) -> Result<T, Status> {
        let number = self.begin_raw(opcode, body);
        self.until("an answer", |cluster| cluster.answer(number).is_some());
        match self.answer(number) {
            Some(Ok(body)) => Ok(of_body(&body).expect("a well-formed answer")),
            Some(Err(CallError::Refused { status, .. })) => Err(status),
            other => panic!("{opcode}: {other:?}"),
        }
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |number: &usize| {
            self.simulation.is_running(self.host(Place::Coordinator(*number)))
                && self.seats[*number].handle.borrow().as_ref().is_some_and(|it| it.0.leads())
        };
        (0..self.seats.len()).find(leads)
    }

    pub(crate) fn handle(&self) -> Handle {
        let leader = self.leader().expect("a coordinator leads");
        self.seats[leader].handle.borrow().as_ref().unwrap().0.clone()
    }

    /// Kills the leader and starts it again much later; another coordinator leads then.
    pub(crate) fn change_leader(&mut self) {
        self.until("a coordinator leads", |cluster| cluster.leader().is_some());
        let old = self.host(Place::Coordinator(self.leader().unwrap()));
        self.simulation.crash(old);
        self.simulation.after(Duration::from_secs(8), move |it| it.start(old));
        self.until("another one leads", |cluster| cluster.leader().is_some());
    }

    pub(crate) fn masters(&self, server: usize) -> Vec<MasterId> {
        self.servers[server].borrow().enlisted.as_ref().unwrap().masters.clone()
    }
}

pub(crate) fn create(
    cluster: &mut ControlPlane,
    name: &str,
    span: u32,
) -> Result<TableInfo, Status> {
    let message = CreateTable::spread(name, span);
    cluster.ask(Opcode::CreateTable, &message)
}

pub(crate) fn drop_table(cluster: &mut ControlPlane, name: &str) -> Result<Empty, Status> {
    cluster.ask(Opcode::DropTable, &DropTable::named(name))
}

pub(crate) fn map(cluster: &mut ControlPlane) -> Map {
    cluster.ask(Opcode::Map, &MapRequest::default()).unwrap()
}

pub(crate) fn status(cluster: &mut ControlPlane) -> ClusterStatus {
    cluster.ask(Opcode::ClusterStatus, &Empty {}).unwrap()
}

/// The registration of a server with or without an identity.
pub(crate) fn registration(known: Option<Known>, nonce: u64) -> Register {
    Register {
        known,
        nonce,
        place: 0,
        address: None,
        newest_format: Format::NEWEST,
        followed: Followed::default(),
    }
}

/// Registers a server that has no identity yet.
pub(crate) fn register(cluster: &mut ControlPlane, nonce: u64) -> Registered {
    cluster.ask(Opcode::Register, &registration(None, nonce)).unwrap()
}

/// Registers and enlists a server that does not exist outside of this test.
pub(crate) fn enlist_new(cluster: &mut ControlPlane, nonce: u64, backup: Option<BackupInfo>) {
    let Registered { cluster: id, server, .. } = register(cluster, nonce);
    let enlist = Enlist {
        cluster: id,
        server,
        nonce,
        host: "h".into(),
        rack: String::new(),
        shards: vec![([10, 0, 0, 99], 1).into()],
        backup,
        newest_format: Format::NEWEST,
        followed: Followed::default(),
    };
    cluster.ask::<Enlisted>(Opcode::Enlist, &enlist).unwrap();
}

/// Opens a lease.
pub(crate) fn open(cluster: &mut ControlPlane) -> LeaseOpened {
    cluster.ask(Opcode::OpenLease, &Empty {}).unwrap()
}

/// Returns those of the leases that have ended.
pub(crate) fn ended(cluster: &mut ControlPlane, leases: &[LeaseId]) -> Vec<LeaseId> {
    let message = CheckLeases { leases: leases.to_vec() };
    cluster.ask::<LeasesChecked>(Opcode::CheckLeases, &message).unwrap().ended
}
