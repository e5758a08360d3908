//! A fake coordinator that follows the protocol for clients, on a state that all coordinators of a
//! test share; and a shard that checks leases.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use thunderhead_master::Shard;
use thunderhead_rpc::{CallError, CallId, Context, Opcode, OwnerId, Request, Service};
use thunderhead_wire::control::{
    self, ChangeSettings, ClusterStatus, CreateTable, DropTable, Lease, LeaseOpened, Map,
    MapRequest, MigrateTablet, ServerList, Settings, SettingsChanged, SplitTablet, TableInfo,
    TabletInfo,
};
use thunderhead_wire::{ClusterId, KeyHash, LeaseId, MasterId, Status, TableId};

/// The state that the coordinators share.
pub(crate) struct Cluster {
    /// Tables in a page of the map, and in an answer with news.
    pub(crate) page: usize,
    pub(crate) cluster: ClusterId,
    /// The index of the leading coordinator.
    pub(crate) leader: usize,
    pub(crate) map: Map,
    /// The map of a deposed coordinator that does not know that it was deposed.
    pub(crate) old_map: Option<Map>,
    /// The shards for the tablets of new tables, one tablet each.
    pub(crate) shards: Vec<(MasterId, std::net::SocketAddr)>,
    pub(crate) ttl_ms: u64,
    /// When each open lease ends.
    pub(crate) leases: BTreeMap<LeaseId, u64>,
    pub(crate) ended: BTreeSet<LeaseId>,
    pub(crate) opened: u64,
    /// How often the leader did each operation.
    pub(crate) carried_out: BTreeMap<Opcode, u64>,
    /// How many answers of the leader are dropped after the operation was done.
    pub(crate) swallows: u64,
    pub(crate) min_replicas: u32,
    /// `None`: the coordinators are of a version without it.
    pub(crate) settings_version: Option<u64>,
    tables: u64,
}

pub(crate) type Time = Rc<dyn Fn() -> u64>;

impl Cluster {
    pub(crate) fn new(ttl_ms: u64) -> Cluster {
        Cluster {
            cluster: ClusterId(77),
            leader: 0,
            map: Map { version: 1, ..Map::default() },
            page: usize::MAX,
            old_map: None,
            shards: Vec::new(),
            ttl_ms,
            leases: BTreeMap::new(),
            ended: BTreeSet::new(),
            opened: 0,
            carried_out: BTreeMap::new(),
            swallows: 0,
            min_replicas: 1,
            settings_version: Some(1),
            tables: 0,
        }
    }

    /// Makes a table whose tablets are equal parts, one on each shard.
    pub(crate) fn table(&self, id: TableId, name: &str) -> TableInfo {
        let count = self.shards.len() as u128;
        let begin = |at: usize| ((at as u128) << 64) / count;
        let tablets = self.shards.iter().enumerate().map(|(at, (master, address))| {
            let (first, last) = (begin(at) as u64, (begin(at + 1) - 1) as u64);
            let (first, last) = (KeyHash(first), KeyHash(last));
            TabletInfo { first, last, master: *master, address: Some(*address) }
        });
        TableInfo { id, name: name.to_owned(), tablets: tablets.collect(), since: 0 }
    }

    /// Makes another coordinator the leader. It grants all leases their whole duration again.
    pub(crate) fn elect(&mut self, leader: usize, now: u64) {
        self.leader = leader;
        let until = now + self.ttl_ms * 1_000_000;
        self.leases.values_mut().for_each(|it| *it = until);
    }

    fn sweep(&mut self, now: u64) {
        let over: Vec<LeaseId> =
            self.leases.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
        for lease in over {
            self.leases.remove(&lease);
            self.ended.insert(lease);
        }
    }

    pub(crate) fn is_over(&mut self, lease: LeaseId, now: u64) -> bool {
        self.sweep(now);
        !self.leases.contains_key(&lease)
    }

    fn named(&mut self, name: &str) -> Result<&mut TableInfo, Status> {
        self.map.tables.iter_mut().find(|it| it.name == name).ok_or(Status::NoSuchTable)
    }

    fn part_of(&self, request: &MapRequest, map: &Map) -> Vec<u8> {
        let mut map = map.clone();
        if let Some(name) = &request.table {
            map.tables.retain(|table| table.name == *name);
        } else if request.is_news && map.tables.len() > self.page {
            let wanted: BTreeSet<TableId> =
                request.tables.iter().map(|(table, _)| *table).collect();
            map.tables.retain(|table| wanted.contains(&table.id));
            let is_there = |table: &TableId| map.tables.iter().any(|it| it.id == *table);
            map.gone = wanted.into_iter().filter(|table| !is_there(table)).collect();
            map.is_part = true;
        } else if !request.is_news {
            map.tables.retain(|table| request.from.is_none_or(|from| table.id >= from));
            map.more = map.tables.get(self.page).map(|table| table.id);
            map.tables.truncate(self.page);
        }
        control::to_body(&map)
    }

    fn settings(&self) -> Settings {
        Settings {
            replicas: 0,
            min_replicas: self.min_replicas,
            durability: "replicated".to_owned(),
            segment_bytes: 1 << 20,
            self_backup: false,
        }
    }

    pub(crate) fn carry_out(
        &mut self,
        opcode: Opcode,
        body: &[u8],
        now: u64,
    ) -> Result<Vec<u8>, Status> {
        fn of<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Status> {
            control::of_body(body).ok_or(Status::Malformed)
        }
        self.sweep(now);
        let nothing = control::to_body(&control::Empty {});
        match opcode {
            Opcode::Map => Ok(self.part_of(&of(body)?, &self.map)),
            Opcode::CreateTable => {
                let it: CreateTable = of(body)?;
                if self.named(&it.name).is_ok() {
                    return Err(Status::TableExists);
                }
                self.tables += 1;
                let table = self.table(TableId(self.tables), &it.name);
                self.map.tables.push(table.clone());
                self.map.version += 1;
                Ok(control::to_body(&table))
            }
            Opcode::DropTable => {
                let it: DropTable = of(body)?;
                let found = self.named(&it.name)?.id;
                if it.id.is_some_and(|id| id != found) {
                    return Err(Status::NoSuchTable);
                }
                self.map.tables.retain(|table| table.name != it.name);
                self.map.version += 1;
                Ok(nothing)
            }
            Opcode::SplitTablet => {
                let it: SplitTablet = of(body)?;
                let tablets = &mut self.named(&it.table)?.tablets;
                let at = tablets.iter().position(|tablet| tablet.last >= it.at);
                let at = at.ok_or(Status::BadRange)?;
                if tablets[at].first == it.at {
                    return Err(Status::BadRange);
                }
                let second = TabletInfo { first: it.at, ..tablets[at] };
                tablets[at].last = KeyHash(it.at.0 - 1);
                tablets.insert(at + 1, second);
                self.map.version += 1;
                Ok(control::to_body(self.named(&it.table)?))
            }
            Opcode::MigrateTablet => {
                let it: MigrateTablet = of(body)?;
                let shards = self.shards.clone();
                let shard = shards.iter().find(|(master, _)| *master == it.to);
                let (master, address) = *shard.ok_or(Status::NoSuchServer)?;
                let tablets = &mut self.named(&it.table)?.tablets;
                let tablet = tablets.iter_mut().find(|tablet| tablet.first == it.first);
                let tablet = tablet.ok_or(Status::BadRange)?;
                (tablet.master, tablet.address) = (master, Some(address));
                self.map.version += 1;
                Ok(control::to_body(self.named(&it.table)?))
            }
            Opcode::OpenLease => {
                self.opened += 1;
                self.leases.insert(LeaseId(self.opened), now + self.ttl_ms * 1_000_000);
                let (lease, ttl_ms, cluster) = (LeaseId(self.opened), self.ttl_ms, self.cluster);
                Ok(control::to_body(&LeaseOpened { lease, ttl_ms, cluster }))
            }
            Opcode::RenewLease => {
                let Lease { lease } = of(body)?;
                let until = now + self.ttl_ms * 1_000_000;
                *self.leases.get_mut(&lease).ok_or(Status::LeaseEnded)? = until;
                Ok(nothing)
            }
            Opcode::CloseLease => {
                let Lease { lease } = of(body)?;
                self.leases.remove(&lease);
                self.ended.insert(lease);
                Ok(nothing)
            }
            Opcode::ChangeSettings => {
                let it: ChangeSettings = of(body)?;
                if it.version.is_some() && it.version != self.settings_version {
                    return Err(Status::Outdated);
                }
                self.min_replicas = it.min_replicas.unwrap_or(self.min_replicas);
                self.settings_version = self.settings_version.map(|version| version + 1);
                let (settings, format) = (self.settings(), Default::default());
                Ok(control::to_body(&SettingsChanged { settings, format, lacking: Vec::new() }))
            }
            Opcode::ClusterStatus => Ok(control::to_body(&ClusterStatus {
                cluster: self.cluster,
                settings: self.settings(),
                settings_version: self.settings_version,
                servers: ServerList::default(),
                map: Map {
                    more: self.map.tables.get(self.page).map(|table| table.id),
                    tables: self.map.tables.iter().take(self.page).cloned().collect(),
                    ..self.map.clone()
                },
                leases: self.leases.len() as u64,
                recoveries: Vec::new(),
                remarks: Vec::new(),
                format: Default::default(),
                programs: Vec::new(),
            })),
            _ => Err(Status::UnknownOpcode),
        }
    }
}

/// A fake coordinator.
pub(crate) struct Coordinator {
    pub(crate) number: usize,
    pub(crate) cluster: Rc<RefCell<Cluster>>,
    pub(crate) time: Time,
}

impl Service for Coordinator {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        let cluster = &mut *self.cluster.borrow_mut();
        if cluster.leader != self.number {
            if let (Opcode::Map, Some(map)) = (opcode, &cluster.old_map) {
                let request = control::of_body(body).unwrap_or_default();
                return context.reply(reply_to, &[&cluster.part_of(&request, map)]);
            }
            return context.refuse(reply_to, Status::NotLeader, 0, &[]);
        }
        let answer = cluster.carry_out(opcode, body, (self.time)());
        if answer.is_ok() {
            *cluster.carried_out.entry(opcode).or_default() += 1;
        }
        if cluster.swallows > 0 {
            cluster.swallows -= 1;
            return;
        }
        match answer {
            Ok(body) => context.reply(reply_to, &[&body]),
            Err(status) => context.refuse(reply_to, status, 0, &[]),
        }
    }
}

/// How long a shard relies on the last report of a lease, in nanoseconds.
const BELIEVES: u64 = 150_000_000;

/// A shard that refuses updates under ended leases, and discards their completion records.
pub(crate) struct Minding {
    pub(crate) shard: Shard,
    pub(crate) cluster: Rc<RefCell<Cluster>>,
    pub(crate) time: Time,
    /// When it last heard that each lease is open.
    pub(crate) heard: BTreeMap<LeaseId, u64>,
}

impl Minding {
    pub(crate) fn new(shard: Shard, cluster: Rc<RefCell<Cluster>>, time: Time) -> Minding {
        Minding { shard, cluster, time, heard: BTreeMap::new() }
    }

    fn is_over(&mut self, lease: LeaseId) -> bool {
        let now = (self.time)();
        if self.heard.get(&lease).is_some_and(|heard| now - heard < BELIEVES) {
            return false;
        }
        if self.cluster.borrow_mut().is_over(lease, now) {
            self.heard.remove(&lease);
            for sequence in 1..200 {
                self.shard.log().forget_completion(lease, sequence);
            }
            return true;
        }
        self.heard.insert(lease, now);
        false
    }
}

impl Service for Minding {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        use Opcode::{Delete, Increment, UpdateMany, Write};
        if [Write, Delete, Increment, UpdateMany].contains(&request.opcode)
            && let Some(lease) = request.body.first_chunk()
            && self.is_over(LeaseId(u64::from_le_bytes(*lease)))
        {
            return context.refuse(request.reply_to, Status::LeaseEnded, 0, &[]);
        }
        self.shard.request(context, request);
    }

    fn reply(
        &mut self,
        context: &mut Context<'_>,
        owner: OwnerId,
        call: CallId,
        to: Result<&[u8], CallError>,
    ) {
        Service::reply(&mut self.shard, context, owner, call, to);
    }

    fn timer(&mut self, context: &mut Context<'_>, owner: OwnerId) {
        Service::timer(&mut self.shard, context, owner);
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        Service::turn_over(&mut self.shard, context);
    }
}
