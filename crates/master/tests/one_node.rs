//! A shard, a backup and a coordinator on one node, on this machine's own sockets: the composition
//! of a node from components, and a recovery whose replies all reach the component that made the
//! call.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use thunderhead_log::{
    Log, LogId, Memory, NoReplication, Options as LogOptions, Recorder, Replica, SegmentId,
    TableId, TabletRange,
};
use thunderhead_master::{Options, Shard};
use thunderhead_net::os::{Options as NetOptions, OsTransport};
use thunderhead_rpc::{
    CallError, CallId, Component, Context, Node, Opcode, OwnerId, Request, Service,
};
use thunderhead_runtime::os;
use thunderhead_wire::control::{
    self, Owned, OwnedSince, Recover, Recovered, Replicas, ShardStatus, Taken,
};
use thunderhead_wire::replication::{PieceHead, RecoveryHead};
use thunderhead_wire::{MasterId, RecoveryId, ServerId, Status};
use zerocopy::{FromBytes, IntoBytes};

const TABLE: TableId = TableId(1);

struct All {
    shard: Shard,
    replicas: BTreeMap<SegmentId, Replica>,
    own: SocketAddr,
    recover: Option<CallId>,
    told: Option<Recovered>,
}

impl All {
    fn backup(&self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        match opcode {
            Opcode::RecoveryData => {
                let head = RecoveryHead::ref_from_bytes(body).unwrap();
                let bytes = &self.replicas[&head.segment()].bytes;
                let from = head.offset() as usize;
                let until = (from + head.bytes() as usize).min(bytes.len());
                let piece = PieceHead::new(bytes.len() as u32);
                context.reply(reply_to, &[piece.as_bytes(), &bytes[from..until]]);
            }
            _ => context.refuse(reply_to, Status::UnknownOpcode, 0, &[]),
        }
    }
}

impl Service for All {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        match request.opcode.component() {
            Component::Shard | Component::ShardControl => self.shard.request(context, request),
            Component::Backup => self.backup(context, request),
            _ if request.opcode == Opcode::Recovered => {
                self.told = control::of_body(request.body);
                let owned = Owned {
                    since: OwnedSince::default(),
                    not_yours: Vec::new(),
                    options: Vec::new(),
                };
                context.reply(request.reply_to, &[&control::to_body(&owned)]);
            }
            _ => context.refuse(request.reply_to, Status::NotLeader, 0, &[]),
        }
    }

    fn reply(
        &mut self,
        context: &mut Context<'_>,
        owner: OwnerId,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        if self.recover == Some(call) {
            outcome.unwrap();
        } else {
            assert_eq!(owner.component(), Component::Shard);
            self.shard.reply(context, owner, call, outcome);
        }
    }

    fn timer(&mut self, context: &mut Context<'_>, owner: OwnerId) {
        assert_eq!(owner.component(), Component::Shard);
        self.shard.timer(context, owner);
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        if self.recover.is_none() {
            let range = TabletRange::whole(TABLE);
            let at = vec![(ServerId(1), self.own)];
            let segments = self.replicas.keys();
            let segments = segments.map(|it| Replicas {
                closed: false,
                epoch: Default::default(),
                segment: *it,
                at: at.clone(),
            });
            let recover = Recover {
                take_back: false,
                master: MasterId(2),
                crashed: MasterId(1),
                tablets: vec![Taken { range, since: SegmentId::NONE }],
                recovery: RecoveryId(1),
                partition: 0,
                expected: Vec::new(),
                segments: segments.collect(),
            };
            let body = control::to_body(&recover);
            self.recover = Some(context.call(
                OwnerId::only(Component::Node),
                self.own,
                Opcode::Recover,
                &[&body],
                None,
            ));
        }
        self.shard.turn_over(context);
    }
}

#[test]
fn a_node_recovers_from_its_own_backup() {
    for shared_memory in [false, true] {
        let options = LogOptions { segment_bytes: 512 << 10, ..LogOptions::default() };
        let recorder = Recorder::new();
        let memory = || Memory::new(16 << 20).unwrap();
        let replicator = Box::new(recorder.clone());
        let mut log = Log::new(&memory(), LogId(1), options.clone(), replicator).unwrap();
        log.create_tablet(TabletRange::whole(TABLE)).unwrap();
        for number in 0..3000u64 {
            log.write(TABLE, &number.to_be_bytes(), &[1; 1000]).unwrap();
        }
        log.turn();
        let name = format!("thunderhead-one-node-{}-{shared_memory}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let mut world = os::world(&directory).unwrap();
        let _ = std::fs::remove_dir(&directory);
        let transport =
            OsTransport::new(&world, NetOptions { shared_memory, ..NetOptions::default() });
        let replicator = Box::new(NoReplication::default());
        let log = Log::new(&memory(), LogId(2), options, replicator).unwrap();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut shard = Shard::in_cluster(log, MasterId(2), vec![nowhere], Options::default());
        assert_eq!(shard.start_cleaners(&mut *world.workers, 1).unwrap(), 1);
        let replicas = recorder.replicas(usize::MAX);
        let all = All { shard, replicas, own: nowhere, recover: None, told: None };
        let mut node = Node::new(world, Box::new(transport.unwrap()), all);
        let own = node.listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let all = node.service();
        all.own = own;
        all.shard.set_coordinators(vec![nowhere, own]);
        let recovering = |status: &ShardStatus| status.objects < 3000;
        while recovering(&node.service().shard.status()) {
            node.turn_now();
        }
        let told = node.service().told.take().unwrap();
        assert_eq!((told.crashed, told.by), (MasterId(1), MasterId(2)));
        assert_eq!(told.outcome.unwrap().len(), 1);
    }
}
