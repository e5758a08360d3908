//! Failure detection among servers: each server probes one other server in each interval, and
//! reports a server that does not answer to the coordinator.
//!
//! Servers are probed in a random order ([`Rounds`]). The first node of a process probes the first
//! node of the other process. A suspicion is a missing answer, a connection that fails or breaks,
//! or an answer of another generation. It is reported once, until the coordinator has the report.
//! The coordinator decides.
//!
//! Both sides name the version of their list of servers. The side with the older list fetches the
//! newer one from the coordinator, so a lost list is missing for about one interval. In the same
//! way a server that was declared crashed while it was unreachable learns that from the first
//! answer that it gets, or from the coordinator that it reports to, and ends its generation. A
//! server that knows no other server fetches the list now and then.
//!
//! A node answers probes as long as it gets its turns, also before it serves: a server that is
//! busy, or opens its storage, has not crashed. A server that ends says so from the moment at which
//! its backup accepts nothing more.

use crate::generation::{GenerationState, Identity};
use crate::owner::Owner;
use std::collections::{BTreeMap, BTreeSet};
use thunderhead_coordinator::{Probing, Rounds};
use thunderhead_master::coordinator_client::{CoordinatorClient, CoordinatorReply, QuestionId};
use thunderhead_rpc::{CallError, CallId, Context, Opcode};
use thunderhead_runtime::names::Addresses;
use thunderhead_wire::control::{Empty, ServerList, ServerState, of_body, to_body};
use thunderhead_wire::membership::{Presence, Probe, Probed, Suspect};
use thunderhead_wire::{Generation, ServerId};

/// The most probes, and reports, that wait for answers at once.
const PROBES_MAX: usize = 16;
const REPORTS_MAX: usize = 64;

/// A server that knows no other server fetches the list once in this many intervals.
const LONELY: u32 = 5;

/// The probes and reports of a server about other servers.
pub(crate) struct Probes {
    probing: Probing,
    rounds: Rounds,
    coordinator: CoordinatorClient,
    /// The probed servers, by call.
    sent: BTreeMap<CallId, (ServerId, Generation)>,
    /// The request for a newer list, if one is in flight.
    fetching: Option<QuestionId>,
    reports: BTreeMap<QuestionId, (ServerId, Generation)>,
    has_begun: bool,
    /// The number of intervals without another server to probe.
    lonely: u32,
    /// The log has a warning that probes cannot be sent.
    has_warned: bool,
    /// This server ends: its backup accepts nothing more.
    is_leaving: bool,
}

impl Probes {
    pub(crate) fn new(probing: Probing, coordinators: Addresses) -> Probes {
        Probes {
            probing,
            rounds: Rounds::default(),
            coordinator: CoordinatorClient::new(coordinators, Owner::ProbesCoordinator),
            sent: BTreeMap::new(),
            fetching: None,
            reports: BTreeMap::new(),
            has_begun: false,
            lonely: 0,
            has_warned: false,
            is_leaving: false,
        }
    }

    /// From now on this server answers probes with the news that it ends. It also tells the
    /// coordinator, so that no probe has to detect it.
    pub(crate) fn leave(&mut self, context: &mut Context<'_>, generation: &GenerationState) {
        if std::mem::replace(&mut self.is_leaving, true) || !self.probing.is_on() {
            return;
        }
        if let Some(identity) = generation.identity() {
            let own = (identity.server, identity.generation);
            self.report(context, generation, own, "it was asked to end".to_owned());
        }
    }

    /// Returns the answer to a probe, of a node that enlists with this nonce.
    pub(crate) fn answer(&self, generation: &GenerationState, nonce: u64, probe: &Probe) -> Probed {
        let presence = match generation.identity() {
            None => Presence::Begins(nonce),
            Some(identity) => {
                let here = (identity.cluster, identity.server, identity.generation);
                match here == (probe.cluster, probe.server, probe.generation) {
                    true if self.is_leaving => Presence::Leaves,
                    true => Presence::Here,
                    false => Presence::Other,
                }
            }
        };
        let list = generation.list();
        let you_are_gone = probe.from.is_some_and(|from| is_over(&list, from));
        Probed { presence, list_version: list.version, you_are_gone }
    }

    /// Begins to probe: the server has its identity now.
    pub(crate) fn begin(&mut self, context: &mut Context<'_>) {
        if !self.has_begun && self.probing.is_on() {
            self.has_begun = true;
            self.set_timer(context);
        }
    }

    fn set_timer(&mut self, context: &mut Context<'_>) {
        let pause = self.probing.pause(context.random());
        context.set_timer(context.now() + pause, Owner::Probes);
    }

    /// Handles its timer: the next probe is due.
    pub(crate) fn on_timer(&mut self, context: &mut Context<'_>, generation: &GenerationState) {
        self.set_timer(context);
        if let Some(identity) = generation.identity() {
            self.probe_next(context, generation, &identity);
        }
    }

    /// Handles the timer of its questions to the coordinators.
    pub(crate) fn on_coordinator_timer(&mut self, context: &mut Context<'_>) {
        self.coordinator.on_timer(context);
    }

    fn probe_next(
        &mut self,
        context: &mut Context<'_>,
        generation: &GenerationState,
        identity: &Identity,
    ) {
        let list = generation.list();
        let up = list.servers.iter().filter(|it| it.state == ServerState::Up);
        let others = up.filter(|it| it.server != identity.server);
        let others: BTreeSet<ServerId> = others.map(|it| it.server).collect();
        let Some(next) = self.rounds.next(context.random(), &others) else {
            // No other server would report to this server that it was declared crashed.
            self.lonely += 1;
            if self.lonely.is_multiple_of(LONELY) {
                self.fetch_list(context);
            }
            return;
        };
        let Some(info) = list.servers.iter().find(|it| it.server == next) else { return };
        let Some(to) = info.shards.first().map(|shard| shard.address) else { return };
        if self.sent.len() >= PROBES_MAX {
            return;
        }
        let probe = Probe {
            cluster: identity.cluster,
            server: next,
            generation: info.generation,
            from: Some((identity.server, identity.generation)),
            list_version: list.version,
        };
        let timeout = Some(self.probing.timeout);
        let call = context.call(Owner::Probes, to, Opcode::Probe, &[&to_body(&probe)], timeout);
        self.sent.insert(call, (next, info.generation));
    }

    /// Takes the outcome of the call with a probe.
    pub(crate) fn on_probe_reply(
        &mut self,
        context: &mut Context<'_>,
        generation: &GenerationState,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        if let Some(whom) = self.sent.remove(&call) {
            self.probed(context, generation, whom, outcome);
        }
    }

    /// Takes the outcome of a call to a coordinator. Returns the error of a question that is
    /// refused.
    pub(crate) fn on_coordinator_reply(
        &mut self,
        context: &mut Context<'_>,
        generation: &GenerationState,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) -> Result<(), CallError> {
        let reply = self.coordinator.reply(context, call, outcome);
        let CoordinatorReply::Answered { question, answer, .. } = reply else { return Ok(()) };
        self.reports.remove(&question);
        if self.fetching == Some(question) {
            self.fetching = None;
            if let Some(list) = answer.as_ref().ok().and_then(|body| of_body(body)) {
                generation.learn(list);
            }
        }
        answer.map(|_| ())
    }

    /// Handles the answer to a probe, or its failure.
    fn probed(
        &mut self,
        context: &mut Context<'_>,
        generation: &GenerationState,
        whom: (ServerId, Generation),
        outcome: Result<&[u8], CallError>,
    ) {
        let why = match outcome {
            Ok(body) => {
                let Some(answer) = of_body::<Probed>(body) else { return };
                let known = generation.list().version;
                if answer.list_version > known
                    || (answer.you_are_gone && answer.list_version == known)
                {
                    self.fetch_list(context);
                }
                match answer.presence {
                    Presence::Here => return,
                    Presence::Begins(_) => "another generation begins at its address".to_owned(),
                    Presence::Other => "another server is at its address".to_owned(),
                    Presence::Leaves => "it was asked to end".to_owned(),
                }
            }
            // The server answered, or the probe was not sent.
            Err(
                CallError::Refused { .. }
                | CallError::UnknownStatus(_)
                | CallError::TooLong
                | CallError::Congested,
            ) => return,
            // Otherwise a server without free descriptors would report healthy ones.
            Err(error) if error.is_own() => return self.could_not_ask(whom, &error),
            Err(error) => error.to_string(),
        };
        self.report(context, generation, whom, why);
    }

    /// Logs that this process could not send a probe.
    fn could_not_ask(&mut self, (server, _): (ServerId, Generation), error: &CallError) {
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(%server, "a probe cannot be sent: {error}");
        }
    }

    /// Reports a server that does not answer to the coordinator.
    fn report(
        &mut self,
        context: &mut Context<'_>,
        generation: &GenerationState,
        whom: (ServerId, Generation),
        why: String,
    ) {
        let Some(identity) = generation.identity() else { return };
        let is_known = self.reports.values().any(|reported| *reported == whom);
        if is_known || self.reports.len() >= REPORTS_MAX || !is_up(&generation.list(), whom) {
            return;
        }
        let (server, generation) = whom;
        tracing::debug!(%server, generation = generation.0, why, "a server does not answer");
        let by = (identity.server, identity.generation);
        let body = to_body(&Suspect { server, generation, by, why });
        let question = self.coordinator.ask(context, Owner::Probes, Opcode::Suspect, body);
        self.reports.insert(question, whom);
    }

    /// Fetches the list of servers, because another program knows a newer one.
    pub(crate) fn fetch_list(&mut self, context: &mut Context<'_>) {
        if self.fetching.is_none() {
            let (asker, body) = (Owner::Probes, to_body(&Empty {}));
            let question = self.coordinator.ask(context, asker, Opcode::ServerList, body);
            self.fetching = Some(question);
        }
    }
}

/// Whether a server is up in this generation, by a list.
fn is_up(list: &ServerList, (server, generation): (ServerId, Generation)) -> bool {
    let mut of_it = list.servers.iter().filter(|it| it.server == server);
    of_it.any(|it| it.generation == generation && it.state == ServerState::Up)
}

/// Whether a generation is over, by a list. A generation newer than the list is not.
pub(crate) fn is_over(list: &ServerList, (server, generation): (ServerId, Generation)) -> bool {
    let mut of_it = list.servers.iter().filter(|it| it.server == server);
    of_it.any(|it| {
        it.generation > generation || (it.generation == generation && it.state == ServerState::Down)
    })
}
