//! The membership of a server in its cluster: its requests, calls and timers.
//!
//! The server's own questions to the coordinators, by which it registers and enlists, are one at a
//! time. The probes have questions of their own ([`crate::probes`]).

use super::{NOT_YET_US, Phase, Server, WARN_EVERY};
use crate::door::Door;
use crate::generation::Ended;
use crate::owner::Owner;
use thunderhead_master::coordinator_client::CoordinatorReply;
use thunderhead_rpc::{CallError, CallId, Context, Opcode, OwnerId, Request};
use thunderhead_wire::Status;
use thunderhead_wire::control::{Empty, ServerList, of_body, to_body};
use thunderhead_wire::membership::{FoundDoor, Probe};

/// The error of a server that the cluster has forgotten.
const FORGOTTEN: &str = "the cluster has forgotten this server, so nothing in its storage is needed; to begin as a \
                         new server, give it an empty data directory";
/// The error of a server whose id the metastore has never given out.
const NEVER_KNOWN: &str = "the coordinator has never given out the id of this server, so its metastore may be an older \
                           copy; keep this storage, which may have the only replicas of some data, and give the \
                           coordinator its latest metastore";
/// The error of a server whose coordinators all belong to another cluster than its storage.
const OTHER_CLUSTER: &str = "the configured coordinators belong to another cluster than the server's \
     storage; check their addresses, or give the server the data directory of this cluster";

/// The error of a server that cannot read the coordinator's answer.
const INCOMPREHENSIBLE: &str = "this program cannot read the coordinator's answer; check that both \
     programs have the same version";

impl Server {
    /// Handles a request of [`Component::Membership`](thunderhead_rpc::Component::Membership).
    pub(super) fn membership_request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        if request.opcode == Opcode::Probe {
            return self.probed(context, request);
        }
        if request.opcode == Opcode::FindDoor {
            let door = self.door.as_mut().and_then(Door::in_cluster);
            let nothing = || FoundDoor { address: None, ports: Vec::new() };
            let found = door.map_or_else(nothing, |door| door.found());
            return context.reply(request.reply_to, &[&to_body(&found)]);
        }
        match of_body::<ServerList>(request.body) {
            Some(list) => {
                self.generation.learn(list);
                context.reply(request.reply_to, &[&to_body(&Empty {})]);
            }
            None => context.refuse(request.reply_to, Status::Malformed, 0, &[]),
        }
    }

    /// Answers a probe, which asks whether a generation of this server is up.
    fn probed(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Some(probe) = of_body::<Probe>(request.body) else {
            return context.refuse(request.reply_to, Status::Malformed, 0, &[]);
        };
        let Some(probes) = &mut self.probes else {
            // Before the server has enlisted, only the first node knows its identity.
            return context.refuse(request.reply_to, Status::Busy, NOT_YET_US, &[]);
        };
        let probed = probes.answer(&self.generation, self.nonce, &probe);
        context.reply(request.reply_to, &[&to_body(&probed)]);
        let knows_more = probe.list_version > probed.list_version;
        if knows_more && self.generation.identity().is_some() {
            probes.fetch_list(context);
        }
    }

    /// Takes the outcome of a call of the server itself.
    pub(super) fn membership_reply(
        &mut self,
        context: &mut Context<'_>,
        owner: OwnerId,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        let generation = &self.generation;
        match (Owner::of(owner), &mut self.probes) {
            (Some(Owner::ClusterDoor), _) => {
                if let Some(door) = self.door.as_mut().and_then(Door::in_cluster) {
                    door.on_found(context, call, outcome);
                }
            }
            (Some(Owner::ClusterDoorCoordinator), _) => {
                if let Some(door) = self.door.as_mut().and_then(Door::in_cluster) {
                    door.on_coordinator_reply(context, call, outcome);
                }
            }
            (Some(Owner::Coordinator), _) => self.on_coordinator_reply(context, call, outcome),
            (Some(Owner::Probes), Some(probes)) => {
                probes.on_probe_reply(context, generation, call, outcome);
            }
            (Some(Owner::ProbesCoordinator), Some(probes)) => {
                let answer = probes.on_coordinator_reply(context, generation, call, outcome);
                if let Err(CallError::Refused { status: Status::Deposed, .. }) = answer {
                    self.deposed();
                }
            }
            (Some(Owner::Leaving | Owner::Door) | None, _) | (_, None) => {}
        }
    }

    /// Handles an expired timer of the server itself.
    pub(super) fn membership_timer(&mut self, context: &mut Context<'_>, owner: OwnerId) {
        match (Owner::of(owner), &mut self.probes) {
            (Some(Owner::Coordinator), _) => self.coordinator.on_timer(context),
            (Some(Owner::Door), _) => {
                if let Some(door) = &mut self.door {
                    let serves = self.phase == Phase::Serving && self.leaves_by.is_none();
                    door.on_timer(context, self.shard.as_mut().filter(|_| serves));
                }
            }
            (Some(Owner::ClusterDoor), _) => {
                let serves = self.phase == Phase::Serving && self.leaves_by.is_none();
                if let Some(door) = self.door.as_mut().and_then(Door::in_cluster) {
                    door.on_search_timer(context, self.shard.as_ref().filter(|_| serves));
                }
            }
            (Some(Owner::ClusterDoorCoordinator), _) => {
                if let Some(door) = self.door.as_mut().and_then(Door::in_cluster) {
                    door.on_coordinator_timer(context);
                }
            }
            (Some(Owner::Probes), Some(probes)) => probes.on_timer(context, &self.generation),
            (Some(Owner::ProbesCoordinator), Some(probes)) => probes.on_coordinator_timer(context),
            // The end of the turn looks whether the wait is over.
            (Some(Owner::Leaving) | None, _) | (_, None) => {}
        }
    }

    /// Takes the outcome of a call to a coordinator, by which the server registers or enlists.
    fn on_coordinator_reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        match self.coordinator.reply(context, call, outcome) {
            CoordinatorReply::Answered { question, answer, .. }
                if Some(question) == self.question =>
            {
                self.question = None;
                self.answered(context, answer);
            }
            CoordinatorReply::Later if self.is_among_strangers() => self.fail(OTHER_CLUSTER),
            CoordinatorReply::Later if self.warns_from <= context.now() => {
                self.warns_from = context.now() + WARN_EVERY;
                tracing::warn!("no coordinator that leads has answered yet; asking again");
            }
            _ => {}
        }
    }

    /// Asks the coordinators the question that the server needs an answer to now.
    pub(super) fn ask(&mut self, context: &mut Context<'_>, opcode: Opcode, body: Vec<u8>) {
        let question = self.coordinator.ask(context, Owner::Coordinator, opcode, body);
        self.question = Some(question);
    }

    /// Handles a coordinator's answer to the present question.
    fn answered(&mut self, context: &mut Context<'_>, answer: Result<Vec<u8>, CallError>) {
        let body = match answer {
            Ok(body) => body,
            // The answer to an earlier attempt was lost, and the cluster has declared this
            // generation crashed since.
            Err(CallError::Refused { status: Status::Deposed, .. }) => {
                return self.end(Ended::Deposed);
            }
            Err(CallError::Refused { status: Status::NoSuchServer, .. }) => {
                return self.fail(FORGOTTEN);
            }
            Err(CallError::Refused { status: Status::UnknownServer, .. }) => {
                return self.fail(NEVER_KNOWN);
            }
            Err(CallError::Refused { status: Status::OldProgram, .. }) => {
                let newest = self.options.newest_format;
                return self.fail(format!("{}: this one knows {newest}", Status::OldProgram));
            }
            Err(error) => {
                return self.fail(format!("the coordinator refuses this server: {error}"));
            }
        };
        match self.phase {
            Phase::Registering => match of_body(&body) {
                Some(registered) => self.registered(context, registered),
                None => self.fail(INCOMPREHENSIBLE),
            },
            Phase::Enlisting => match of_body(&body) {
                Some(enlisted) => self.enlisted(context, enlisted),
                None => self.fail(INCOMPREHENSIBLE),
            },
            _ => {}
        }
    }
}
