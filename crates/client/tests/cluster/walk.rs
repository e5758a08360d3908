//! An enumeration of a table whose tablets are split and move between any two pages.

use crate::user::{TABLE, shard_node};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_client::{
    Answer, CallNumber, Condition, Enumeration, KeyHash, MasterId, Output, Session,
};
use thunderhead_log::{Recorder, TabletRange};
use thunderhead_master::Shard;
use thunderhead_rpc::{
    CallError, CallId, Component, Context, Node, Opcode, OwnerId, Request, Service,
};
use thunderhead_runtime::Random;
use thunderhead_simulator::{Options, swarm};
use thunderhead_testkit::{Cluster, CoordinatorState, Place};
use thunderhead_wire::Status;
use thunderhead_wire::control::{TableInfo, TabletInfo};
use thunderhead_wire::operations::EnumerateHead;
use zerocopy::{FromBytes, IntoBytes};

const OBJECTS: u64 = 600;

/// The owner of the walker's calls and timers.
const OWNER: OwnerId = OwnerId::only(Component::Node);

/// The beginning of each tablet, and which of two shards has it.
type Layout = Rc<RefCell<BTreeMap<u64, usize>>>;

fn tablet(layout: &BTreeMap<u64, usize>, hash: u64) -> (KeyHash, KeyHash, usize) {
    let (first, shard) = layout.range(..=hash).next_back().expect("they cover all");
    let last = layout.range(first + 1..).next().map_or(u64::MAX, |(next, _)| next - 1);
    (KeyHash(*first), KeyHash(last), *shard)
}

/// A shard that has all objects and returns only those in its tablets.
struct Part {
    shard: Shard,
    number: usize,
    layout: Layout,
}

impl Service for Part {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        assert_eq!(request.opcode, Opcode::Enumerate);
        let head = EnumerateHead::ref_from_bytes(request.body).unwrap();
        let mut range = head.range();
        let (_, last, shard) = tablet(&self.layout.borrow(), range.first.0);
        if shard != self.number {
            return context.refuse(request.reply_to, Status::Moved, 0, &[]);
        }
        range.last = range.last.min(last);
        // Small pages leave time for many changes between them.
        let head = EnumerateHead::new(range, head.cursor(), 500);
        self.shard.request(context, Request { body: head.as_bytes(), ..request });
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        Service::turn_over(&mut self.shard, context);
    }
}

/// A client that enumerates the table.
struct Walker {
    session: Session,
    walk: Enumeration,
    found: Rc<RefCell<Vec<Vec<u8>>>>,
    ended: Rc<Cell<bool>>,
    calls: BTreeMap<CallId, CallNumber>,
}

impl Walker {
    fn go_on(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        loop {
            while let Some(output) = self.session.next_output() {
                let Output::Call { number, to, opcode, body, timeout } = output else { panic!() };
                let id = context.call(OWNER, to, opcode, &[&body], Some(timeout));
                self.calls.insert(id, number);
            }
            let Some((_, mut results)) = self.session.next_done() else { break };
            let answer = results.remove(0).unwrap_or_else(|error| panic!("{error}"));
            assert!(matches!(answer, Answer::Page { .. }));
            let objects = self.walk.answered(answer).unwrap();
            self.found.borrow_mut().extend(objects.into_iter().map(|object| object.key));
            self.begin(now);
        }
        if let Some(at) = self.session.deadline() {
            context.set_timer(at.max(now + Duration::from_micros(1)), OWNER);
        }
    }

    fn begin(&mut self, now: thunderhead_runtime::Time) {
        match self.walk.next() {
            Some(operation) => {
                let until = now + Duration::from_secs(30);
                self.session.begin(now, vec![operation], until);
            }
            None => self.ended.set(true),
        }
    }
}

impl Service for Walker {
    fn start(&mut self, context: &mut Context<'_>) {
        self.begin(context.now());
        self.go_on(context);
    }

    fn request(&mut self, _: &mut Context<'_>, _: Request<'_>) {}

    fn reply(
        &mut self,
        context: &mut Context<'_>,
        _: OwnerId,
        call: CallId,
        to: Result<&[u8], CallError>,
    ) {
        if let Some(number) = self.calls.remove(&call) {
            self.session.answered(context.now(), number, to);
        }
        self.go_on(context);
    }

    fn timer(&mut self, context: &mut Context<'_>, _: OwnerId) {
        self.session.tick(context.now());
        self.go_on(context);
    }
}

/// Splits, merges or moves a tablet. The coordinator may hear of it later.
fn change(layout: &Layout, coordinators: &RefCell<CoordinatorState>, random: &mut Random) {
    let mut tablets = layout.borrow_mut();
    let hash = random.number();
    let (first, _, shard) = tablet(&tablets, hash);
    match random.below(3) {
        0 if tablets.len() < 12 => drop(tablets.insert(hash, shard)),
        1 if first.0 != 0 => drop(tablets.remove(&first.0)),
        _ => drop(tablets.insert(first.0, 1 - shard)),
    }
    if random.chance(0.6) {
        tell(&tablets, &mut coordinators.borrow_mut(), random);
    }
}

fn tell(tablets: &BTreeMap<u64, usize>, coordinator: &mut CoordinatorState, random: &mut Random) {
    let info = |(first, _): (&u64, &usize)| {
        let (first, last, shard) = tablet(tablets, *first);
        let (master, address) = coordinator.shards[shard];
        // Some tablets are being recovered.
        let address = (!random.chance(0.1)).then_some(address);
        TabletInfo { first, last, master, address }
    };
    let tablets = tablets.iter().map(info).collect();
    coordinator.map.version += 1;
    coordinator.map.tables = vec![TableInfo {
        id: TABLE,
        name: "t".to_owned(),
        tablets,
        since: 0,
        beside: None,
        options: Default::default(),
    }];
}

fn run(seed: u64) -> usize {
    let mut random = Random::from_seed(seed);
    let link = swarm::drawn_link(&mut random);
    let mut cluster = Cluster::new(Options { link, ..Options::calm(seed) });
    let coordinators = Rc::clone(&cluster.coordinators);
    let layout: Layout = Rc::new(RefCell::new(BTreeMap::from([(0, 0)])));
    for number in 0..2 {
        let layout = Rc::clone(&layout);
        cluster.add_server(move |boot| {
            let backup = RefCell::new(Recorder::new());
            let layout = Rc::clone(&layout);
            shard_node(boot, &[TabletRange::whole(TABLE)], &backup, |mut shard| {
                for key in 0..OBJECTS {
                    let (key, value) = (key.to_be_bytes(), [7; 20]);
                    shard.log().write_if(TABLE, &key, &value, Condition::Always).unwrap();
                }
                Part { shard, number, layout }
            })
        });
    }
    cluster.add_scripted_coordinator();
    let shards = (1..).map(MasterId).zip(cluster.addresses(Place::Server)).collect();
    coordinators.borrow_mut().shards = shards;
    tell(&layout.borrow(), &mut coordinators.borrow_mut(), &mut random);
    let (found, ended) = (Rc::default(), Rc::new(Cell::new(false)));
    let to = cluster.addresses(Place::Coordinator);
    {
        let (found, ended) = (Rc::clone(&found), Rc::clone(&ended));
        cluster.add_user(move |mut boot| {
            let session = Session::new(to.clone(), boot.world.random.split());
            let walk = Enumeration::new(TABLE);
            let (found, ended) = (Rc::clone(&found), Rc::clone(&ended));
            let walker = Walker { session, walk, found, ended, calls: BTreeMap::new() };
            Box::new(Node::new(boot.world, boot.transport, walker))
        });
    }
    let mut changes = 0;
    for _ in 0..60_000 {
        cluster.simulation.run_for(Duration::from_millis(2));
        if ended.get() {
            break;
        }
        if random.chance(0.2) {
            change(&layout, &coordinators, &mut random);
            changes += 1;
        } else if random.chance(0.2) {
            tell(&layout.borrow(), &mut coordinators.borrow_mut(), &mut random);
        }
    }
    assert!(ended.get(), "seed {seed}: the enumeration never ends");
    let found = found.borrow();
    let unique: BTreeSet<_> = found.iter().collect();
    assert_eq!((found.len(), unique.len()), (OBJECTS as usize, OBJECTS as usize), "seed {seed}");
    changes
}

#[test]
fn an_enumeration_returns_each_object_once_while_tablets_split_and_move() {
    let changes: usize = (0..40).map(run).sum();
    assert!(changes > 1000, "only {changes} changes");
}
