//! A part of the keys, as a door sees it: the door that executes its commands if this shard owns
//! it, and the search for its owner.

use super::super::DoorOf;
use super::super::redis::{Options, Redis};
use super::{ASKING, ClusterOptions, catalog_table};
use crate::owner::Owner;
use std::net::SocketAddr;
use std::sync::Arc;
use thunderhead_doors::resp::Node;
use thunderhead_master::Shard;
use thunderhead_master::coordinator_client::{CoordinatorClient, QuestionId};
use thunderhead_rpc::{CallError, CallId, Context, Opcode};
use thunderhead_wire::control::{Empty, Map, MapRequest, of_body, to_body};
use thunderhead_wire::membership::{ClusterPort, FoundDoor};
use thunderhead_wire::{MasterId, Status, TableId};

/// The owner's door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteOwner {
    pub(super) master: MasterId,
    pub(super) door: SocketAddr,
    /// Its cluster port for this part.
    port: Option<ClusterPort>,
}

/// The news in an answer about a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    None,
    /// Clients that wait for the part can be served, or try again.
    Resume,
    /// The owner, at this address, has no door.
    NoDoor(MasterId, SocketAddr),
}

/// See the module's documentation.
pub(super) struct Part {
    pub(super) number: u32,
    pub(super) local: DoorOf<Redis>,
    options: Options,
    /// The table with the catalog.
    pub(super) table: Option<TableId>,
    /// The table that this shard has taken over.
    pub(super) taken_over: Option<TableId>,
    pub(super) question: Option<QuestionId>,
    /// The question to the owner, at its address.
    call: Option<(CallId, MasterId, SocketAddr)>,
    pub(super) owner: Option<RemoteOwner>,
    /// The last node that has served this part.
    node: Option<(MasterId, ClusterPort)>,
}

impl Part {
    pub(super) fn new(number: u32, options: &Options, cluster: &ClusterOptions) -> Part {
        let mut options = options.clone();
        options.databases = cluster.parts.databases(number);
        // All shards of the process have the same options. Each keeps the settings of its own
        // clients, and the next generation begins without them, as after a crash.
        options.settings = Arc::default();
        Part {
            number,
            local: DoorOf::new(Redis::new(&options)),
            options,
            table: None,
            taken_over: None,
            question: None,
            call: None,
            owner: None,
            node: None,
        }
    }

    /// Whether the shard of this door owns the part. Takes over if it is new, or if the shard did
    /// not own the part at an earlier call: another shard may have changed the tables meanwhile.
    pub(super) fn owns(&mut self, shard: Option<&Shard>, master: MasterId) -> bool {
        let owned = self.table.filter(|table| shard.is_some_and(|shard| shard.owns(*table)));
        let Some(table) = owned else {
            self.taken_over = None;
            return false;
        };
        if self.taken_over.replace(table) != Some(table) {
            let part = self.number;
            tracing::info!(part, %table, %master, "this shard executes Redis's commands now");
            self.local.protocol.take_over(table, master);
        }
        true
    }

    /// Asks the coordinator for the owner, unless that was asked already.
    pub(super) fn ask_for_map(
        &mut self,
        context: &mut Context<'_>,
        coordinator: &mut CoordinatorClient,
    ) {
        if self.question.is_some() {
            return;
        }
        let table = Some(catalog_table(self.number));
        let body = to_body(&MapRequest { table, ..MapRequest::default() });
        self.question = Some(coordinator.ask(context, Owner::ClusterDoor, Opcode::Map, body));
    }

    /// Searches for the owner, unless it is known.
    pub(super) fn search(
        &mut self,
        context: &mut Context<'_>,
        coordinator: &mut CoordinatorClient,
    ) {
        if self.call.is_none() && self.owner.is_none() {
            self.ask_for_map(context, coordinator);
        }
    }

    /// Takes the coordinator's answer about the owner.
    pub(super) fn take_map(
        &mut self,
        context: &mut Context<'_>,
        answer: Result<Vec<u8>, CallError>,
        own: MasterId,
    ) -> News {
        self.question = None;
        let map = match answer {
            Ok(body) => of_body::<Map>(&body),
            Err(CallError::Refused { status: Status::NoSuchTable, .. }) => {
                self.table = None;
                self.options.databases.want_catalog();
                None
            }
            Err(_) => None,
        };
        let Some(table) = map.and_then(|map| map.tables.into_iter().next()) else {
            return News::None;
        };
        self.table = Some(table.id);
        let Some(tablet) = table.tablets.first() else { return News::None };
        if self.owner.as_ref().is_some_and(|owner| owner.master != tablet.master) {
            self.owner = None;
        }
        if tablet.master != own {
            self.taken_over = None;
        }
        match tablet.address {
            // This shard: the clients are served now, or when it knows that it owns the part.
            Some(_) if tablet.master == own => return News::Resume,
            Some(address) => {
                let (body, timeout) = (to_body(&Empty {}), Some(ASKING));
                let (owner, find) = (Owner::ClusterDoor, Opcode::FindDoor);
                let call = context.call(owner, address, find, &[&body], timeout);
                self.call = Some((call, tablet.master, address));
            }
            None => {}
        }
        News::None
    }

    /// Whether this call is the part's question to its owner.
    pub(super) fn has_called(&self, call: CallId) -> bool {
        self.call.is_some_and(|(asked, ..)| asked == call)
    }

    /// Takes the owner's answer about its door.
    pub(super) fn take_found(&mut self, outcome: Result<&[u8], CallError>) -> News {
        let Some((_, master, address)) = self.call.take() else { return News::None };
        match outcome.ok().and_then(of_body::<FoundDoor>) {
            Some(FoundDoor { address: Some(door), mut ports }) => {
                let number = self.number as usize;
                let port = (number < ports.len()).then(|| ports.swap_remove(number));
                self.owner = Some(RemoteOwner { master, door, port });
                News::Resume
            }
            Some(FoundDoor { address: None, .. }) => News::NoDoor(master, address),
            None => News::None,
        }
    }

    /// Returns the part's node: that of its owner, or of the last owner. `own` is the cluster port
    /// of this shard.
    pub(super) fn node(
        &mut self,
        cluster: u64,
        master: MasterId,
        own: Option<&ClusterPort>,
    ) -> Option<Node> {
        let present = match (&self.owner, self.taken_over) {
            (_, Some(_)) => own.map(|port| (master, port.clone())),
            (Some(owner), None) => owner.port.clone().map(|port| (owner.master, port)),
            (None, None) => None,
        };
        let is_up = present.is_some();
        if is_up {
            self.node = present;
        }
        let (master, ClusterPort { host, port }) = self.node.clone()?;
        let id = format!("{:08x}{cluster:016x}{:016x}", self.number, master.0);
        Some(Node { id, host, port, is_up })
    }
}
