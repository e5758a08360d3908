//! Failure detection: a suspicion, a second opinion, a verdict.
//!
//! ```text
//!  servers ── suspect ──►┐
//!                        ├─► suspicion ─► the coordinator probes ─► an answer: cleared
//!  own probes, one at a ─┘                          │
//!  time, as servers do                              └─► no answer, or another process ─► verdict
//! ```
//!
//! Servers probe each other and report servers that do not answer. The coordinator probes one
//! server each interval too, so that a cluster of two is watched as well. A report alone never
//! leads to a verdict: the coordinator probes the server itself, up to [`ATTEMPTS`] times within
//! [`Probing::check`](crate::Probing::check), and any answer of that generation clears the
//! suspicion. The coordinator accepts a machine's word that no process listens there when the
//! machine says so twice. It accepts at once that another generation, or another server, is at that
//! address. It also accepts at once that a server was asked to end: that server's backup takes no
//! more data, and its disk may take long. Masters would wait for it, and no other server would
//! serve its tablets.
//!
//! # When the coordinator does not judge
//!
//! - Silence counts only if half of the other servers have answered in the meantime, to probes that
//!   were sent after the check began ([`WITNESSES`] of them, drawn at random, in large clusters).
//!   So a coordinator that is cut off declares no server crashed, even if it hears a server on its
//!   own machine; nor does a coordinator whose own process stood still. The only server of a
//!   cluster is never declared crashed because of silence: no other server could take its place. If
//!   most servers fall silent at the same time, none is declared crashed, and an operator sees the
//!   reason. That no process listens at an address counts if any other server has answered in the
//!   meantime.
//! - A check that took longer than it should is void: this process was late, and may have missed
//!   answers. It probes again. It reads all messages that have arrived before it decides.
//! - A server that this process could not probe, because it has no descriptors left, is not silent.
//! - A verdict that could not be written soon is dropped, and the server is probed again.
//! - Verdicts are writes of the leadership, under its fence, like all others.
//!
//! # How long detection takes
//!
//! With `n` servers, each probing one other server each interval, no server probes a crashed one in
//! `k` intervals with a probability of about e^-k. With few servers, one certainly does within `2n`
//! intervals. Then the probe times out (at once, if the machine says that no process listens), and
//! the check follows. With the usual 100 and 150 ms, detection takes about 0.1 s after a process
//! crashed, and 0.5 to 0.6 s after a machine fell silent.

use crate::knowledge::watch::PendingVerdict;
use crate::leadership::Leadership;
use crate::limits::{CHECKS_MAX, WHY_CHARS_MAX};
use crate::probing::Rounds;
use crate::refusal::Outcome;
use crate::stored::ServerRecord;
use crate::verdicts;
use crate::waiting::{Signal, all, within};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Time;
use thunderhead_wire::control::{Empty, ServerState, of_body, to_body};
use thunderhead_wire::membership::{Presence, Probe, Probed, Suspect};
use thunderhead_wire::{Generation, ServerId, Status};

/// The most other servers that are probed during a check, to see whether they answer.
const WITNESSES: usize = 15;

/// The number of probes in a check, and how often the machine must say that no process listens.
const ATTEMPTS: u32 = 3;
const REFUSALS: u32 = 2;

/// The pause after a probe that failed at once.
const PAUSE: Duration = Duration::from_millis(15);

/// A check that took so much longer than it should is void.
const LATE: Duration = Duration::from_millis(50);

/// How long arrived messages are read before the decision.
const DRAIN: Duration = Duration::from_millis(2);

/// After so long, a verdict that was not written is void.
const STALE: Duration = Duration::from_secs(1);

/// How long a server that has answered is not suspected again.
const RESPITE: Duration = Duration::from_millis(50);

/// The most own probes without an answer.
const PROBES_MAX: usize = 8;

/// The result of one probe.
enum ProbeResult {
    /// The server answers.
    Here,
    /// That generation is over.
    Over(&'static str),
    /// The machine says that no process listens.
    Refused,
    /// No answer came, or the server cannot be reached.
    Nothing(CallError),
    /// This process could not send the probe.
    Unasked(CallError),
}

/// A check in progress.
#[derive(Default)]
struct Check {
    is_here: Cell<bool>,
    over: Cell<Option<&'static str>>,
    refused: Cell<u32>,
    asked: Cell<u32>,
    /// Why a probe could not be sent, if that happened.
    unasked: Cell<Option<CallError>>,
    /// Raised with every answer.
    changed: Signal,
}

/// The result of a check.
enum CheckResult {
    Here,
    Over(String),
    /// The check could not decide, for this reason.
    Unknown(String),
}

/// Other servers that are probed too, to tell a silent server from a deaf coordinator.
struct Witnesses(Vec<ServerId>);

impl Witnesses {
    /// Returns how many witnesses have answered a probe that was sent since then.
    fn answered(&self, leadership: &Leadership, since: Time) -> usize {
        let last_answered = leadership.watch.last_answered.borrow();
        let answered = |it: &&ServerId| last_answered.get(it).is_some_and(|asked| *asked >= since);
        self.0.iter().filter(answered).count()
    }

    /// Returns why the silence of a server proves nothing, if it does not.
    fn lack(&self, answered: usize) -> Option<String> {
        match (answered, self.0.len()) {
            (0, _) => Some("no other server answers this coordinator either".into()),
            (answered, all) if answered < all.div_ceil(2) => Some(format!(
                "only {answered} of {all} other servers answer this coordinator; check its network"
            )),
            _ => None,
        }
    }
}

/// Task: probes one server after the other.
pub(crate) async fn watch(leadership: &Rc<Leadership>) {
    let probing = leadership.shared.options.probing;
    let mut rounds = Rounds::default();
    while probing.is_on() {
        let pause = probing.pause(&mut leadership.shared.random.borrow_mut());
        leadership.sleep(pause).await;
        let up = servers_up(leadership);
        let next = rounds.next(&mut leadership.shared.random.borrow_mut(), &up);
        let record = next.and_then(|server| leadership.cluster().server(server).cloned());
        let Some(record) = record else {
            // No server is up, and none can fall silent before one starts.
            let seen = leadership.changed.seen();
            leadership.changed.after(seen).await;
            continue;
        };
        if leadership.watch.probes.get() >= PROBES_MAX {
            continue;
        }
        let busy = Rc::clone(leadership);
        leadership.watch.probes.set(leadership.watch.probes.get() + 1);
        leadership.spawn(async move {
            let why = match ask(&busy, &record, probing.timeout).await {
                ProbeResult::Here => None,
                ProbeResult::Over(why) => Some(why.to_owned()),
                ProbeResult::Refused => Some("no process listens there".to_owned()),
                ProbeResult::Nothing(error) | ProbeResult::Unasked(error) => {
                    Some(error.to_string())
                }
            };
            busy.watch.probes.set(busy.watch.probes.get() - 1);
            if let Some(why) = why {
                suspect(&busy, record.server, record.generation, &why);
            }
        });
    }
}

/// Returns the servers that are recorded as up.
fn servers_up(leadership: &Leadership) -> BTreeSet<ServerId> {
    let cluster = leadership.cluster();
    let up = cluster.servers().filter(|it| it.state == ServerState::Up);
    up.map(|it| it.server).collect()
}

/// Whether no other server is up.
fn is_alone(leadership: &Leadership, server: ServerId) -> bool {
    servers_up(leadership).iter().all(|it| *it == server)
}

/// Handles a server's report that another one does not answer, or that it ends itself.
pub(crate) fn suspected(leadership: &Rc<Leadership>, message: Suspect) -> Outcome {
    let Suspect { server, generation, by: (by, by_generation), why } = message;
    if leadership.record_of(by, by_generation).is_none() {
        return Err(Status::Deposed.into());
    }
    if leadership.shared.options.probing.is_on() {
        let why: String = why.chars().take(WHY_CHARS_MAX).collect();
        suspect(leadership, server, generation, &format!("{by} says: {why}"));
    }
    Ok(to_body(&Empty {}))
}

/// Checks a suspected server, unless it was checked just now.
fn suspect(leadership: &Rc<Leadership>, server: ServerId, generation: Generation, why: &str) {
    if leadership.record_of(server, generation).is_none() {
        return;
    }
    let watch = &leadership.watch;
    watch.cleared.borrow_mut().retain(|_, (_, until)| leadership.now() < *until);
    let is_cleared =
        watch.cleared.borrow().get(&server).is_some_and(|(cleared, _)| *cleared == generation);
    let mut suspicions = watch.suspicions.borrow_mut();
    if is_cleared || suspicions.contains_key(&server) || suspicions.len() >= CHECKS_MAX {
        return;
    }
    suspicions.insert(server, generation);
    drop(suspicions);
    tracing::debug!(%server, generation = generation.0, why, "a server is suspected");
    let (busy, why) = (Rc::clone(leadership), why.to_owned());
    leadership.spawn(async move {
        check_suspect(&busy, server, generation, &why).await;
        busy.watch.suspicions.borrow_mut().remove(&server);
    });
}

/// Checks a server, and declares it crashed if the check says so.
async fn check_suspect(
    leadership: &Rc<Leadership>,
    server: ServerId,
    generation: Generation,
    why: &str,
) {
    match check_server(leadership, server, generation).await {
        CheckResult::Here => {
            tracing::debug!(%server, generation = generation.0, why, "the suspected server answers");
            let until = leadership.now() + RESPITE;
            leadership.watch.cleared.borrow_mut().insert(server, (generation, until));
        }
        CheckResult::Unknown(because) => {
            tracing::debug!(%server, generation = generation.0, why, because, "the check could not decide whether it is up");
            leadership.watch.undecided.borrow_mut().insert(server, (generation, because));
        }
        CheckResult::Over(found) => {
            let (why, not_after) = (format!("{found} ({why})"), leadership.now() + STALE);
            leadership.watch.pending_verdicts.borrow_mut().push(PendingVerdict {
                server,
                generation,
                why,
                not_after,
            });
            write_verdicts(leadership).await;
        }
    }
}

/// Writes all pending verdicts at once. When it returns, no earlier verdict is pending.
async fn write_verdicts(leadership: &Rc<Leadership>) {
    let _lock = leadership.lock_updates().await;
    let pending = std::mem::take(&mut *leadership.watch.pending_verdicts.borrow_mut());
    let now = leadership.now();
    let writes = pending.into_iter().filter(|it| now <= it.not_after).map(|verdict| async move {
        let PendingVerdict { server, generation, why, .. } = verdict;
        if leadership.record_of(server, generation).is_none() {
            return;
        }
        match verdicts::end_generation(leadership, server, generation).await {
            Ok(()) => {
                tracing::warn!(%server, generation = generation.0, why, "a server is declared crashed");
                let verdict = (generation, leadership.now(), why);
                leadership.watch.verdicts.borrow_mut().insert(server, verdict);
            }
            // It will be suspected again.
            Err(_) => tracing::warn!(%server, generation = generation.0, "a verdict could not be written"),
        }
    });
    all(writes.collect()).await;
}

/// Checks whether a server is up: the second opinion.
async fn check_server(
    leadership: &Rc<Leadership>,
    server: ServerId,
    generation: Generation,
) -> CheckResult {
    for _ in 0..ATTEMPTS {
        let Some(record) = leadership.record_of(server, generation) else {
            return CheckResult::Here;
        };
        let began = leadership.now();
        let limit = leadership.shared.options.probing.check();
        let check = Rc::new(Check::default());
        for number in 0..ATTEMPTS {
            let (busy, check, record) = (Rc::clone(leadership), Rc::clone(&check), record.clone());
            let from = began + limit * number / ATTEMPTS;
            let times = AttemptTimes { from, until: began + limit };
            leadership.spawn(async move { attempt(&busy, &check, &record, times).await });
        }
        let witnesses = find_witnesses(leadership, server, began);
        let decided = async {
            while !check.is_decided(witnesses.answered(leadership, began) > 0) {
                let seen = check.changed.seen();
                // Other servers' answers do not raise it.
                let _ = within(leadership.sleep(PAUSE), check.changed.after(seen)).await;
            }
        };
        let _ = within(leadership.shared.tasks().sleep_until(began + limit), decided).await;
        // Messages that arrived in this turn are handed out during it.
        leadership.sleep(DRAIN).await;
        let took = leadership.now().since(began);
        // From here on the check ignores further answers.
        let answered = witnesses.answered(leadership, began);
        if check.is_here.replace(true) {
            return CheckResult::Here;
        }
        if let Some(why) = check.over.get() {
            return CheckResult::Over(why.to_owned());
        }
        if took > limit + LATE {
            tracing::debug!(%server, ?took, "this process was late: the server is probed again");
            continue;
        }
        if check.refused.get() >= REFUSALS && answered > 0 {
            return CheckResult::Over("no process listens at its address".to_owned());
        }
        if let Some(error) = check.unasked.get() {
            return CheckResult::Unknown(format!("this coordinator could not probe it: {error}"));
        }
        if let Some(why) = witnesses.lack(answered) {
            return CheckResult::Unknown(why);
        }
        let asked = check.asked.get();
        return CheckResult::Over(format!("no answer to {asked} probes within {limit:?}"));
    }
    CheckResult::Unknown("this coordinator is too slow with its own work".into())
}

impl Check {
    /// Whether the result is certain.
    fn is_decided(&self, has_witness: bool) -> bool {
        let is_refused = self.refused.get() >= REFUSALS && has_witness;
        self.is_here.get() || self.over.get().is_some() || is_refused
    }
}

/// The time at which an attempt begins, and the end of its check.
#[derive(Clone, Copy)]
struct AttemptTimes {
    from: Time,
    until: Time,
}

/// Probes a server from a time on, until it answers or the check ends.
async fn attempt(
    leadership: &Rc<Leadership>,
    check: &Check,
    record: &ServerRecord,
    AttemptTimes { from, until }: AttemptTimes,
) {
    leadership.shared.tasks().sleep_until(from).await;
    loop {
        let left = until.since(leadership.now());
        if left.is_zero() || check.is_decided(true) {
            return;
        }
        check.asked.set(check.asked.get() + 1);
        match ask(leadership, record, left).await {
            ProbeResult::Here => check.is_here.set(true),
            ProbeResult::Over(why) => check.over.set(Some(why)),
            ProbeResult::Refused => check.refused.set(check.refused.get() + 1),
            ProbeResult::Nothing(_) => {}
            ProbeResult::Unasked(error) => check.unasked.set(Some(error)),
        }
        check.changed.raise();
        leadership.sleep(PAUSE).await;
    }
}

/// Probes other servers too, to see whether they answer. Each gets two probes, unless it answers
/// the first.
fn find_witnesses(leadership: &Rc<Leadership>, suspect: ServerId, began: Time) -> Witnesses {
    let mut others = servers_up(leadership);
    others.remove(&suspect);
    let mut rounds = Rounds::default();
    let mut drawn = Vec::new();
    for _ in 0..others.len().min(WITNESSES) {
        drawn.extend(rounds.next(&mut leadership.shared.random.borrow_mut(), &others));
    }
    let limit = leadership.shared.options.probing.check();
    for other in &drawn {
        let Some(record) = leadership.cluster().server(*other).cloned() else { continue };
        for number in 0..2 {
            let (busy, record) = (Rc::clone(leadership), record.clone());
            leadership.spawn(async move {
                busy.sleep(limit / 3 * number).await;
                let last_answered = busy.watch.last_answered.borrow().get(&record.server).copied();
                if last_answered.is_none_or(|asked| asked < began) {
                    ask(&busy, &record, limit).await;
                }
            });
        }
    }
    Witnesses(drawn)
}

/// Whether a server that is recorded as up answers.
pub(crate) async fn is_there(leadership: &Leadership, record: &ServerRecord) -> bool {
    let timeout = leadership.shared.options.call_timeout / ATTEMPTS;
    for _ in 0..ATTEMPTS {
        if let ProbeResult::Here = ask(leadership, record, timeout).await {
            return true;
        }
        leadership.sleep(PAUSE).await;
    }
    false
}

/// Probes a server.
async fn ask(leadership: &Leadership, record: &ServerRecord, timeout: Duration) -> ProbeResult {
    let Some(to) = record.shards.first().map(|shard| shard.address) else {
        return ProbeResult::Here;
    };
    let probe = Probe {
        cluster: leadership.cluster().record.cluster,
        server: record.server,
        generation: record.generation,
        from: None,
        list_version: leadership.cluster().list_version(),
    };
    let sent = leadership.now();
    let answer = match leadership.call_within(to, Opcode::Probe, &probe, timeout).await {
        Ok(body) => match of_body::<Probed>(&body).map(|it| it.presence) {
            // The answer is malformed, but it is an answer.
            None | Some(Presence::Here) => ProbeResult::Here,
            // It has not learned yet that it has enlisted.
            Some(Presence::Begins(nonce)) if record.lives.last() == Some(&nonce) => {
                ProbeResult::Here
            }
            Some(Presence::Begins(_)) => ProbeResult::Over("it begins another generation"),
            Some(Presence::Other) => ProbeResult::Over("another server is at its address"),
            // No other server could take its place. It mostly restarts.
            Some(Presence::Leaves) if is_alone(leadership, record.server) => ProbeResult::Here,
            Some(Presence::Leaves) => ProbeResult::Over("it was asked to end"),
        },
        Err(CallError::Refused { .. } | CallError::UnknownStatus(_) | CallError::TooLong) => {
            ProbeResult::Here
        }
        Err(error) if error.is_connection_refused() => ProbeResult::Refused,
        Err(error) if error.is_own() => ProbeResult::Unasked(error),
        Err(error) if error.is_of_another_cluster() => {
            ProbeResult::Over("a server of another cluster is at its address")
        }
        Err(error) => ProbeResult::Nothing(error),
    };
    if matches!(answer, ProbeResult::Here) {
        let mut last_answered = leadership.watch.last_answered.borrow_mut();
        let latest = last_answered.entry(record.server).or_insert(sent);
        *latest = (*latest).max(sent);
        leadership.watch.undecided.borrow_mut().remove(&record.server);
    }
    answer
}

/// Returns remarks about servers that are down or do not answer.
pub(crate) fn remarks(leadership: &Leadership) -> Vec<String> {
    let (cluster, verdicts) = (leadership.cluster(), leadership.watch.verdicts.borrow());
    let down = cluster.servers().filter(|it| {
        it.generation > Generation(0) && it.state == ServerState::Down && !it.forgotten
    });
    let text = |it: &ServerRecord| {
        let server = it.server;
        match verdicts.get(&server).filter(|(generation, ..)| *generation == it.generation) {
            Some((_, since, why)) => {
                let since = leadership.now().since(*since).as_secs();
                format!(
                    "{server} was declared crashed {since} s ago: {why}; start it again after its repair"
                )
            }
            None => format!(
                "{server} is down; start it again after its repair, or `thunderhead server forget {}`",
                server.0
            ),
        }
    };
    let undecided = leadership.watch.undecided.borrow();
    let silent = undecided
        .iter()
        .filter(|(server, (generation, _))| leadership.record_of(**server, *generation).is_some());
    let silent = silent.map(|(server, (_, because))| {
        format!("{server} does not answer, but is not declared crashed: {because}")
    });
    down.map(text).chain(silent).collect()
}
