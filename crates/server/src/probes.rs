//! Whether the other servers are there: each server asks one of them now and then, and tells the
//! coordinator who does not answer.
//!
//! It asks in a random order ([`Rounds`]), from the first node of its process to the first node of the
//! other's. No answer in time, a connection that cannot be had or breaks, or an answer of another life
//! is a suspicion, reported once until that was heard. What becomes of it is the coordinator's matter.
//!
//! Both sides say which list of servers they know. Who has the older one fetches the newer from the
//! coordinator: so a list that was lost on its way is missed for about one interval. And so a server
//! that was given up while it could not be reached learns it by the first answer that it gets, or
//! from the coordinator that it reports to, and ends this life. One that knows of no other server
//! fetches the list now and then.
//!
//! Probes are answered as long as the node gets its turns, also before it serves: whoever is busy, or
//! opens what it needs, is there. A server that ends says so from the moment on at which its backup takes nothing more.

use crate::life::{Identity, Life};
use crate::timers::Timer;
use std::collections::{BTreeMap, BTreeSet};
use thunderhead_coordinator::{Probing, Rounds};
use thunderhead_master::asking::{Asking, Heard, QuestionId};
use thunderhead_rpc::{CallError, CallId, Context, Opcode};
use thunderhead_runtime::names::Addresses;
use thunderhead_wire::control::{Empty, ServerList, ServerState, of_body, to_body};
use thunderhead_wire::membership::{Presence, Probe, Probed, Suspect};
use thunderhead_wire::{ServerId, Status};

/// Probes that may wait for answers, and reports.
const PROBES_MAX: usize = 16;
const REPORTS_MAX: usize = 64;

/// A server that has nobody to ask fetches the list in every so many intervals.
const LONELY: u32 = 5;

/// What a server finds out about others.
pub(crate) struct Probes {
    probing: Probing,
    rounds: Rounds,
    asking: Asking,
    /// Who was asked.
    sent: BTreeMap<CallId, (ServerId, u64)>,
    /// The newer list, if it was asked for.
    fetching: Option<QuestionId>,
    reports: BTreeMap<QuestionId, (ServerId, u64)>,
    has_begun: bool,
    /// How often there was nobody to ask.
    lonely: u32,
    /// The log says that probes cannot be sent.
    has_warned: bool,
    /// This server ends: its backup takes nothing more.
    is_leaving: bool,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// It was not made here.
    NotOurs,
    /// It was.
    Ours,
    /// The cluster has given this server up.
    Deposed,
}

impl Probes {
    pub(crate) fn new(probing: Probing, coordinators: Addresses) -> Probes {
        Probes {
            probing,
            rounds: Rounds::default(),
            asking: Asking::new(coordinators, Timer::ProbeAskAgain.number()),
            sent: BTreeMap::new(),
            fetching: None,
            reports: BTreeMap::new(),
            has_begun: false,
            lonely: 0,
            has_warned: false,
            is_leaving: false,
        }
    }

    /// From now on this server answers that it ends. It tells the coordinator so, which need not find out.
    pub(crate) fn leave(&mut self, context: &mut Context<'_>, life: &Life) {
        if std::mem::replace(&mut self.is_leaving, true) || !self.probing.is_on() {
            return;
        }
        if let Some(identity) = life.identity() {
            let own = (identity.server, identity.generation);
            self.report(context, life, own, "it was asked to end".to_owned());
        }
    }

    /// The answer to a probe, by the node that enlists with a nonce.
    pub(crate) fn answer(&self, life: &Life, nonce: u64, probe: &Probe) -> Probed {
        let presence = match life.identity() {
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
        let list = life.list();
        let you_are_gone = probe.from.is_some_and(|from| is_over(&list, from));
        Probed { presence, list_version: list.version, you_are_gone }
    }

    /// The server is somebody now: it asks others.
    pub(crate) fn begin(&mut self, context: &mut Context<'_>) {
        if !self.has_begun && self.probing.is_on() {
            self.has_begun = true;
            self.set_timer(context);
        }
    }

    fn set_timer(&mut self, context: &mut Context<'_>) {
        let pause = self.probing.pause(context.random());
        context.set_timer(context.now() + pause, Timer::Probe.number());
    }

    /// A timer has gone off; true if it was one of these.
    pub(crate) fn timer(&mut self, context: &mut Context<'_>, life: &Life, number: u64) -> bool {
        if number != Timer::Probe.number() {
            return self.asking.timer(context, number);
        }
        self.set_timer(context);
        if let Some(identity) = life.identity() {
            self.probe_next(context, life, &identity);
        }
        true
    }

    fn probe_next(&mut self, context: &mut Context<'_>, life: &Life, identity: &Identity) {
        let list = life.list();
        let up = list.servers.iter().filter(|it| it.state == ServerState::Up);
        let others = up.filter(|it| it.server != identity.server);
        let others: BTreeSet<ServerId> = others.map(|it| it.server).collect();
        let Some(next) = self.rounds.next(context.random(), &others) else {
            // Nobody else would tell it that it was given up.
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
        let call = context.call(to, Opcode::Probe, &[&to_body(&probe)], timeout);
        self.sent.insert(call, (next, info.generation));
    }

    /// What came of a call.
    pub(crate) fn reply(
        &mut self,
        context: &mut Context<'_>,
        life: &Life,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) -> Came {
        if let Some((server, generation)) = self.sent.remove(&call) {
            self.probed(context, life, (server, generation), outcome);
            return Came::Ours;
        }
        match self.asking.reply(context, call, outcome) {
            Heard::NotOurs => return Came::NotOurs,
            Heard::Later => {}
            Heard::Answered(question, answer) => {
                self.reports.remove(&question);
                if self.fetching == Some(question) {
                    self.fetching = None;
                    if let Some(list) = answer.as_ref().ok().and_then(|body| of_body(body)) {
                        life.learn(list);
                    }
                }
                if let Err(CallError::Refused { status: Status::Deposed, .. }) = answer {
                    return Came::Deposed;
                }
            }
        }
        Came::Ours
    }

    /// A server has answered, or not.
    fn probed(
        &mut self,
        context: &mut Context<'_>,
        life: &Life,
        whom: (ServerId, u64),
        outcome: Result<&[u8], CallError>,
    ) {
        let why = match outcome {
            Ok(body) => {
                let Some(answer) = of_body::<Probed>(body) else { return };
                let known = life.list().version;
                if answer.list_version > known
                    || (answer.you_are_gone && answer.list_version == known)
                {
                    self.fetch_list(context);
                }
                match answer.presence {
                    Presence::Here => return,
                    Presence::Begins(_) => "another life begins at its address".to_owned(),
                    Presence::Other => "somebody else is at its address".to_owned(),
                    Presence::Leaves => "it was asked to end".to_owned(),
                }
            }
            // It says something, or was not asked.
            Err(
                CallError::Refused { .. }
                | CallError::UnknownStatus(_)
                | CallError::TooLong
                | CallError::Congested,
            ) => return,
            // Otherwise a server without descriptors would accuse healthy ones.
            Err(error) if error.is_own() => return self.could_not_ask(whom, &error),
            Err(error) => error.to_string(),
        };
        self.report(context, life, whom, why);
    }

    /// A probe could not be sent, and the reason is this process.
    fn could_not_ask(&mut self, (server, _): (ServerId, u64), error: &CallError) {
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(%server, "a probe cannot be sent: {error}");
        }
    }

    /// Tells the coordinator of a server that does not answer.
    fn report(
        &mut self,
        context: &mut Context<'_>,
        life: &Life,
        whom: (ServerId, u64),
        why: String,
    ) {
        let Some(identity) = life.identity() else { return };
        let is_known = self.reports.values().any(|reported| *reported == whom);
        if is_known || self.reports.len() >= REPORTS_MAX || !is_up(&life.list(), whom) {
            return;
        }
        let (server, generation) = whom;
        tracing::debug!(%server, generation, why, "a server does not answer");
        let by = (identity.server, identity.generation);
        let body = to_body(&Suspect { server, generation, by, why });
        let question = self.asking.ask(context, Opcode::Suspect, body);
        self.reports.insert(question, whom);
    }

    /// Somebody knows a newer list of servers.
    pub(crate) fn fetch_list(&mut self, context: &mut Context<'_>) {
        if self.fetching.is_none() {
            let question = self.asking.ask(context, Opcode::ServerList, to_body(&Empty {}));
            self.fetching = Some(question);
        }
    }
}

/// Whether a server is there in that life, as far as a list knows.
fn is_up(list: &ServerList, (server, generation): (ServerId, u64)) -> bool {
    let mut of_it = list.servers.iter().filter(|it| it.server == server);
    of_it.any(|it| it.generation == generation && it.state == ServerState::Up)
}

/// Whether that life is over, as far as a list knows. One that is newer than the list is not.
pub(crate) fn is_over(list: &ServerList, (server, generation): (ServerId, u64)) -> bool {
    let mut of_it = list.servers.iter().filter(|it| it.server == server);
    of_it.any(|it| {
        it.generation > generation || (it.generation == generation && it.state == ServerState::Down)
    })
}
