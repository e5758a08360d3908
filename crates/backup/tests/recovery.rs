//! A log is cut by partitions and fetched. Every partition gets its own entries, at any speed,
//! after any number of new beginnings, and with any lost answers. Memory is bounded. Damage is
//! refused.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_backup::{Durability, Identity, Local, Options as StoreOptions, Service, Store};
use thunderhead_log::filter::{Filter, Partitions};
use thunderhead_log::{Log, Memory, Options as LogOptions, Recorder};
use thunderhead_net::sim::address;
use thunderhead_rpc::{CallError, Component, Context, Node, Opcode, OwnerId, Request, TaskCaller};
use thunderhead_runtime::tasks::Tasks;
use thunderhead_simulator::{Options, Simulation};
use thunderhead_wire::control::{
    BackupStatus, BeginRecovery, Head, HeadOf, OfMaster, ServerList, Taken, of_body, to_body,
};
use thunderhead_wire::replication::{
    CLOSE, OPEN, PieceHead, RecoveryHead, ReplicaPart, ReplicateHead,
};
use thunderhead_wire::{
    ClusterId, Epoch, Generation, KeyHash, LogId, MasterId, RecoveryId, SegmentId, ServerId,
    Status, TableId, TabletRange,
};
use zerocopy::{FromBytes, IntoBytes};

const PORT: u16 = 7100;
const SEGMENT_BYTES: u32 = 20_000;
const CRASHED: MasterId = MasterId(1);
/// The backup's generation.
const LIFE: (ServerId, Generation) = (ServerId(2), Generation(1));
const TABLE: TableId = TableId(4);

/// Segments, with their bytes and whether each is closed.
type Replicas = BTreeMap<SegmentId, (Vec<u8>, bool)>;

/// Returns a log of some number of objects.
fn log_of(objects: u64) -> Replicas {
    log_in(16 << 10, objects)
}

/// Returns a log of some number of objects in segments of a length.
fn log_in(segment_bytes: usize, objects: u64) -> Replicas {
    let recorder = Recorder::new();
    let memory = Memory::with_seglets((4 << 20).max(64 * segment_bytes), 1024).unwrap();
    let options = LogOptions { segment_bytes, ..LogOptions::default() };
    let mut log = Log::new(&memory, LogId(1), options, Box::new(recorder.clone())).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    for number in 0..objects {
        log.write(TABLE, &number.to_be_bytes(), &vec![number as u8; 500]).unwrap();
    }
    log.turn();
    let replicas = recorder.replicas(usize::MAX).into_iter();
    replicas.map(|(id, replica)| (id, (replica.bytes, !replica.open))).collect()
}

/// Returns the table in equal partitions.
fn partitions(count: u64) -> Vec<Vec<Taken>> {
    let width = u64::MAX / count;
    let tablet = |number: u64| {
        let last = if number + 1 == count { u64::MAX } else { (number + 1) * width - 1 };
        let (first, last) = (KeyHash(number * width), KeyHash(last));
        vec![Taken { range: TabletRange { table: TABLE, first, last }, since: SegmentId::NONE }]
    };
    (0..count).map(tablet).collect()
}

/// Returns the part of each partition in each segment.
fn cut(replicas: &Replicas, of: &[Vec<Taken>]) -> BTreeMap<SegmentId, Vec<Vec<u8>>> {
    let tablets = |it: &Vec<Taken>| it.iter().map(|it| (it.range, it.since)).collect::<Vec<_>>();
    let partitions = Partitions::new(&of.iter().map(tablets).collect::<Vec<_>>()).unwrap();
    let one = |(id, (bytes, _)): (&SegmentId, &(Vec<u8>, bool))| {
        let mut filter = Filter::new(*id, &partitions, None);
        while filter.step(&partitions, bytes, 100, 1 << 20).unwrap().more {}
        (*id, filter.finish().parts.iter().map(|part| part.to_vec()).collect())
    };
    replicas.iter().map(one).collect()
}

#[derive(Clone)]
struct Caller {
    calling: TaskCaller,
    tasks: Tasks,
    to: SocketAddr,
}

impl Caller {
    async fn call(&self, opcode: Opcode, body: Vec<u8>) -> Result<Vec<u8>, (Status, u64)> {
        let reply = self.calling.call(self.to, opcode, body, Some(Duration::from_secs(3))).await;
        reply.map_err(|error| match error {
            CallError::Refused { status, detail, .. } => (status, detail),
            other => panic!("{other}"),
        })
    }

    async fn begin(
        &self,
        recovery: RecoveryId,
        partitions: Vec<Vec<Taken>>,
        segments: Vec<SegmentId>,
    ) -> Result<Vec<u8>, (Status, u64)> {
        self.begin_as(recovery, partitions, segments, false).await
    }

    async fn begin_as(
        &self,
        recovery: RecoveryId,
        partitions: Vec<Vec<Taken>>,
        segments: Vec<SegmentId>,
        whole: bool,
    ) -> Result<Vec<u8>, (Status, u64)> {
        let begin = BeginRecovery {
            lineage: Vec::new(),
            whole,
            recovery,
            crashed: CRASHED,
            partitions,
            segments,
        };
        self.call(Opcode::BeginRecovery, to_body(&begin)).await
    }

    /// Waits for one piece.
    async fn piece(
        &self,
        of: (RecoveryId, u32),
        segment: SegmentId,
        offset: u32,
        bytes: u32,
    ) -> Result<(u32, Vec<u8>), (Status, u64)> {
        loop {
            let head = RecoveryHead::new(CRASHED, of, segment, offset, bytes);
            match self.call(Opcode::RecoveryData, head.as_bytes().to_vec()).await {
                Err((Status::Busy, _)) => self.tasks.sleep(Duration::from_micros(500)).await,
                Err(refused) => return Err(refused),
                Ok(reply) => {
                    let (head, piece) = PieceHead::ref_from_prefix(&reply).unwrap();
                    return Ok((head.length(), piece.to_vec()));
                }
            }
        }
    }

    async fn part(
        &self,
        of: (RecoveryId, u32),
        segment: SegmentId,
    ) -> Result<Vec<u8>, (Status, u64)> {
        let mut part = Vec::new();
        loop {
            let (length, piece) = self.piece(of, segment, part.len() as u32, 4_000).await?;
            part.extend_from_slice(&piece);
            if part.len() >= length as usize {
                return Ok(part);
            }
            assert!(!piece.is_empty(), "every piece gets on");
        }
    }

    async fn status(&self) -> BackupStatus {
        of_body(&self.call(Opcode::BackupStatus, b"{}".to_vec()).await.unwrap()).unwrap()
    }
}

/// A backup beside a shard of the same process: it answers a read with the bytes that the shard
/// gets.
struct Beside(Service);

impl thunderhead_rpc::Service for Beside {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        if request.opcode != Opcode::Read {
            return self.0.request(context, request);
        }
        match self.0.local_replica(context.now(), request.body) {
            Ok(Some(replica)) => context.reply(request.reply_to, &[replica.bytes()]),
            Ok(None) => context.refuse(request.reply_to, Status::NotFound, 0, &[]),
            Err(refused) => {
                context.refuse(request.reply_to, refused.status, refused.hint, &[]);
            }
        }
    }

    fn timer(&mut self, _: &mut Context<'_>, owner: OwnerId) {
        assert_eq!(owner.component(), Component::Backup);
        self.0.on_timer();
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        self.0.turn_over(context);
    }
}

/// Runs a conversation with a backup that has these replicas on its disk, and memory for the parts
/// of 8 segments. `before` may change the backup before the conversation.
fn talk<F: Future<Output = ()> + 'static>(
    replicas: &Replicas,
    conversation: impl Fn(Caller) -> F + 'static,
    before: impl FnOnce(&mut Simulation, thunderhead_simulator::HostId),
) {
    let mut simulation = Simulation::new(Options::calm(1));
    let replicas = replicas.clone();
    let backup = simulation.add_host("backup", move |mut boot| {
        let identity = Identity { cluster: ClusterId(1), server: LIFE.0 };
        let longest = replicas.values().map(|(bytes, _)| bytes.len() as u32).max();
        let options = StoreOptions {
            segment_bytes: longest.unwrap_or(0).max(SEGMENT_BYTES),
            buffers: 200,
            durability: Durability::Replicated,
            ..StoreOptions::new(identity, 200)
        };
        let (store, _) = Store::start(&mut boot.world, options).unwrap();
        let mut service = Service::new(store, 7).with_recovery_bytes(0);
        service.enlisted(LIFE.1, &ServerList::default());
        for (segment, (bytes, closed)) in &replicas {
            let mut body = ReplicateHead::new(CRASHED, 0, LIFE).as_bytes().to_vec();
            let flags = OPEN | if *closed { CLOSE } else { 0 };
            let length = bytes.len() as u32;
            let part = ReplicaPart::new(*segment, Epoch(0), 0, length, length, flags);
            body.extend_from_slice(part.as_bytes());
            body.extend_from_slice(bytes);
            assert!(matches!(service.local(&[&body]), Local::Now(Ok(_))));
        }
        let mut node = Node::new(boot.world, boot.transport, Beside(service));
        node.listen(SocketAddr::new(boot.address, PORT)).unwrap();
        Box::new(node)
    });
    simulation.run_for(Duration::from_secs(2));
    before(&mut simulation, backup);
    let to = address(simulation.address(backup), PORT);
    let done = Rc::new(Cell::new(false));
    let ended = Rc::clone(&done);
    simulation.add_host("caller", move |boot| {
        let node = Node::new(boot.world, boot.transport, ());
        let caller = Caller { calling: node.task_caller(), tasks: node.tasks().clone(), to };
        let (told, ended) = (conversation(caller), Rc::clone(&ended));
        node.tasks().spawn(async move {
            told.await;
            ended.set(true);
        });
        Box::new(node)
    });
    for _ in 0..200 {
        simulation.run_for(Duration::from_secs(1));
        if done.get() {
            return;
        }
    }
    panic!("the conversation did not come to its end");
}

#[test]
fn memory_of_parts_is_used_again_and_freed_at_the_end() {
    let replicas = log_in(256 << 10, 12_000);
    assert!(replicas.len() > 20, "{}", replicas.len());
    let expected = Rc::new(cut(&replicas, &partitions(1)));
    let own = replicas.clone();
    let conversation = move |it: Caller| {
        let (expected, order) =
            (Rc::clone(&expected), own.keys().copied().collect::<Vec<SegmentId>>());
        async move {
            it.begin(RecoveryId(5), partitions(1), order.clone()).await.unwrap();
            for segment in &order {
                let part = it.part((RecoveryId(5), 0), *segment).await.unwrap();
                assert_eq!(part, expected[segment][0], "{segment}");
            }
            let segment_bytes = 256 << 10;
            let held = it.status().await.recovery_bytes_held;
            assert!(held > 2 * segment_bytes, "{held}: memory of dropped parts is kept");
            assert!(held <= 10 * segment_bytes, "{held}: later parts take it");
            it.tasks.sleep(Duration::from_secs(3)).await;
            assert_eq!(it.status().await.recovery_bytes_held, 0);
        }
    };
    talk(&replicas, conversation, |_, _| {});
}

#[test]
fn each_partition_gets_what_is_its_own_and_memory_is_bounded() {
    let replicas = log_of(1500);
    assert!(replicas.len() > 40, "{}", replicas.len());
    let expected = Rc::new(cut(&replicas, &partitions(3)));
    let own = replicas.clone();
    let conversation = move |it: Caller| {
        let (expected, replicas) = (Rc::clone(&expected), own.clone());
        async move {
            let mut order: Vec<SegmentId> = replicas.keys().copied().rev().collect();
            // One segment is not named.
            let spare = order.remove(11);
            it.begin(RecoveryId(5), partitions(3), order.clone()).await.unwrap();
            order.insert(30, spare);
            let left = Rc::new(Cell::new(3));
            let fetched = Rc::new(RefCell::new(Vec::new()));
            for (partition, pause) in [(0, 0), (1, 3), (2, 40)] {
                let (it, order, expected) = (it.clone(), order.clone(), Rc::clone(&expected));
                let (left, fetched) = (Rc::clone(&left), Rc::clone(&fetched));
                it.clone().tasks.spawn(async move {
                    let of = (RecoveryId(5), partition);
                    for (number, segment) in order.iter().enumerate() {
                        let part = it.part(of, *segment).await.unwrap();
                        assert_eq!(part, expected[segment][partition as usize], "{segment}");
                        fetched.borrow_mut().push((partition, *segment));
                        it.tasks.sleep(Duration::from_millis(pause)).await;
                        if number == 20 && partition == 1 {
                            // This partition begins anew: its fetched parts are cut once more for
                            // it.
                            for segment in &order[..20] {
                                let part = it.part(of, *segment).await.unwrap();
                                assert_eq!(part, expected[segment][1], "{segment}");
                            }
                        }
                        if number % 7 == 3 {
                            // Answers are lost: the last piece, and an earlier one.
                            let at = part.len() as u32 - 1;
                            let (_, piece) = it.piece(of, *segment, at, 100).await.unwrap();
                            assert_eq!(piece, part[at as usize..]);
                            let segment = order[number - 1];
                            let part = it.part(of, segment).await.unwrap();
                            assert_eq!(part, expected[&segment][partition as usize]);
                        }
                    }
                    left.set(left.get() - 1);
                });
            }
            let mut most = 0;
            while left.get() > 0 {
                it.tasks.sleep(Duration::from_millis(5)).await;
                most = most.max(it.status().await.recovery_bytes_held);
            }
            assert!(most > 3 * u64::from(SEGMENT_BYTES), "{most}: it reads ahead");
            assert!(most <= 10 * u64::from(SEGMENT_BYTES), "{most}: but not too far");
            it.tasks.sleep(Duration::from_secs(3)).await;
            let status = it.status().await;
            assert_eq!(status.recovery_bytes_held, 0, "all was fetched");
            let bytes: u64 = replicas.values().map(|(bytes, _)| bytes.len() as u64).sum();
            let read = status.recovery_bytes_read;
            assert!(read >= bytes && read < 3 * bytes, "{read} of {bytes}: hardly anything twice");
            // There are no more requests.
            it.tasks.sleep(Duration::from_secs(61)).await;
            assert_eq!(it.part((RecoveryId(5), 0), order[0]).await, Err((Status::Refused, 37)));
        }
    };
    talk(&replicas, conversation, |_, _| {});
}

/// When a log is taken back, its closed replicas go whole: to other shards in pieces, to the shard
/// of the same process directly. Open replicas are cut, because their ends may be torn.
#[test]
fn a_log_that_is_taken_back_goes_whole() {
    let replicas = log_of(600);
    let own = replicas.clone();
    let expected = Rc::new(cut(&replicas, &partitions(1)));
    let conversation = move |it: Caller| {
        let (expected, replicas) = (Rc::clone(&expected), own.clone());
        async move {
            let order: Vec<SegmentId> = replicas.keys().copied().collect();
            it.begin_as(RecoveryId(5), partitions(1), order.clone(), true).await.unwrap();
            it.tasks.sleep(Duration::from_secs(1)).await;
            let held = it.status().await.recovery_bytes_held;
            assert!(held > 0 && held <= 9 * u64::from(SEGMENT_BYTES), "{held}: some, unasked");
            let mut most = 0;
            for (number, segment) in order.iter().enumerate() {
                let (bytes, closed) = &replicas[segment];
                let part = match number % 2 {
                    0 => it.part((RecoveryId(5), 0), *segment).await.unwrap(),
                    _ => loop {
                        let head = RecoveryHead::new(CRASHED, (RecoveryId(5), 0), *segment, 0, 1);
                        match it.call(Opcode::Read, head.as_bytes().to_vec()).await {
                            Err((Status::Busy, _)) => {
                                it.tasks.sleep(Duration::from_micros(500)).await;
                            }
                            Err(_) if !closed => {
                                break it.part((RecoveryId(5), 0), *segment).await.unwrap();
                            }
                            answer => break answer.unwrap(),
                        }
                    },
                };
                assert_eq!(&part, if *closed { bytes } else { &expected[segment][0] }, "{segment}");
                most = most.max(it.status().await.recovery_bytes_held);
            }
            assert!(most <= 10 * u64::from(SEGMENT_BYTES), "{most}: not too far ahead");
            it.tasks.sleep(Duration::from_secs(3)).await;
            assert_eq!(it.status().await.recovery_bytes_held, 0, "all was fetched");
            let old = RecoveryHead::new(CRASHED, (RecoveryId(4), 0), order[0], 0, 1);
            let refused = it.call(Opcode::Read, old.as_bytes().to_vec()).await;
            assert_eq!(refused, Err((Status::Refused, 0)), "another recovery");
        }
    };
    talk(&replicas, conversation, |_, _| {});
    let open = |(number, (_, closed)): (usize, &(Vec<u8>, bool))| number % 2 == 1 && !closed;
    assert!(replicas.values().enumerate().any(open), "an open one is asked for directly");
}

/// If the memory is full of parts that silent partitions do not fetch, other partitions still
/// progress.
#[test]
fn partitions_that_are_silent_or_wait_hold_nobody_up() {
    let replicas = log_of(900);
    let expected = Rc::new(cut(&replicas, &partitions(3)));
    let order: Vec<SegmentId> = replicas.keys().copied().collect();
    let conversation = move |it: Caller| {
        let (expected, order) = (Rc::clone(&expected), order.clone());
        async move {
            it.begin(RecoveryId(1), partitions(3), order.clone()).await.unwrap();
            // The third partition sends no request.
            for segment in &order {
                for partition in [0, 1] {
                    let part = it.part((RecoveryId(1), partition), *segment).await.unwrap();
                    assert_eq!(part, expected[segment][partition as usize]);
                }
            }
            // All partitions send requests, but only the first one fetches the unnamed segments
            // here.
            it.begin(RecoveryId(2), partitions(3), vec![]).await.unwrap();
            let begun = it.tasks.now();
            for segment in &order {
                for partition in [1, 2] {
                    it.piece((RecoveryId(2), partition), order[0], 0, 1).await.unwrap();
                }
                let part = it.part((RecoveryId(2), 0), *segment).await.unwrap();
                assert_eq!(part, expected[segment][0]);
            }
            let took = it.tasks.now().since(begun);
            assert!(took < Duration::from_secs(5), "{took:?}");
            // All partitions send requests, but none fetches the parts that are ready.
            it.begin(RecoveryId(3), partitions(3), order.clone()).await.unwrap();
            it.tasks.sleep(Duration::from_secs(1)).await;
            let last = *order.last().unwrap();
            let (fetched, of, first) = (Rc::new(Cell::new(false)), it.clone(), order[0]);
            let has_fetched = Rc::clone(&fetched);
            it.tasks.spawn(async move {
                let part = of.part((RecoveryId(3), 0), last).await.unwrap();
                assert_eq!(part, expected[&last][0]);
                has_fetched.set(true);
            });
            for _ in 0..40 {
                it.tasks.sleep(Duration::from_millis(50)).await;
                for partition in [1, 2] {
                    it.piece((RecoveryId(3), partition), first, 0, 1).await.unwrap();
                }
            }
            assert!(fetched.get(), "a partition that has waited for long progresses");
        }
    };
    talk(&replicas, conversation, |_, _| {});
}

#[test]
fn requests_that_make_no_sense_or_are_over_are_refused() {
    let replicas = log_of(200);
    let order: Vec<SegmentId> = replicas.keys().copied().collect();
    let conversation = move |it: Caller| {
        let order = order.clone();
        async move {
            let status = |answer: Result<Vec<u8>, (Status, u64)>| answer.err().map(|it| it.0);
            let malformed = Some(Status::Malformed);
            assert_eq!(status(it.begin(RecoveryId(1), vec![], order.clone()).await), malformed);
            assert_eq!(status(it.begin(RecoveryId(1), partitions(1025), vec![]).await), malformed);
            let twice = vec![partitions(1).remove(0), partitions(2).remove(1)];
            assert_eq!(status(it.begin(RecoveryId(1), twice, vec![]).await), malformed);
            let ranges = vec![partitions(1)[0].repeat(70_000)];
            assert_eq!(status(it.begin(RecoveryId(1), ranges, vec![]).await), malformed);
            // There are more segments than the backup has frames.
            let many = (0..201).map(SegmentId).collect();
            assert_eq!(status(it.begin(RecoveryId(1), partitions(1), many).await), malformed);
            assert_eq!(status(it.call(Opcode::BeginRecovery, b"{}".to_vec()).await), malformed);
            assert_eq!(status(it.call(Opcode::RecoveryData, vec![0; 39]).await), malformed);
            assert_eq!(status(it.call(Opcode::HeadOf, b"7".to_vec()).await), malformed);
            assert_eq!(status(it.part((RecoveryId(1), 0), order[0]).await), Some(Status::Refused));
            // The backup skips segments that it does not have.
            let named = vec![SegmentId(900), order[0], SegmentId(901)];
            it.begin(RecoveryId(3), partitions(1024), named.clone()).await.unwrap();
            it.begin(RecoveryId(3), partitions(1024), named).await.unwrap();
            assert_eq!(status(it.part((RecoveryId(3), 1024), order[0]).await), malformed);
            assert_eq!(
                status(it.part((RecoveryId(3), 0), SegmentId(900)).await),
                Some(Status::NotFound)
            );
            let empty = it.part((RecoveryId(3), 9), order[0]).await.unwrap();
            assert!(empty.len() < 2000, "{}", empty.len());
            assert_eq!(status(it.part((RecoveryId(4), 0), order[0]).await), Some(Status::Refused));
            let older = it.begin(RecoveryId(2), partitions(1), vec![]).await;
            assert_eq!(older, Err((Status::Refused, 38)));
            it.begin(RecoveryId(4), partitions(1), order.clone()).await.unwrap();
            assert_eq!(status(it.part((RecoveryId(3), 0), order[0]).await), Some(Status::Refused));
            it.part((RecoveryId(4), 0), order[0]).await.unwrap();
            // A master that is being recovered gets nothing more.
            let head = ReplicateHead::new(CRASHED, 9, LIFE).as_bytes().to_vec();
            assert_eq!(status(it.call(Opcode::Replicate, head).await), Some(Status::Deposed));
            let of = to_body(&OfMaster { master: CRASHED });
            it.call(Opcode::FreeMaster, of).await.unwrap();
            assert_eq!(status(it.part((RecoveryId(4), 0), order[0]).await), Some(Status::Refused));
            it.tasks.sleep(Duration::from_secs(1)).await;
            assert_eq!(it.status().await.recovery_bytes_held, 0);
        }
    };
    talk(&replicas, conversation, |_, _| {});
}

#[test]
fn a_head_tells_of_its_log() {
    let mut replicas = log_of(200);
    let last = *replicas.keys().last().unwrap();
    // One replica is torn, and one is damaged.
    let (torn, bad) = (SegmentId(last.0 - 1), SegmentId(last.0 - 2));
    let replica = replicas.get_mut(&torn).unwrap();
    replica.0.truncate(replica.0.len() - 300);
    replica.1 = false;
    let replica = replicas.get_mut(&bad).unwrap();
    let middle = replica.0.len() / 2;
    replica.0[middle] ^= 1;
    let all: Vec<SegmentId> = replicas.keys().copied().collect();
    let conversation = move |it: Caller| {
        let all = all.clone();
        async move {
            let head = async |segment| {
                let of = to_body(&HeadOf { master: CRASHED, segment });
                it.call(Opcode::HeadOf, of).await.map(|body| of_body::<Head>(&body).unwrap())
            };
            let whole = head(last).await.unwrap();
            assert_eq!((whole.digest, whole.torn), (Some(all.clone()), None));
            // The request has fenced the master.
            let word = ReplicateHead::new(CRASHED, 9, LIFE).as_bytes().to_vec();
            let deposed = it.call(Opcode::Replicate, word).await.unwrap_err();
            assert_eq!(deposed.0, Status::Deposed);
            assert_eq!(whole.statistics.len(), 1);
            assert_eq!(whole.statistics[0].range, TabletRange::whole(TABLE));
            assert!(whole.statistics[0].objects > 100);
            let end = head(torn).await.unwrap();
            assert!(end.torn.is_some() && end.digest.is_some());
            assert_eq!(head(bad).await.unwrap_err(), (Status::Refused, 36));
            assert_eq!(head(SegmentId(99)).await.unwrap_err().0, Status::NotFound);
            // The torn replica may be cut, because it was open; the damaged one may not.
            it.begin(RecoveryId(1), partitions(2), all).await.unwrap();
            it.part((RecoveryId(1), 0), torn).await.unwrap();
            assert_eq!(it.part((RecoveryId(1), 0), bad).await, Err((Status::Refused, 36)));
        }
    };
    talk(&replicas, conversation, |_, _| {});
}

#[test]
fn damage_on_the_disk_is_refused() {
    let replicas = log_of(100);
    let order: Vec<SegmentId> = replicas.keys().copied().collect();
    let conversation = move |it: Caller| {
        let order = order.clone();
        async move {
            it.begin(RecoveryId(1), partitions(2), order.clone()).await.unwrap();
            let mut refused = 0;
            for segment in &order {
                let part = it.part((RecoveryId(1), 1), *segment).await;
                refused += u32::from(matches!(part, Err((Status::Refused, _))));
            }
            // The head is in the memory that outlasts the process.
            assert!(refused as usize >= order.len() - 1, "{refused} of {}", order.len());
        }
    };
    talk(&replicas, conversation, |simulation, backup| {
        assert!((0..60_000).all(|_| simulation.disk(backup).rot()));
    });
}
