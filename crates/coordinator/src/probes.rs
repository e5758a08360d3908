//! Who is not there any more: a suspicion, a second opinion, a verdict.
//!
//! ```text
//!  servers ── suspect ──►┐
//!                        ├─► suspicion ─► the coordinator asks, a few times ─► it answers: cleared
//!  own probes, one at a ─┘                                 │
//!  time, as servers do                                     └─► nothing, or somebody else ─► verdict
//! ```
//!
//! Servers ask each other and report who does not answer; the coordinator asks one server each
//! interval too, so that a cluster of two is watched as well. Nobody is given up because somebody
//! says so: the coordinator asks by itself, up to [`ATTEMPTS`] times within
//! [`Probing::check`](crate::Probing::check), and any answer of that life clears the suspicion. A machine
//! that says that nobody listens is believed when it says so twice; another life, or another server, in
//! that place at once. So is a server that says that it was asked to end: its backup takes nothing more, and its
//! disk may take long. Masters would wait for it, and nobody would serve its tablets.
//!
//! # When it does not judge
//!
//! - Silence counts only if half of the other servers have answered meanwhile, questions that were asked
//!   after the check began ([`WITNESSES`] of them, drawn, where there are many). So a coordinator that is
//!   cut off gives nobody up, though it may hear a server on its own machine, nor does one whose own
//!   process stood still, and the only server of a cluster is never given up for its silence: nobody could
//!   take its place. Nor is anybody, when most of them fall silent at the same time: an operator reads so.
//!   That nobody listens somewhere counts if any other server has answered meanwhile.
//! - A check that took longer than it should counts for nothing: this process was late, and may have
//!   been deaf. It asks anew. What has arrived is read before it is decided.
//! - A server that this process could not ask, for it has no descriptors left, is not silent.
//! - A verdict that could not be written soon is dropped; then it is asked anew.
//! - Verdicts are writes of the reign, under its fence, like all others.
//!
//! # How long it takes
//!
//! With `n` servers, each asking one other each interval, a server that is gone is asked by nobody in
//! `k` intervals with a probability of about e^-k, and with few servers surely within `2n`. Then there
//! is the timeout (nothing where its machine says that nobody listens), and the check. With the usual
//! 100 and 150 ms: about 0.1 s after a process died, 0.5 to 0.6 s after a machine fell silent.

use crate::coordinator::Outcome;
use crate::limits::{CHECKS_MAX, WHY_CHARS_MAX};
use crate::probing::Rounds;
use crate::reign::Reign;
use crate::servers;
use crate::stored::ServerRecord;
use crate::waiting::{Signal, all, within};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Time;
use thunderhead_wire::control::{Empty, ServerState, of_body, to_body};
use thunderhead_wire::membership::{Presence, Probe, Probed, Suspect};
use thunderhead_wire::{ServerId, Status};

/// Of so many others at most it is asked whether they are heard.
const WITNESSES: usize = 15;

/// How often it is asked in that time, and how often its machine may say that nobody is there.
const ATTEMPTS: u32 = 3;
const REFUSALS: u32 = 2;

/// The pause after an attempt that failed at once.
const PAUSE: Duration = Duration::from_millis(15);

/// A check that took so much longer than it should is not believed.
const LATE: Duration = Duration::from_millis(50);

/// What has arrived is looked at for so long before it is decided.
const DRAIN: Duration = Duration::from_millis(2);

/// After so long a verdict that was not written is not good any more.
const STALE: Duration = Duration::from_secs(1);

/// How long a server that has answered is not suspected again.
const RESPITE: Duration = Duration::from_millis(50);

/// Own probes that may wait for answers.
const PROBES_MAX: usize = 8;

/// What this reign knows of who is there.
#[derive(Default)]
pub(crate) struct Watch {
    /// Who is looked for, in which life.
    suspicions: RefCell<BTreeMap<ServerId, u64>>,
    /// Who has just answered: not suspected before.
    cleared: RefCell<BTreeMap<ServerId, (u64, Time)>>,
    /// What is to be written.
    judged: RefCell<Vec<Judged>>,
    /// Who was given up, when, and why.
    verdicts: RefCell<BTreeMap<ServerId, (u64, Time, String)>>,
    /// When the latest question was asked that each has answered.
    heard: RefCell<BTreeMap<ServerId, Time>>,
    /// Who does not answer and is not given up, in which life, and why not.
    unjudged: RefCell<BTreeMap<ServerId, (u64, String)>>,
    /// Own probes that wait.
    probes: Cell<usize>,
}

impl Watch {
    /// Forgets a server that the cluster has forgotten.
    pub(crate) fn forget(&self, server: ServerId) {
        self.cleared.borrow_mut().remove(&server);
        self.verdicts.borrow_mut().remove(&server);
        self.heard.borrow_mut().remove(&server);
        self.unjudged.borrow_mut().remove(&server);
    }
}

struct Judged {
    server: ServerId,
    generation: u64,
    why: String,
    not_after: Time,
}

/// What one question came to.
enum Answer {
    /// It is there.
    Here,
    /// That life is over.
    Over(&'static str),
    /// Its machine says that nobody listens.
    Refused,
    /// Nothing came, or it cannot be reached.
    Nothing(CallError),
    /// It was not asked, for a reason of this process.
    Unasked(CallError),
}

/// A check that goes on.
#[derive(Default)]
struct Check {
    is_here: Cell<bool>,
    over: Cell<Option<&'static str>>,
    refused: Cell<u32>,
    asked: Cell<u32>,
    /// Why it could not be asked at least once.
    unasked: Cell<Option<CallError>>,
    /// Raised with every answer.
    changed: Signal,
}

/// What came of it.
enum Found {
    Here,
    Over(String),
    /// It cannot be told, and why.
    Unknown(String),
}

/// Who else is asked, so that silence can be told from being deaf.
struct Witnesses(Vec<ServerId>);

impl Witnesses {
    /// How many of them have answered a question that was asked since then.
    fn heard(&self, reign: &Reign, since: Time) -> usize {
        let heard = reign.watch.heard.borrow();
        let answered = |it: &&ServerId| heard.get(it).is_some_and(|asked| *asked >= since);
        self.0.iter().filter(answered).count()
    }

    /// Why the silence of another server says nothing, if it does not.
    fn lack(&self, heard: usize) -> Option<String> {
        match (heard, self.0.len()) {
            (0, _) => Some("no other server answers this coordinator either".into()),
            (heard, all) if heard < all.div_ceil(2) => Some(format!(
                "only {heard} of {all} other servers answer this coordinator; look after its network"
            )),
            _ => None,
        }
    }
}

/// Duty: one server after the other is asked whether it is there.
pub(crate) async fn watch(reign: &Rc<Reign>) {
    let probing = reign.shared.options.probing;
    let mut rounds = Rounds::default();
    while probing.is_on() {
        let pause = probing.pause(&mut reign.shared.random.borrow_mut());
        reign.sleep(pause).await;
        let there = there(reign);
        let next = rounds.next(&mut reign.shared.random.borrow_mut(), &there);
        let record = next.and_then(|server| reign.cluster().server(server).cloned());
        let Some(record) = record else {
            // Nobody is there, and nothing else happens before somebody comes.
            let seen = reign.changed.seen();
            reign.changed.after(seen).await;
            continue;
        };
        if reign.watch.probes.get() >= PROBES_MAX {
            continue;
        }
        let busy = Rc::clone(reign);
        reign.watch.probes.set(reign.watch.probes.get() + 1);
        reign.spawn(async move {
            let why = match ask(&busy, &record, probing.timeout).await {
                Answer::Here => None,
                Answer::Over(why) => Some(why.to_owned()),
                Answer::Refused => Some("nobody listens there".to_owned()),
                Answer::Nothing(error) | Answer::Unasked(error) => Some(error.to_string()),
            };
            busy.watch.probes.set(busy.watch.probes.get() - 1);
            if let Some(why) = why {
                suspect(&busy, record.server, record.generation, &why);
            }
        });
    }
}

/// Who is there, as far as is written.
fn there(reign: &Reign) -> BTreeSet<ServerId> {
    let cluster = reign.cluster();
    let up = cluster.servers().filter(|it| it.state == ServerState::Up);
    up.map(|it| it.server).collect()
}

/// Whether no other server is there.
fn is_alone(reign: &Reign, server: ServerId) -> bool {
    there(reign).iter().all(|it| *it == server)
}

/// A server says that another one does not answer, or that it ends itself.
pub(crate) fn suspected(reign: &Rc<Reign>, message: Suspect) -> Outcome {
    let Suspect { server, generation, by: (by, life), why } = message;
    if servers::lives(reign, by, life).is_none() {
        return Err(Status::Deposed.into());
    }
    if reign.shared.options.probing.is_on() {
        let why: String = why.chars().take(WHY_CHARS_MAX).collect();
        suspect(reign, server, generation, &format!("{by} says: {why}"));
    }
    Ok(to_body(&Empty {}))
}

/// Somebody has had no answer: it is looked after, unless that is done already.
fn suspect(reign: &Rc<Reign>, server: ServerId, generation: u64, why: &str) {
    if servers::lives(reign, server, generation).is_none() {
        return;
    }
    let watch = &reign.watch;
    watch.cleared.borrow_mut().retain(|_, (_, until)| reign.now() < *until);
    let is_cleared =
        watch.cleared.borrow().get(&server).is_some_and(|(life, _)| *life == generation);
    let mut suspicions = watch.suspicions.borrow_mut();
    if is_cleared || suspicions.contains_key(&server) || suspicions.len() >= CHECKS_MAX {
        return;
    }
    suspicions.insert(server, generation);
    drop(suspicions);
    tracing::debug!(%server, generation, why, "a server is suspected");
    let (busy, why) = (Rc::clone(reign), why.to_owned());
    reign.spawn(async move {
        see_to(&busy, server, generation, &why).await;
        busy.watch.suspicions.borrow_mut().remove(&server);
    });
}

/// Makes sure, and gives the server up if it has to be.
async fn see_to(reign: &Rc<Reign>, server: ServerId, generation: u64, why: &str) {
    match look_for(reign, server, generation).await {
        Found::Here => {
            tracing::debug!(%server, generation, why, "the suspected server answers");
            let until = reign.now() + RESPITE;
            reign.watch.cleared.borrow_mut().insert(server, (generation, until));
        }
        Found::Unknown(because) => {
            tracing::debug!(%server, generation, why, because, "it cannot be told whether it lives");
            reign.watch.unjudged.borrow_mut().insert(server, (generation, because));
        }
        Found::Over(found) => {
            let (why, not_after) = (format!("{found} ({why})"), reign.now() + STALE);
            reign.watch.judged.borrow_mut().push(Judged { server, generation, why, not_after });
            write_verdicts(reign).await;
        }
    }
}

/// Writes the verdicts there are, all at once; when it returns, none of those before it is left.
async fn write_verdicts(reign: &Rc<Reign>) {
    let _pen = reign.pen_for_long().await;
    let judged = std::mem::take(&mut *reign.watch.judged.borrow_mut());
    let now = reign.now();
    let writes = judged.into_iter().filter(|it| now <= it.not_after).map(|judged| async move {
        let Judged { server, generation, why, .. } = judged;
        if servers::lives(reign, server, generation).is_none() {
            return;
        }
        match servers::end_life(reign, server, generation).await {
            Ok(()) => {
                tracing::warn!(%server, generation, why, "a server is given up");
                let verdict = (generation, reign.now(), why);
                reign.watch.verdicts.borrow_mut().insert(server, verdict);
            }
            // It is suspected again.
            Err(_) => tracing::warn!(%server, generation, "a verdict could not be written"),
        }
    });
    all(writes.collect()).await;
}

/// Whether a server is there: the second opinion.
async fn look_for(reign: &Rc<Reign>, server: ServerId, generation: u64) -> Found {
    for _ in 0..ATTEMPTS {
        let Some(record) = servers::lives(reign, server, generation) else { return Found::Here };
        let began = reign.now();
        let limit = reign.shared.options.probing.check();
        let check = Rc::new(Check::default());
        for number in 0..ATTEMPTS {
            let (busy, check, record) = (Rc::clone(reign), Rc::clone(&check), record.clone());
            let times = (began + limit * number / ATTEMPTS, began + limit);
            reign.spawn(async move { attempt(&busy, &check, &record, times).await });
        }
        let witnesses = find_witnesses(reign, server, began);
        let decided = async {
            while !check.is_decided(witnesses.heard(reign, began) > 0) {
                let seen = check.changed.seen();
                // Others' answers do not raise it.
                let _ = within(reign.sleep(PAUSE), check.changed.after(seen)).await;
            }
        };
        let _ = within(reign.shared.tasks().sleep_until(began + limit), decided).await;
        // What arrived in this turn is handed out in it.
        reign.sleep(DRAIN).await;
        let took = reign.now().since(began);
        // Nobody waits for these answers any more.
        let heard = witnesses.heard(reign, began);
        if check.is_here.replace(true) {
            return Found::Here;
        }
        if let Some(why) = check.over.get() {
            return Found::Over(why.to_owned());
        }
        if took > limit + LATE {
            tracing::debug!(%server, ?took, "this process was late: the server is asked anew");
            continue;
        }
        if check.refused.get() >= REFUSALS && heard > 0 {
            return Found::Over("nobody listens at its address".to_owned());
        }
        if let Some(error) = check.unasked.get() {
            return Found::Unknown(format!("this coordinator could not ask it: {error}"));
        }
        if let Some(why) = witnesses.lack(heard) {
            return Found::Unknown(why);
        }
        let asked = check.asked.get();
        return Found::Over(format!("no answer to {asked} probes within {limit:?}"));
    }
    Found::Unknown("this coordinator does not get on with its own work".into())
}

impl Check {
    /// Whether there is nothing to wait for.
    fn is_decided(&self, has_witness: bool) -> bool {
        let is_refused = self.refused.get() >= REFUSALS && has_witness;
        self.is_here.get() || self.over.get().is_some() || is_refused
    }
}

/// Asks a server from some time on until it answers or the check ends.
async fn attempt(
    reign: &Rc<Reign>,
    check: &Check,
    record: &ServerRecord,
    (from, until): (Time, Time),
) {
    reign.shared.tasks().sleep_until(from).await;
    loop {
        let left = until.since(reign.now());
        if left.is_zero() || check.is_decided(true) {
            return;
        }
        check.asked.set(check.asked.get() + 1);
        match ask(reign, record, left).await {
            Answer::Here => check.is_here.set(true),
            Answer::Over(why) => check.over.set(Some(why)),
            Answer::Refused => check.refused.set(check.refused.get() + 1),
            Answer::Nothing(_) => {}
            Answer::Unasked(error) => check.unasked.set(Some(error)),
        }
        check.changed.raise();
        reign.sleep(PAUSE).await;
    }
}

/// Asks others, too: whether they are heard here. Each twice, unless it has answered.
fn find_witnesses(reign: &Rc<Reign>, suspect: ServerId, began: Time) -> Witnesses {
    let mut others = there(reign);
    others.remove(&suspect);
    let mut rounds = Rounds::default();
    let mut drawn = Vec::new();
    for _ in 0..others.len().min(WITNESSES) {
        drawn.extend(rounds.next(&mut reign.shared.random.borrow_mut(), &others));
    }
    let limit = reign.shared.options.probing.check();
    for other in &drawn {
        let Some(record) = reign.cluster().server(*other).cloned() else { continue };
        for number in 0..2 {
            let (busy, record) = (Rc::clone(reign), record.clone());
            reign.spawn(async move {
                busy.sleep(limit / 3 * number).await;
                let heard = busy.watch.heard.borrow().get(&record.server).copied();
                if heard.is_none_or(|asked| asked < began) {
                    ask(&busy, &record, limit).await;
                }
            });
        }
    }
    Witnesses(drawn)
}

/// Whether a server that is written as up answers.
pub(crate) async fn is_there(reign: &Reign, record: &ServerRecord) -> bool {
    let timeout = reign.shared.options.call_timeout / ATTEMPTS;
    for _ in 0..ATTEMPTS {
        if let Answer::Here = ask(reign, record, timeout).await {
            return true;
        }
        reign.sleep(PAUSE).await;
    }
    false
}

/// Asks a server whether it is there.
async fn ask(reign: &Reign, record: &ServerRecord, timeout: Duration) -> Answer {
    let Some(to) = record.shards.first().map(|shard| shard.address) else {
        return Answer::Here;
    };
    let probe = Probe {
        cluster: reign.cluster().record.cluster,
        server: record.server,
        generation: record.generation,
        from: None,
        list_version: reign.cluster().list_version(),
    };
    let sent = reign.now();
    let answer = match reign.call_within(to, Opcode::Probe, &probe, timeout).await {
        Ok(body) => match of_body::<Probed>(&body).map(|it| it.presence) {
            // What it says makes no sense, but it says something.
            None | Some(Presence::Here) => Answer::Here,
            // It has not heard yet that it has enlisted.
            Some(Presence::Begins(nonce)) if record.lives.last() == Some(&nonce) => Answer::Here,
            Some(Presence::Begins(_)) => Answer::Over("it begins another life"),
            Some(Presence::Other) => Answer::Over("somebody else is at its address"),
            // No other server could take its place. It mostly comes again.
            Some(Presence::Leaves) if is_alone(reign, record.server) => Answer::Here,
            Some(Presence::Leaves) => Answer::Over("it was asked to end"),
        },
        Err(CallError::Refused { .. } | CallError::UnknownStatus(_) | CallError::TooLong) => {
            Answer::Here
        }
        Err(error) if error.nobody_listens() => Answer::Refused,
        Err(error) if error.is_own() => Answer::Unasked(error),
        Err(error) if error.is_of_another_cluster() => {
            Answer::Over("a server of another cluster is at its address")
        }
        Err(error) => Answer::Nothing(error),
    };
    if matches!(answer, Answer::Here) {
        let mut heard = reign.watch.heard.borrow_mut();
        let latest = heard.entry(record.server).or_insert(sent);
        *latest = (*latest).max(sent);
        reign.watch.unjudged.borrow_mut().remove(&record.server);
    }
    answer
}

/// What an operator should know of servers that are down, or do not answer.
pub(crate) fn remarks(reign: &Reign) -> Vec<String> {
    let (cluster, verdicts) = (reign.cluster(), reign.watch.verdicts.borrow());
    let down = cluster
        .servers()
        .filter(|it| it.generation > 0 && it.state == ServerState::Down && !it.forgotten);
    let text = |it: &ServerRecord| {
        let server = it.server;
        match verdicts.get(&server).filter(|(generation, ..)| *generation == it.generation) {
            Some((_, since, why)) => {
                let since = reign.now().since(*since).as_secs();
                format!(
                    "{server} was given up {since} s ago: {why}; start it again when it is repaired"
                )
            }
            None => format!(
                "{server} is down; start it again when it is repaired, or `thunderhead server forget {}`",
                server.0
            ),
        }
    };
    let unjudged = reign.watch.unjudged.borrow();
    let silent = unjudged
        .iter()
        .filter(|(server, (generation, _))| servers::lives(reign, **server, *generation).is_some());
    let silent = silent.map(|(server, (_, because))| {
        format!("{server} does not answer, but is not given up: {because}")
    });
    down.map(text).chain(silent).collect()
}
