//! Asks backups for their replicas of a crashed master, and for the contents of open replicas.
//!
//! Every backup that is up is asked, each until it answers or its generation ends. A backup that
//! starts later is asked too. The question fences: a backup that has answered accepts no more data
//! from that master, so its answer stays true as long as its generation lasts. (`HeadOf` and
//! `BeginRecovery` fence too. So it does not matter if the backup began another generation before
//! the coordinator knew.) No decision is made while a backup is silent, unless it is silent for
//! [`SURVEY_GRACE`]. Backups that are known to be down are not waited for. (That is safe: see
//! [`survey`](crate::survey).) If segments are missing, all backups that may still answer are
//! waited for.

use crate::cluster::Storage;
use crate::knowledge::attempts::RunningSurvey;
use crate::leadership::{Leadership, RetryPauses};
use crate::limits::SURVEY_GRACE;
use crate::survey::{BackupReport, Conclusion, FoundLog, HeadAnswer, Question};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Time;
use thunderhead_wire::control::{Head, HeadOf, Inventory, InventoryOf, of_body};
use thunderhead_wire::{Generation, Next, ServerId};

/// The state of a survey.
pub(super) enum SurveyState {
    /// Wait for an answer.
    Wait,
    /// Wait for an answer or for this time.
    WaitUntil(Time),
    /// It waits for silent backups, because of this. These servers may have the missing replicas.
    Lacks(String, BTreeSet<ServerId>),
    /// The log is complete.
    FoundLog(FoundLog),
    /// No server that is up has the missing replicas. These servers are down and may have them.
    Failed(String, BTreeSet<ServerId>),
}

impl RunningSurvey {
    /// Sends the questions that are due. Returns the progress.
    pub(super) fn advance(self: &Rc<Self>, leadership: &Rc<Leadership>) -> SurveyState {
        let cluster = leadership.cluster();
        let backups: Vec<Storage> = cluster.backups().collect();
        let generations: BTreeMap<_, _> =
            backups.iter().map(|it| (it.server, it.generation)).collect();
        self.asked.borrow_mut().retain(|server, generation| {
            let same = generations.get(server) == Some(generation);
            if !same {
                self.survey.borrow_mut().forget(*server);
            }
            same
        });
        for backup in backups {
            if self.asked.borrow_mut().insert(backup.server, backup.generation).is_none() {
                leadership.spawn(Rc::clone(self).take_inventory(Rc::clone(leadership), backup));
            }
        }
        let silent: Vec<ServerId> = {
            let survey = self.survey.borrow();
            generations.keys().copied().filter(|it| !survey.reports.contains_key(it)).collect()
        };
        let grace = self.begun + SURVEY_GRACE;
        if !silent.is_empty() && leadership.now() < grace {
            return SurveyState::WaitUntil(grace);
        }
        let former = cluster.former(self.crashed);
        let epochs = former.map_or(&[][..], |former| &former.epochs);
        self.survey.borrow_mut().floor = former.map(|it| it.floor).unwrap_or_default();
        loop {
            let conclusion = self.survey.borrow().conclusion(self.crashed, epochs);
            match conclusion {
                Conclusion::Ask(questions) => {
                    for question in questions {
                        self.ask(leadership, question);
                    }
                }
                Conclusion::Wait => return SurveyState::Wait,
                Conclusion::Complete(found) => return SurveyState::FoundLog(found),
                Conclusion::Missing(why) => {
                    let mut missing = silent;
                    missing.extend(cluster.backups_away());
                    if missing.is_empty() {
                        let why = format!("{why}; start the servers that had them");
                        return SurveyState::Failed(why, BTreeSet::new());
                    }
                    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
                    let why = format!("{why}; no answer came from {}", names.join(", "));
                    // A backup that is down is asked when it restarts.
                    let may_answer = missing.iter().any(|it| generations.contains_key(it));
                    let missing = missing.into_iter().collect();
                    return match may_answer {
                        true => SurveyState::Lacks(why, missing),
                        false => SurveyState::Failed(why, missing),
                    };
                }
            }
        }
    }

    /// Whether an answer of a backup's generation matters.
    fn matters(&self, leadership: &Leadership, server: ServerId, generation: Generation) -> bool {
        let is_up =
            leadership.cluster().backup(server).is_some_and(|it| it.generation == generation);
        is_up && !self.over.get()
    }

    async fn take_inventory(self: Rc<Self>, leadership: Rc<Leadership>, backup: Storage) {
        let Storage { server, generation, address, .. } = backup;
        let mut pauses = RetryPauses::default();
        while self.matters(&leadership, server, generation) {
            let lineage = leadership.cluster().lineage(self.crashed);
            let message = InventoryOf { master: self.crashed, deposed: true, lineage };
            let answer = leadership.call(address, Opcode::Inventory, &message).await;
            let inventory = answer.ok().and_then(|body| of_body::<Inventory>(&body));
            let Some(Inventory { replicas }) = inventory else {
                leadership.sleep(pauses.next()).await;
                continue;
            };
            let at = leadership.now_in_next_turn().await;
            if self.matters(&leadership, server, generation) {
                let report = BackupReport { generation, address, at, replicas };
                self.survey.borrow_mut().reports.insert(server, report);
                leadership.changed.raise();
            }
            return;
        }
    }

    fn ask(self: &Rc<Self>, leadership: &Rc<Leadership>, question: Question) {
        let mut survey = self.survey.borrow_mut();
        let Some(report) = survey.reports.get(&question.server) else { return };
        let generation = report.generation;
        let key = (question.segment, question.server);
        survey.head_answers.insert(key, HeadAnswer::Waits { long: false });
        leadership.spawn(Rc::clone(self).ask_until_answered(
            Rc::clone(leadership),
            question,
            generation,
        ));
    }

    fn on_head_answer(&self, question: Question, answer: HeadAnswer, now: Time) {
        let mut survey = self.survey.borrow_mut();
        let is_answer = !matches!(answer, HeadAnswer::Waits { .. });
        if let Some(report) = survey.reports.get_mut(&question.server).filter(|_| is_answer) {
            // The backup may have been in another generation already, which the coordinator did not
            // know.
            report.at = now;
        }
        survey.head_answers.insert((question.segment, question.server), answer);
    }

    async fn ask_until_answered(
        self: Rc<Self>,
        leadership: Rc<Leadership>,
        question: Question,
        generation: Generation,
    ) {
        let Question { segment, server, address } = question;
        let mut pauses = RetryPauses::default();
        let mut until = leadership.now() + SURVEY_GRACE;
        while self.matters(&leadership, server, generation) {
            let message = HeadOf { master: self.crashed, segment };
            let answer = match leadership.call(address, Opcode::HeadOf, &message).await {
                Ok(body) => match of_body::<Head>(&body) {
                    Some(head) => HeadAnswer::Said(head),
                    None => HeadAnswer::Useless("its backup's answer is malformed".into()),
                },
                Err(error) if is_for_good(&error) => HeadAnswer::Useless(error.to_string()),
                Err(_) if leadership.now() >= until => {
                    until = Time::NEVER;
                    HeadAnswer::Waits { long: true }
                }
                Err(_) => {
                    leadership.sleep(pauses.next()).await;
                    continue;
                }
            };
            let now = leadership.now_in_next_turn().await;
            if !self.matters(&leadership, server, generation) {
                return;
            }
            let waits = matches!(answer, HeadAnswer::Waits { .. });
            self.on_head_answer(question, answer, now);
            leadership.changed.raise();
            if !waits {
                return;
            }
            leadership.sleep(pauses.next()).await;
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
