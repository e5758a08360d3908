//! A scripted coordinator: it follows the protocol for clients and servers, on a state that all
//! coordinators of a test share. There is no metastore and no task: a request is carried out within
//! its turn, and the test itself changes the leader, ends leases and sends commands.

mod tables;

use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use thunderhead_rpc::{Context, Opcode, Request, Service};
use thunderhead_wire::control::{
    self, ChangeSettings, CheckLeases, ClusterStatus, Lease, LeaseOpened, LeasesChecked, Map,
    OptionsOfTable, Owned, OwnedSince, RaiseEpoch, Recovered, ServerList, Settings,
    SettingsChanged,
};
use thunderhead_wire::{ClusterId, Epoch, LeaseId, MasterId, SegmentId, Status, TabletRange};

/// Returns the time by which leases end, in nanoseconds.
pub type Time = Rc<dyn Fn() -> u64>;

/// The owner of a log's tablets over several recoveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// The master that owns the tablets, if one does.
    pub owner: Option<MasterId>,
    /// The only master that may recover them from their owner.
    pub heir: Option<MasterId>,
    /// How often an heir became the owner.
    pub recoveries: usize,
}

/// The state that the coordinators of a test share.
pub struct CoordinatorState {
    /// The cluster that they name to clients.
    pub cluster: ClusterId,
    /// The index of the leading coordinator.
    pub leader: usize,
    /// The operations that get no answer, and are not carried out.
    muted: BTreeSet<Opcode>,
    /// How many answers of the leader are dropped after the operation was done.
    pub swallows: u64,
    /// How often the leader did each operation.
    pub carried_out: BTreeMap<Opcode, u64>,

    /// The tablets, as the leader tells them.
    pub map: Map,
    /// The map of a deposed coordinator that does not know that it was deposed.
    pub old_map: Option<Map>,
    /// Tables in a page of the map, and in an answer with news.
    pub page: usize,
    /// The shards for the tablets of new tables, one tablet each.
    pub shards: Vec<(MasterId, SocketAddr)>,
    tables: u64,

    /// How long a lease lasts after it was opened or renewed.
    pub ttl_ms: u64,
    /// When each open lease ends.
    pub leases: BTreeMap<LeaseId, u64>,
    /// The leases that have ended.
    pub ended: BTreeSet<LeaseId>,
    /// How many leases were opened.
    pub opened: u64,

    /// How many replicas a master needs to write.
    pub min_replicas: u32,
    /// `None`: the coordinators are of a version without it.
    pub settings_version: Option<u64>,
    /// The servers of the cluster.
    pub servers: ServerList,
    /// The noted epochs of heads.
    pub epochs: BTreeMap<SegmentId, Epoch>,

    /// The reports of rebuilt tablets.
    pub recovered: Vec<Recovered>,
    /// The status with which these reports are refused.
    pub refuses: Option<Status>,
    /// The rebuilt tablets that another master owns by then.
    pub not_yours: Vec<TabletRange>,
    /// The version of the map and the next lease, as masters learn them with tablets.
    pub owned_since: OwnedSince,
    /// The options of tables that it names in its answers.
    pub options: Vec<OptionsOfTable>,
    /// The owner of the tablets; `None`: every report is accepted.
    pub ownership: Option<Ownership>,
}

impl Default for CoordinatorState {
    fn default() -> CoordinatorState {
        CoordinatorState::new(1000)
    }
}

impl CoordinatorState {
    /// Returns the state of an empty cluster, led by the first coordinator, whose leases last
    /// `ttl_ms`.
    #[must_use]
    pub fn new(ttl_ms: u64) -> CoordinatorState {
        CoordinatorState {
            cluster: ClusterId(77),
            leader: 0,
            muted: BTreeSet::new(),
            swallows: 0,
            carried_out: BTreeMap::new(),
            map: Map { version: 1, ..Map::default() },
            old_map: None,
            page: usize::MAX,
            shards: Vec::new(),
            tables: 0,
            ttl_ms,
            leases: BTreeMap::new(),
            ended: BTreeSet::new(),
            opened: 0,
            min_replicas: 1,
            settings_version: Some(1),
            servers: ServerList::default(),
            epochs: BTreeMap::new(),
            recovered: Vec::new(),
            refuses: None,
            not_yours: Vec::new(),
            owned_since: OwnedSince::default(),
            ownership: None,
            options: Vec::new(),
        }
    }

    /// Makes another coordinator the leader. It grants all leases their whole duration again.
    pub fn elect(&mut self, leader: usize, now: u64) {
        self.leader = leader;
        let until = now + self.ttl_ms * 1_000_000;
        self.leases.values_mut().for_each(|it| *it = until);
    }

    /// Ends the leases that were not renewed in time.
    pub fn sweep(&mut self, now: u64) {
        let over: Vec<LeaseId> =
            self.leases.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
        for lease in over {
            self.leases.remove(&lease);
            self.ended.insert(lease);
        }
    }

    /// Lets an operation get no answer, or answers again.
    pub fn mute(&mut self, opcode: Opcode, is_mute: bool) {
        match is_mute {
            true => self.muted.insert(opcode),
            false => self.muted.remove(&opcode),
        };
    }

    /// How often the leader did an operation.
    #[must_use]
    pub fn count(&self, opcode: Opcode) -> u64 {
        self.carried_out.get(&opcode).copied().unwrap_or_default()
    }

    /// Does an operation as the leader, and returns the answer.
    ///
    /// # Errors
    ///
    /// Returns the status with which the leader refuses the operation.
    pub fn carry_out(&mut self, opcode: Opcode, body: &[u8], now: u64) -> Result<Vec<u8>, Status> {
        self.sweep(now);
        let done = self.do_it(opcode, body, now)?;
        *self.carried_out.entry(opcode).or_default() += 1;
        Ok(done)
    }

    fn do_it(&mut self, opcode: Opcode, body: &[u8], now: u64) -> Result<Vec<u8>, Status> {
        let until = now + self.ttl_ms * 1_000_000;
        match opcode {
            Opcode::Map => return Ok(self.part_of(&of(body)?, &self.map)),
            Opcode::CreateTable | Opcode::CreateTableWithOptions => {
                return self.create_table(&of(body)?);
            }
            Opcode::DropTable => self.drop_table(&of(body)?)?,
            Opcode::SplitTablet => return self.split_tablet(&of(body)?),
            Opcode::MigrateTablet => return self.migrate_tablet(&of(body)?),
            Opcode::OpenLease => {
                self.opened += 1;
                let lease = LeaseId(self.opened);
                self.leases.insert(lease, until);
                let (ttl_ms, cluster) = (self.ttl_ms, self.cluster);
                return Ok(control::to_body(&LeaseOpened { lease, ttl_ms, cluster }));
            }
            Opcode::RenewLease => {
                let Lease { lease } = of(body)?;
                *self.leases.get_mut(&lease).ok_or(Status::LeaseEnded)? = until;
            }
            Opcode::CloseLease => {
                let Lease { lease } = of(body)?;
                self.leases.remove(&lease);
                self.ended.insert(lease);
            }
            Opcode::CheckLeases => {
                let CheckLeases { leases } = of(body)?;
                let ended = leases.into_iter().filter(|it| self.ended.contains(it)).collect();
                let map_version = self.owned_since.map_version;
                return Ok(control::to_body(&LeasesChecked { ended, map_version }));
            }
            Opcode::ConfirmMaster => {}
            Opcode::RaiseEpoch => {
                let raise: RaiseEpoch = of(body)?;
                let epoch = self.epochs.entry(raise.segment).or_default();
                *epoch = raise.epoch.max(*epoch);
            }
            Opcode::Recovered => {
                let owned = self.on_recovered(of(body)?)?;
                return Ok(control::to_body(&owned));
            }
            Opcode::ChangeSettings => return self.change_settings(&of(body)?),
            Opcode::ClusterStatus => return Ok(control::to_body(&self.status())),
            _ => return Err(Status::UnknownOpcode),
        }
        Ok(control::to_body(&control::Empty {}))
    }

    /// Notes a report of rebuilt tablets, and decides about their owner.
    fn on_recovered(&mut self, report: Recovered) -> Result<Owned, Status> {
        let (crashed, by) = (Some(report.crashed), Some(report.by));
        self.recovered.push(report);
        if let Some(status) = self.refuses {
            return Err(status);
        }
        if let Some(ownership) = &mut self.ownership {
            if ownership.owner == crashed && ownership.heir == by {
                ownership.owner = by;
                ownership.recoveries += 1;
            }
            if ownership.owner != by {
                return Err(Status::Deposed);
            }
        }
        Ok(Owned {
            since: self.owned_since,
            not_yours: self.not_yours.clone(),
            options: self.options.clone(),
        })
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

    fn change_settings(&mut self, it: &ChangeSettings) -> Result<Vec<u8>, Status> {
        if it.version.is_some() && it.version != self.settings_version {
            return Err(Status::Outdated);
        }
        self.min_replicas = it.min_replicas.unwrap_or(self.min_replicas);
        self.settings_version = self.settings_version.map(|version| version + 1);
        let (settings, format) = (self.settings(), Default::default());
        Ok(control::to_body(&SettingsChanged { settings, format, lacking: Vec::new() }))
    }

    fn status(&self) -> ClusterStatus {
        ClusterStatus {
            cluster: self.cluster,
            settings: self.settings(),
            settings_version: self.settings_version,
            servers: self.servers.clone(),
            map: self.first_page(),
            leases: self.leases.len() as u64,
            recoveries: Vec::new(),
            remarks: Vec::new(),
            format: Default::default(),
            programs: Vec::new(),
        }
    }
}

/// Decodes a request.
fn of<T: DeserializeOwned>(body: &[u8]) -> Result<T, Status> {
    control::of_body(body).ok_or(Status::Malformed)
}

/// A coordinator that answers from a state of the test.
pub struct ScriptedCoordinator {
    /// Which of the coordinators it is.
    pub number: usize,
    /// The state of all coordinators.
    pub state: Rc<RefCell<CoordinatorState>>,
    /// The time by which leases end.
    pub time: Time,
}

impl ScriptedCoordinator {
    /// Returns a coordinator for tests whose leases end only by the test itself.
    #[must_use]
    pub fn new(number: usize, state: &Rc<RefCell<CoordinatorState>>) -> ScriptedCoordinator {
        ScriptedCoordinator { number, state: Rc::clone(state), time: Rc::new(|| 0) }
    }
}

impl Service for ScriptedCoordinator {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        let state = &mut *self.state.borrow_mut();
        if state.leader != self.number {
            if let (Opcode::Map, Some(map)) = (opcode, &state.old_map) {
                let request = control::of_body(body).unwrap_or_default();
                return context.reply(reply_to, &[&state.part_of(&request, map)]);
            }
            return context.refuse(reply_to, Status::NotLeader, 0, &[]);
        }
        if state.muted.contains(&opcode) {
            return;
        }
        let answer = state.carry_out(opcode, body, (self.time)());
        if state.swallows > 0 {
            state.swallows -= 1;
            return;
        }
        match answer {
            Ok(body) => context.reply(reply_to, &[&body]),
            Err(status) => context.refuse(reply_to, status, 0, &[]),
        }
    }
}
