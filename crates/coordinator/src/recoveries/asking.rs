//! Asks backups for their replicas of a crashed master, and for the contents of open replicas.
//!
//! Every backup that is up is asked, each until it answers or its generation ends. A backup that
//! starts later is asked too. The question fences: a backup that has answered accepts no more data
//! from that master, so its answer stays true as long as its generation lasts. (`HeadOf` and
//! `BeginRecovery` fence too. So it does not matter if the backup began another generation before
//! the coordinator knew.) No decision is made while a backup is silent, unless it is silent for
//! [`SURVEY_GRACE`]. Backups that are known to be down are not waited for. (That is safe: see
//! [`copies`](super::copies).) If segments are missing, all backups that may still answer are
//! waited for.

use super::survey::{Asked, Found, Heard, Question, Survey, Verdict};
use crate::cluster::Storage;
use crate::limits::SURVEY_GRACE;
use crate::reign::{Backoff, Reign};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Time;
use thunderhead_wire::control::{Head, HeadOf, Inventory, InventoryOf, of_body};
use thunderhead_wire::{MasterId, Next, ServerId};

/// A survey in progress.
pub(super) struct Surveying {
    crashed: MasterId,
    begun: Time,
    over: Cell<bool>,
    survey: RefCell<Survey>,
    /// The backups that are asked, with their generations.
    asked: RefCell<BTreeMap<ServerId, u64>>,
}

/// The progress of a survey.
pub(super) enum State {
    /// Wait for an answer.
    Wait,
    /// Wait for an answer or for this time.
    WaitUntil(Time),
    /// It waits for silent backups, because of this. These servers may have the missing replicas.
    Lacks(String, BTreeSet<ServerId>),
    /// The log is complete.
    Found(Found),
    /// No server that is up has the missing replicas. These servers are down and may have them.
    Failed(String, BTreeSet<ServerId>),
}

impl Surveying {
    pub(super) fn new(crashed: MasterId, now: Time) -> Rc<Surveying> {
        Rc::new(Surveying {
            crashed,
            begun: now,
            over: Cell::new(false),
            survey: RefCell::default(),
            asked: RefCell::default(),
        })
    }

    /// Ends the survey: no further questions are sent.
    pub(super) fn end(&self) {
        self.over.set(true);
    }

    /// Sends the questions that are due. Returns the progress.
    pub(super) fn look(self: &Rc<Self>, reign: &Rc<Reign>) -> State {
        let cluster = reign.cluster();
        let backups: Vec<Storage> = cluster.backups().collect();
        let lives: BTreeMap<_, _> = backups.iter().map(|it| (it.server, it.generation)).collect();
        self.asked.borrow_mut().retain(|server, generation| {
            let same = lives.get(server) == Some(generation);
            if !same {
                self.survey.borrow_mut().forget(*server);
            }
            same
        });
        for backup in backups {
            if self.asked.borrow_mut().insert(backup.server, backup.generation).is_none() {
                reign.spawn(Rc::clone(self).take_inventory(Rc::clone(reign), backup));
            }
        }
        let silent: Vec<ServerId> = {
            let survey = self.survey.borrow();
            lives.keys().copied().filter(|it| !survey.heard.contains_key(it)).collect()
        };
        let grace = self.begun + SURVEY_GRACE;
        if !silent.is_empty() && reign.now() < grace {
            return State::WaitUntil(grace);
        }
        let former = cluster.former(self.crashed);
        let epochs = former.map_or(&[][..], |former| &former.epochs);
        self.survey.borrow_mut().floor = former.map(|it| it.floor).unwrap_or_default();
        loop {
            let verdict = self.survey.borrow().verdict(self.crashed, epochs);
            match verdict {
                Verdict::Ask(questions) => {
                    for question in questions {
                        self.ask(reign, question);
                    }
                }
                Verdict::Wait => return State::Wait,
                Verdict::Complete(found) => return State::Found(found),
                Verdict::Missing(why) => {
                    let mut missing = silent;
                    missing.extend(cluster.backups_away());
                    if missing.is_empty() {
                        let why = format!("{why}; start the servers that had them");
                        return State::Failed(why, BTreeSet::new());
                    }
                    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
                    let why = format!("{why}; no answer came from {}", names.join(", "));
                    // A backup that is down is asked when it restarts.
                    let may_answer = missing.iter().any(|it| lives.contains_key(it));
                    let missing = missing.into_iter().collect();
                    return match may_answer {
                        true => State::Lacks(why, missing),
                        false => State::Failed(why, missing),
                    };
                }
            }
        }
    }

    /// Whether an answer of a backup's generation matters.
    fn matters(&self, reign: &Reign, server: ServerId, generation: u64) -> bool {
        let lives = reign.cluster().backup(server).is_some_and(|it| it.generation == generation);
        lives && !self.over.get()
    }

    async fn take_inventory(self: Rc<Self>, reign: Rc<Reign>, backup: Storage) {
        let Storage { server, generation, address, .. } = backup;
        let mut backoff = Backoff::default();
        while self.matters(&reign, server, generation) {
            let lineage = reign.cluster().lineage(self.crashed);
            let message = InventoryOf { master: self.crashed, deposed: true, lineage };
            let answer = reign.call(address, Opcode::Inventory, &message).await;
            let inventory = answer.ok().and_then(|body| of_body::<Inventory>(&body));
            let Some(Inventory { replicas }) = inventory else {
                reign.sleep(backoff.next()).await;
                continue;
            };
            let at = reign.now_in_next_turn().await;
            if self.matters(&reign, server, generation) {
                let heard = Heard { generation, address, at, replicas };
                self.survey.borrow_mut().heard.insert(server, heard);
                reign.changed.raise();
            }
            return;
        }
    }

    fn ask(self: &Rc<Self>, reign: &Rc<Reign>, question: Question) {
        let mut survey = self.survey.borrow_mut();
        let Some(heard) = survey.heard.get(&question.server) else { return };
        let generation = heard.generation;
        let key = (question.segment, question.server);
        survey.asked.insert(key, Asked::Waits { long: false });
        reign.spawn(Rc::clone(self).ask_until_answered(Rc::clone(reign), question, generation));
    }

    fn takes(&self, question: Question, asked: Asked, now: Time) {
        let mut survey = self.survey.borrow_mut();
        let is_answer = !matches!(asked, Asked::Waits { .. });
        if let Some(heard) = survey.heard.get_mut(&question.server).filter(|_| is_answer) {
            // The backup may have been in another generation already, which the coordinator did not
            // know.
            heard.at = now;
        }
        survey.asked.insert((question.segment, question.server), asked);
    }

    async fn ask_until_answered(
        self: Rc<Self>,
        reign: Rc<Reign>,
        question: Question,
        generation: u64,
    ) {
        let Question { segment, server, address } = question;
        let mut backoff = Backoff::default();
        let mut until = reign.now() + SURVEY_GRACE;
        while self.matters(&reign, server, generation) {
            let message = HeadOf { master: self.crashed, segment };
            let asked = match reign.call(address, Opcode::HeadOf, &message).await {
                Ok(body) => match of_body::<Head>(&body) {
                    Some(head) => Asked::Said(head),
                    None => Asked::Useless("its backup's answer is malformed".into()),
                },
                Err(error) if is_for_good(&error) => Asked::Useless(error.to_string()),
                Err(_) if reign.now() >= until => {
                    until = Time::NEVER;
                    Asked::Waits { long: true }
                }
                Err(_) => {
                    reign.sleep(backoff.next()).await;
                    continue;
                }
            };
            let now = reign.now_in_next_turn().await;
            if !self.matters(&reign, server, generation) {
                return;
            }
            let waits = matches!(asked, Asked::Waits { .. });
            self.takes(question, asked, now);
            reign.changed.raise();
            if !waits {
                return;
            }
            reign.sleep(backoff.next()).await;
        }
    }
}

/// Whether a repetition of the same request gives the same result.
pub(super) fn is_for_good(error: &CallError) -> bool {
    match error {
        CallError::Refused { status, .. } => status.next() != Next::Wait,
        CallError::TooLong | CallError::UnknownStatus(_) => true,
        _ => false,
    }
}
