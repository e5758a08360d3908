//! The service over a network: replicas are written, listed, read page by page and freed. Masters
//! that were declared crashed are refused. Damage is not served. Bytes that make no sense change
//! nothing.

use proptest::prelude::*;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_backup::{Durability, Identity, Local, Options as StoreOptions, Service, Store};
use thunderhead_net::sim::address;
use thunderhead_rpc::{
    self as rpc, CallError, Component, Context, Node, Opcode, OwnerId, Request, TaskCaller,
};
use thunderhead_runtime::Process;
use thunderhead_runtime::tasks::Tasks;
use thunderhead_runtime::workers::{Worker, WorkerBell, Workers};
use thunderhead_simulator::{Boot, HostId, Options, Simulation};
use thunderhead_wire::control::{
    BackupStatus, FreeRest, Inventory, InventoryOf, MastersAfter, MastersHere, OfMaster, RestLeft,
    ServerInfo, ServerList, ServerState, ShardInfo, of_body, to_body,
};
use thunderhead_wire::replication::{
    ATOMIC, CLOSE, COMMIT, FREE, OPEN, PartAnswer, PieceHead, ReadHead, ReplicaPart, ReplicateHead,
};
use thunderhead_wire::{ClusterId, Epoch, Generation, MasterId, SegmentId, ServerId, Status};
use zerocopy::{FromBytes, IntoBytes};

const PORT: u16 = 7100;
const SEGMENT_BYTES: u32 = 20_000;

type Lists = Rc<RefCell<Option<ServerList>>>;

/// A backup that receives lists of servers.
struct Hearing(Service, Lists);

impl rpc::Service for Hearing {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        if let Some(list) = self.1.take() {
            self.0.learn(&list);
        }
        let whole = format!("{:?}", context.slice());
        let is_malformed = request.body.len() > 30_000 && request.body.iter().all(|it| *it == 0);
        self.0.request(context, request);
        assert!(!is_malformed || format!("{:?}", context.slice()) == whole, "it cost nothing");
    }

    fn timer(&mut self, _: &mut Context<'_>, owner: OwnerId) {
        assert_eq!(owner.component(), Component::Backup);
        self.0.on_timer();
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        self.0.turn_over(context);
    }
}

fn service(boot: &mut Boot, durability: Durability) -> Service {
    let mut service = unlisted(boot, durability);
    service.enlisted(Generation(1), &ServerList::default());
    service
}

/// Returns a backup that does not know its generation yet.
fn unlisted(boot: &mut Boot, durability: Durability) -> Service {
    let identity = Identity { cluster: ClusterId(1), server: ServerId(2) };
    let options = StoreOptions {
        segment_bytes: SEGMENT_BYTES,
        buffers: 4,
        durability,
        ..StoreOptions::new(identity, 6)
    };
    let (store, _) = Store::start(&mut boot.world, options).unwrap();
    Service::new(store, 7)
}

/// Records the names of the started workers.
struct Noting {
    workers: Box<dyn Workers>,
    started: Started,
}

type Started = Rc<RefCell<Vec<String>>>;

impl Workers for Noting {
    fn start(&mut self, name: &str, worker: Box<dyn Worker>) -> std::io::Result<WorkerBell> {
        self.started.borrow_mut().push(name.to_owned());
        self.workers.start(name, worker)
    }
}

fn node(
    mut boot: Boot,
    durability: Durability,
    lists: &Lists,
    started: &Started,
) -> Box<dyn Process> {
    let started = Rc::clone(started);
    boot.world.workers = Box::new(Noting { workers: boot.world.workers, started });
    let service = service(&mut boot, durability);
    let mut node = Node::new(boot.world, boot.transport, Hearing(service, Rc::clone(lists)));
    node.listen(SocketAddr::new(boot.address, PORT)).unwrap();
    Box::new(node)
}

/// The caller of a test.
#[derive(Clone)]
struct Caller {
    calling: TaskCaller,
    tasks: Tasks,
    to: SocketAddr,
}

/// A part and its bytes.
type Part<'a> = (u64, u64, u32, &'a [u8], u32, u8);

fn message(master: u64, version: u64, parts: &[Part<'_>]) -> Vec<u8> {
    let mut body = ReplicateHead::new(MasterId(master), version, (ServerId(2), Generation(1)))
        .as_bytes()
        .to_vec();
    for (segment, epoch, offset, bytes, length, flags) in parts {
        let count = bytes.len() as u32;
        let (segment, epoch) = (SegmentId(*segment), Epoch(*epoch));
        let part = ReplicaPart::new(segment, epoch, *offset, count, *length, *flags);
        body.extend_from_slice(part.as_bytes());
        body.extend_from_slice(bytes);
    }
    body
}

fn answers(body: &[u8]) -> Vec<(u16, u32)> {
    PartAnswer::all_of(body).unwrap().iter().map(|it| (it.refusal(), it.length())).collect()
}

impl Caller {
    async fn call(&self, opcode: Opcode, body: Vec<u8>) -> Result<Vec<u8>, CallError> {
        self.calling.call(self.to, opcode, body, Some(Duration::from_secs(3))).await
    }

    async fn send(&self, parts: &[Part<'_>]) -> Vec<(u16, u32)> {
        answers(&self.call(Opcode::Replicate, message(1, 0, parts)).await.unwrap())
    }

    async fn inventory(&self, master: u64) -> Vec<(u64, u64, u32, bool)> {
        let body = to_body(&OfMaster { master: MasterId(master) });
        let reply = self.call(Opcode::Inventory, body).await.unwrap();
        let replicas = of_body::<Inventory>(&reply).unwrap().replicas;
        replicas.iter().map(|it| (it.segment.0, it.epoch.0, it.length, it.closed)).collect()
    }

    async fn read(&self, segment: u64, page: u32) -> Result<Vec<u8>, Status> {
        let mut bytes = Vec::new();
        loop {
            let head = ReadHead::new(MasterId(1), SegmentId(segment), bytes.len() as u32, page);
            let reply = self.call(Opcode::ReadReplica, head.as_bytes().to_vec()).await;
            let reply = reply.map_err(|error| match error {
                CallError::Refused { status, .. } => status,
                other => panic!("{other}"),
            })?;
            let (head, piece) = PieceHead::ref_from_prefix(&reply).unwrap();
            bytes.extend_from_slice(piece);
            if bytes.len() >= head.length() as usize {
                return Ok(bytes);
            }
            assert!(!piece.is_empty(), "every page gets on");
        }
    }
}

/// Runs a conversation with a backup. If the backup is changed then, a second conversation follows.
fn talk<F: Future<Output = ()> + 'static>(
    durability: Durability,
    lists: &Lists,
    conversation: impl Fn(Caller) -> F + 'static,
    then: impl FnOnce(&mut Simulation, HostId),
) {
    talk_noting(&Rc::default(), durability, lists, conversation, then);
}

/// Does the same, and records the workers that the backup starts.
fn talk_noting<F: Future<Output = ()> + 'static>(
    started: &Started,
    durability: Durability,
    lists: &Lists,
    conversation: impl Fn(Caller) -> F + 'static,
    then: impl FnOnce(&mut Simulation, HostId),
) {
    let mut simulation = Simulation::new(Options::calm(1));
    let (own, noted) = (Rc::clone(lists), Rc::clone(started));
    let backup = simulation.add_host("backup", move |boot| node(boot, durability, &own, &noted));
    let to = address(simulation.address(backup), PORT);
    let done = Rc::new(RefCell::new(0));
    let ended = Rc::clone(&done);
    simulation.add_host("caller", move |boot| {
        let node = Node::new(boot.world, boot.transport, ());
        let caller = Caller { calling: node.task_caller(), tasks: node.tasks().clone(), to };
        let (told, ended) = (conversation(caller), Rc::clone(&ended));
        node.tasks().spawn(async move {
            told.await;
            *ended.borrow_mut() += 1;
        });
        Box::new(node)
    });
    simulation.run_for(Duration::from_secs(2));
    then(&mut simulation, backup);
    simulation.run_for(Duration::from_secs(20));
    assert_eq!(*done.borrow(), 1, "the conversation came to its end");
}

#[test]
fn replicas_are_written_listed_read_and_freed() {
    for durability in [Durability::Replicated, Durability::Synced] {
        let conversation = |it: Caller| async move {
            let long: Vec<u8> = (0..15_000u32).map(|at| at as u8).collect();
            let opened = (5, 0, 0, &long[..9_000], 0, OPEN);
            assert_eq!(it.send(&[opened]).await, [(0, 9_000)]);
            assert_eq!(it.send(&[opened]).await, [(0, 9_000)], "again");
            let survivor = (6, 0, 0, &b"whole"[..], 5, OPEN | CLOSE);
            let rest = (5, 0, 9_000, &long[9_000..], 15_000, CLOSE);
            assert_eq!(it.send(&[survivor, rest]).await, [(0, 5), (0, 15_000)]);
            assert_eq!(it.send(&[survivor, rest]).await, [(0, 5), (0, 15_000)], "again");
            let hidden = (7, 3, 0, &b"not yet"[..], 0, OPEN | ATOMIC);
            assert_eq!(it.send(&[hidden]).await, [(0, 7)]);
            assert_eq!(it.inventory(1).await, [(5, 0, 15_000, true), (6, 0, 5, true)]);
            assert_eq!(it.inventory(2).await, []);
            assert_eq!(it.read(7, 10).await, Err(Status::NotFound));
            assert_eq!(it.send(&[(7, 3, 7, b"!", 0, COMMIT)]).await, [(0, 8)]);
            assert_eq!(it.read(7, 3).await.unwrap(), b"not yet!");
            assert_eq!(it.send(&[(7, 3, 8, b"?", 0, 0)]).await, [(0, 9)]);
            assert_eq!(it.read(7, 3).await.unwrap(), b"not yet!?", "an earlier read is outdated");
            assert_eq!(it.read(5, 4_000).await.unwrap(), long);
            assert_eq!(it.read(5, u32::MAX).await.unwrap(), long);
            assert_eq!(it.read(9, 1).await, Err(Status::NotFound));
            // A refused part does not block the parts of other segments.
            let gap = (7, 3, 20, &b"x"[..], 0, 0);
            let behind = (7, 3, 9, &b"x"[..], 0, 0);
            assert_eq!(it.send(&[gap, behind, survivor]).await, [(5, 9), (5, 9), (0, 5)]);
            // Messages of an earlier epoch are late ones: they neither free nor continue the
            // replica.
            assert_eq!(it.send(&[(7, 2, 0, b"", 0, FREE)]).await, [(7, 9)]);
            assert_eq!(it.send(&[behind, (7, 2, 10, b"x", 0, 0)]).await, [(0, 10), (7, 10)]);
            assert_eq!(it.send(&[(7, 3, 0, b"", 0, FREE)]).await, [(0, 0)]);
            assert_eq!(it.send(&[hidden]).await, [(7, 0)], "it was freed at this epoch");
            assert_eq!(it.send(&[(7, 4, 0, b"new", 0, OPEN | ATOMIC)]).await, [(0, 3)]);
            // In atomic mode, at a later epoch, the replica is begun from nothing.
            assert_eq!(it.send(&[(7, 5, 0, b"other", 5, OPEN | ATOMIC | CLOSE)]).await, [(0, 5)]);
            assert_eq!(it.read(7, 9).await.unwrap(), b"other");
            // Until the new one counts, the existing one does. Its own epoch no longer frees it.
            assert_eq!(it.send(&[(7, 6, 0, b"third", 0, OPEN | ATOMIC)]).await, [(0, 5)]);
            assert_eq!(it.send(&[(7, 5, 0, b"", 0, FREE)]).await, [(7, 5)]);
            assert_eq!(it.read(7, 9).await.unwrap(), b"other");
            assert_eq!(it.send(&[(7, 6, 5, b"!", 0, COMMIT)]).await, [(0, 6)]);
            assert_eq!(it.read(7, 9).await.unwrap(), b"third!");
            let status = it.call(Opcode::BackupStatus, b"{}".to_vec()).await.unwrap();
            let status: BackupStatus = of_body(&status).unwrap();
            assert_eq!((status.frames, status.read_bytes_per_second), (6, 7));
            // The backup lists the masters of its replicas.
            let body = to_body(&MastersAfter { after: MasterId(0) });
            let here = it.call(Opcode::MastersHere, body).await.unwrap();
            let here = of_body::<MastersHere>(&here).unwrap();
            assert_eq!(here, MastersHere { masters: vec![MasterId(1)], more: false });
            let body = to_body(&MastersAfter { after: MasterId(1) });
            let here = it.call(Opcode::MastersHere, body).await.unwrap();
            assert_eq!(of_body(&here), Some(MastersHere::default()));
            // After a log was taken back, only its closed replicas that are needed stay.
            let keep = vec![SegmentId(6), SegmentId(7), SegmentId(99)];
            let body = to_body(&FreeRest { master: MasterId(1), keep });
            let left = it.call(Opcode::FreeRest, body.clone()).await.unwrap();
            let left = of_body::<RestLeft>(&left).unwrap().replicas;
            let stays: Vec<_> = it.inventory(1).await;
            assert_eq!((left, stays.len()), (1, 1), "{stays:?}");
            let again = it.call(Opcode::FreeRest, body).await.unwrap();
            assert_eq!(of_body(&again), Some(RestLeft { replicas: 1 }));
            let body = to_body(&OfMaster { master: MasterId(1) });
            it.call(Opcode::FreeMaster, body).await.unwrap();
            assert_eq!(it.inventory(1).await, []);
            assert_eq!(
                it.read(5, 10).await,
                Err(Status::NotFound),
                "nor a page that was read before"
            );
            let late = it.call(Opcode::Replicate, message(1, 0, &[opened])).await;
            assert!(matches!(late, Err(CallError::Refused { status: Status::Deposed, .. })));
        };
        talk(durability, &Rc::default(), conversation, |_, _| {});
    }
}

#[test]
fn a_long_list_is_read_beside_the_reactor_and_means_what_a_short_one_does() {
    let started = Started::default();
    let noted = Rc::clone(&started);
    let conversation = move |it: Caller| {
        let noted = Rc::clone(&noted);
        async move {
            let closed = |segment, bytes: &'static [u8]| (segment, 1, 0, bytes, 4, OPEN | CLOSE);
            let parts: [Part<'_>; 3] = [closed(6, b"kept"), closed(7, b"gone"), closed(8, b"gone")];
            assert_eq!(it.send(&parts).await, [(0, 4); 3]);
            let has_clerk = || noted.borrow().iter().any(|name| name == "lists");
            for (keep, left) in [(7..8, 2), (9..200_000, 1)] {
                assert!(!has_clerk());
                let keep = keep.chain([6]).map(SegmentId).collect();
                let body = to_body(&FreeRest { master: MasterId(1), keep });
                let answer = it.call(Opcode::FreeRest, body).await.unwrap();
                assert_eq!(of_body(&answer), Some(RestLeft { replicas: left }));
            }
            assert!(has_clerk(), "a worker has read the long list");
            assert_eq!(it.inventory(1).await, [(6, 1, 4, true)]);
            for opcode in [Opcode::FreeRest, Opcode::BeginRecovery] {
                let refused = it.call(opcode, vec![b'['; 100_000]).await;
                let malformed = Status::Malformed;
                assert!(
                    matches!(refused, Err(CallError::Refused { status, .. }) if status == malformed),
                    "{refused:?}"
                );
            }
        }
    };
    talk_noting(&started, Durability::Replicated, &Rc::default(), conversation, |_, _| {});
}

#[test]
fn a_master_that_was_given_up_is_refused() {
    let list = |version, states: &[(u64, ServerState)]| {
        let servers = states.iter().map(|(master, state)| ServerInfo {
            lineages: Vec::new(),
            server: ServerId(*master),
            generation: Generation(1),
            state: *state,
            host: String::new(),
            rack: String::new(),
            shards: vec![ShardInfo {
                master: MasterId(*master),
                address: ([1, 2, 3, 4], 5).into(),
            }],
            backup: None,
        });
        ServerList { version, servers: servers.collect(), ..ServerList::default() }
    };
    let lists: Lists = Rc::default();
    let own = Rc::clone(&lists);
    let conversation = move |it: Caller| {
        let lists = Rc::clone(&own);
        async move {
            let parts: [Part<'_>; 1] = [(1, 0, 0, b"x", 0, OPEN)];
            let status = async |master, version| match it
                .call(Opcode::Replicate, message(master, version, &parts))
                .await
            {
                Ok(_) => Status::Ok,
                Err(CallError::Refused { status, .. }) => status,
                Err(other) => panic!("{other}"),
            };
            assert_eq!(status(1, 0).await, Status::Ok, "there is no list of servers yet");
            *lists.borrow_mut() = Some(list(5, &[(1, ServerState::Up), (2, ServerState::Down)]));
            assert_eq!(status(1, 5).await, Status::Ok);
            assert_eq!(status(2, 5).await, Status::Deposed, "its server is down");
            assert_eq!(status(3, 5).await, Status::Deposed, "it is not in the list");
            assert_eq!(status(3, 6).await, Status::Ok, "it may be in a newer one");
            *lists.borrow_mut() = Some(list(6, &[(3, ServerState::Up)]));
            assert_eq!(status(3, 6).await, Status::Ok);
            assert_eq!(status(1, 5).await, Status::Deposed, "it lives again under another id");
            *lists.borrow_mut() = Some(list(5, &[(1, ServerState::Up)]));
            assert_eq!(status(1, 5).await, Status::Deposed, "an older list changes nothing");
        }
    };
    talk(Durability::Replicated, &lists, conversation, |_, _| {});
}

/// The list of servers with a verdict may arrive later than the recovery's requests. Writes that
/// the backup acknowledged after its replicas were counted would be lost.
#[test]
fn a_master_whose_replicas_are_read_to_recover_it_gets_nothing_more() {
    let conversation = |it: Caller| async move {
        assert_eq!(it.send(&[(1, 0, 0, b"abc", 0, OPEN)]).await, [(0, 3)]);
        assert_eq!(it.inventory(1).await, [(1, 0, 3, false)]);
        assert_eq!(it.send(&[(1, 0, 3, b"d", 0, 0)]).await, [(0, 4)], "a look does no harm");
        let of = InventoryOf { lineage: Vec::new(), master: MasterId(1), deposed: true };
        let counted = it.call(Opcode::Inventory, to_body(&of)).await.unwrap();
        assert_eq!(of_body::<Inventory>(&counted).unwrap().replicas[0].length, 4);
        for parts in [[(1, 0, 4, &b"e"[..], 0, 0)], [(2, 0, 0, b"x", 0, OPEN)]] {
            let late = it.call(Opcode::Replicate, message(1, 9, &parts)).await;
            assert!(matches!(late, Err(CallError::Refused { status: Status::Deposed, .. })));
        }
        assert_eq!(it.read(1, 9).await.unwrap(), b"abcd");
    };
    for durability in [Durability::Replicated, Durability::Synced] {
        talk(durability, &Rc::default(), conversation, |_, _| {});
    }
}

#[test]
fn a_malformed_request_does_not_shorten_the_turn() {
    let conversation = |it: Caller| async move {
        for opcode in [Opcode::RecoveryData, Opcode::Replicate] {
            let refused = it.call(opcode, vec![0; 300_000]).await;
            assert!(matches!(refused, Err(CallError::Refused { status: Status::Malformed, .. })));
        }
    };
    talk(Durability::Replicated, &Rc::default(), conversation, |_, _| {});
}

/// There are four buffers. The buffers of a crashed master, and of a master that waits, go to
/// others.
#[test]
fn idle_replicas_give_their_buffers_to_others() {
    let conversation = |it: Caller| async move {
        let of = |master, parts: &[Part<'_>]| {
            let sent = it.call(Opcode::Replicate, message(master, 0, parts));
            async move { answers(&sent.await.unwrap()) }
        };
        assert_eq!(it.send(&[(1, 0, 0, b"gone", 0, OPEN)]).await, [(0, 4)]);
        for master in 2..5 {
            assert_eq!(of(master, &[(1, 0, 0, b"it waits", 0, OPEN)]).await, [(0, 8)]);
        }
        let next = [(2, 0, 0, &b"next"[..], 0, OPEN)];
        let elsewhere = [(2, 0)];
        it.tasks.sleep(Duration::from_millis(100)).await;
        assert_eq!(of(2, &next).await, elsewhere, "all are needed");
        let fence = InventoryOf { lineage: Vec::new(), master: MasterId(1), deposed: true };
        it.call(Opcode::Inventory, to_body(&fence)).await.unwrap();
        assert_eq!(of(2, &next).await, [(0, 4)]);
        assert_eq!(of(3, &next).await, elsewhere, "all are needed again");
        assert_eq!(it.read(1, 9).await.unwrap(), b"gone");
        it.tasks.sleep(Duration::from_millis(600)).await;
        assert_eq!(of(3, &next).await, [(0, 4)]);
        // The former owner can close its replica, and cannot continue it.
        for (flags, answer) in [(0, (9, 8)), (CLOSE, (0, 8))] {
            let bytes: &[u8] = if flags == 0 { b"more" } else { b"" };
            assert_eq!(of(2, &[(1, 0, 8, bytes, 8, flags)]).await, [answer]);
        }
        assert_eq!(it.inventory(2).await, [(1, 0, 8, true), (2, 0, 4, false)]);
    };
    for durability in [Durability::Replicated, Durability::Synced] {
        talk(durability, &Rc::default(), conversation, |_, _| {});
    }
}

#[test]
fn damage_is_not_served() {
    let conversation = |it: Caller| async move {
        let long = vec![3; 9_000];
        assert_eq!(it.send(&[(5, 0, 0, &long, 9_000, OPEN | CLOSE)]).await, [(0, 9_000)]);
        it.tasks.sleep(Duration::from_secs(5)).await;
        assert_eq!(it.read(5, 100).await, Err(Status::Refused));
    };
    talk(Durability::Synced, &Rc::default(), conversation, |simulation, backup| {
        // So many bits flip that each block has some.
        assert!((0..5_000).all(|_| simulation.disk(backup).rot()));
    });
}

#[test]
fn a_word_is_given_at_once_in_the_life_that_is_meant_and_not_to_who_was_fenced() {
    let mut simulation = Simulation::new(Options::calm(1));
    simulation.add_host("backup", move |mut boot| {
        let mut service = unlisted(&mut boot, Durability::Synced);
        let refused = |status| Local::Now(Err(status));
        let say = |service: &mut Service, master: u64, life: (u64, u64), parts: &[Part<'_>]| {
            let life = (ServerId(life.0), Generation(life.1));
            let mut body = ReplicateHead::new(MasterId(master), 0, life).as_bytes().to_vec();
            body.extend_from_slice(&message(master, 0, parts)[size_of::<ReplicateHead>()..]);
            service.local(&[&body])
        };
        let open: [Part<'_>; 1] = [(5, 0, 0, b"bytes", 0, OPEN)];
        // The backup does not know its generation yet.
        assert_eq!(say(&mut service, 1, (2, 1), &open), refused(Status::Busy));
        assert_eq!(say(&mut service, 1, (2, 1), &[]), refused(Status::Busy));
        service.enlisted(Generation(1), &ServerList::default());
        for life in [(2, 0), (2, 2), (3, 1)] {
            for parts in [&open[..], &[]] {
                assert_eq!(say(&mut service, 1, life, parts), refused(Status::OtherLife));
            }
        }
        assert_eq!(service.store().replicas().count(), 0);
        // A write waits for the disk. The word that the backup still accepts writes does not.
        assert!(matches!(say(&mut service, 1, (2, 1), &open), Local::Later(_)));
        assert_eq!(say(&mut service, 1, (2, 1), &[]), Local::Now(Ok(Vec::new())));
        service.fence(MasterId(1));
        for parts in [&open[..], &[]] {
            assert_eq!(say(&mut service, 1, (2, 1), parts), refused(Status::Deposed));
        }
        assert_eq!(say(&mut service, 7, (2, 1), &[]), Local::Now(Ok(Vec::new())));
        Box::new(Node::new(boot.world, boot.transport, ()))
    });
}

/// Bytes that are nearly messages.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let part = (0..4u64, 0..3u64, 0..30u32, 0..40usize, 0..60u32, any::<u8>());
    let drawn = (1..3u64, 0..3u64, prop::collection::vec(part, 0..6), any::<prop::sample::Index>());
    drawn.prop_map(|(master, version, parts, cut)| {
        let bytes = [7; 40];
        let parts: Vec<Part<'_>> = parts
            .iter()
            .map(|(s, e, o, count, length, flags)| (*s, *e, *o, &bytes[..*count], *length, *flags))
            .collect();
        let mut body = message(master, version, &parts);
        if cut.index(3) == 0 {
            body.truncate(cut.index(body.len() + 1));
        }
        body
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn bytes_that_make_no_sense_change_nothing(
        bodies in prop::collection::vec(prop_oneof![nearly(), prop::collection::vec(any::<u8>(), 0..80)], 1..60)
    ) {
        let mut simulation = Simulation::new(Options::calm(1));
        simulation.add_host("backup", move |mut boot| {
            let mut service = service(&mut boot, Durability::Replicated);
            for body in &bodies {
                let before: Vec<_> = service.store().replicas().collect();
                match service.local(&[body]) {
                    Local::Now(Ok(answer)) => assert!(PartAnswer::all_of(&answer).is_some()),
                    Local::Now(Err(status)) => {
                        assert!(matches!(status, Status::Malformed | Status::OtherLife));
                        let after: Vec<_> = service.store().replicas().collect();
                        assert_eq!(after, before);
                    }
                    Local::Later(_) => panic!("replicated is answered at once"),
                }
            }
            Box::new(Node::new(boot.world, boot.transport, ()))
        });
    }
}

/// Returns the bytes at an offset of a replica. All messages send the same bytes for an offset.
fn bytes_at(offset: u32, count: usize) -> Vec<u8> {
    (offset..).take(count).map(|at| at as u8).collect()
}

/// A part of a message: its segment, offset, number of bytes, flags, and the cut of its bytes.
type Shape = (u64, u32, usize, u8, u8);

/// Sends messages with parts of these shapes. Returns all answers, and at the end whether each
/// replica has the right bytes. `cut` returns the place at which the bytes of a part are cut, if
/// they lie apart from its head.
fn outcome_of(
    service: &mut Service,
    messages: &[Vec<Shape>],
    cut: impl Fn(u8, usize) -> Option<usize>,
) -> (Vec<Local>, Vec<Local>) {
    let say = |service: &mut Service, parts: &[(u64, u32, Vec<u8>, u8, u8)]| {
        let mut pieces = vec![message(1, 0, &[])];
        for (segment, offset, bytes, flags, how) in parts {
            let length = offset + bytes.len() as u32;
            let part = (*segment, 0, *offset, &bytes[..], length, *flags);
            let body = message(1, 0, &[part]);
            let behind = pieces.last_mut().unwrap();
            let (head, rest) =
                body[size_of::<ReplicateHead>()..].split_at(size_of::<ReplicaPart>());
            behind.extend_from_slice(head);
            match cut(*how, rest.len()) {
                None => behind.extend_from_slice(rest),
                Some(at) => {
                    let (front, back) = rest.split_at(at);
                    let (first, second) = front.split_at(at / 2);
                    pieces.extend([first, second, back, &[]].map(<[u8]>::to_vec));
                }
            }
        }
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        service.local(&pieces)
    };
    let mut answers = Vec::new();
    for parts in messages {
        let parts: Vec<_> = parts
            .iter()
            .map(|(segment, offset, count, flags, how)| {
                (*segment, *offset, bytes_at(*offset, *count), *flags, *how)
            })
            .collect();
        answers.push(say(service, &parts));
    }
    let replicas: Vec<_> = service.store().replicas().collect();
    let open = replicas.iter().filter(|it| !it.closed);
    let again = open.map(|it| {
        let all = bytes_at(0, it.length as usize);
        say(service, &[(it.id.segment.0, 0, all, 0, 0)])
    });
    (answers, again.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_message_in_pieces_does_what_it_does_in_one(
        messages in prop::collection::vec(
            prop::collection::vec(
                (1..3u64, 0..3000u32, 0..3000usize, prop_oneof![Just(0), Just(OPEN), Just(CLOSE)], any::<u8>()),
                0..5,
            ),
            1..12,
        ),
    ) {
        let outcomes = Rc::new(RefCell::new(Vec::new()));
        let mut simulation = Simulation::new(Options::calm(1));
        for in_pieces in [false, true] {
            let (messages, outcomes) = (messages.clone(), Rc::clone(&outcomes));
            simulation.add_host(if in_pieces { "pieces" } else { "one" }, move |mut boot| {
                let mut service = service(&mut boot, Durability::Replicated);
                // Each run first opens both replicas, so that later parts can append.
                let open = (1..3).map(|segment| (segment, 0, 1000, OPEN, 3)).collect();
                let all: Vec<_> = std::iter::once(open).chain(messages.clone()).collect();
                let cut = |how: u8, length: usize| {
                    (in_pieces && !how.is_multiple_of(3)).then(|| length * usize::from(how) / 255)
                };
                outcomes.borrow_mut().push(outcome_of(&mut service, &all, cut));
                Box::new(Node::new(boot.world, boot.transport, ()))
            });
        }
        let outcomes = outcomes.borrow();
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
        for again in &outcomes[0].1 {
            let Local::Now(Ok(body)) = again else { panic!("refused: {again:?}") };
            prop_assert_eq!(answers(body).iter().map(|it| it.0).collect::<Vec<_>>(), vec![0]);
        }
    }
}

#[test]
fn the_bytes_of_a_part_lie_in_any_number_of_pieces_and_its_head_in_one() {
    let mut simulation = Simulation::new(Options::calm(1));
    simulation.add_host("backup", move |mut boot| {
        let mut service = service(&mut boot, Durability::Replicated);
        let whole = message(1, 0, &[(5, 0, 0, b"bytes", 0, OPEN)]);
        let data = whole.len() - 5;
        let malformed = Local::Now(Err(Status::Malformed));
        let cuts = [vec![data - 1], vec![3], vec![data, data + 1, data + 2], vec![whole.len() - 1]];
        for (cuts, good) in cuts.iter().zip([false, false, true, true]) {
            let mut from = 0;
            let ends = cuts.iter().copied().chain([whole.len()]);
            let pieces: Vec<&[u8]> =
                ends.map(|end| &whole[std::mem::replace(&mut from, end)..end]).collect();
            assert_eq!(service.local(&pieces) != malformed, good, "{cuts:?}");
            assert_eq!(service.store().replicas().count(), usize::from(good));
        }
        assert_eq!(service.local(&[]), malformed);
        Box::new(Node::new(boot.world, boot.transport, ()))
    });
}
