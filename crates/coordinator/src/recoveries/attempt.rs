//! The progress of a master's recovery, in the leader's memory. It is not written: a new leader
//! begins again, under another number.

use super::running_survey::RunningSurvey;
use crate::cluster::Cluster;
use crate::leadership::Leadership;
use crate::limits::{RECOVERY_PAUSE_MAX, STUCK, TROUBLE_BYTES_MAX};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_wire::control::{Replicas, TabletStatus};
use thunderhead_wire::{MasterId, ServerId};

/// The attempts to recover former masters.
pub(crate) type Attempts = RefCell<BTreeMap<MasterId, Attempt>>;

/// The progress of a recovery.
pub(crate) struct Attempt {
    pub(super) stage: Stage,
    /// The begin of the first attempt.
    pub(super) since: Option<Time>,
    /// The number of consecutive failures.
    failures: u32,
    /// The masters that could not do it, and how often.
    pub(super) refused: BTreeMap<MasterId, u32>,
    /// The reason of the last failure, or the present obstacle.
    pub(super) trouble: Option<String>,
    /// How long parts may take after another part has failed.
    pub(super) patience: Duration,
    /// When all backups were fenced whose replicas the assigned parts use.
    pub(super) fenced: Option<Time>,
    /// Bytes of the log.
    pub(super) bytes: u64,
    /// The result of the last survey.
    completeness: Option<Completeness>,
    /// Some replicas were counted by a survey and could not be used later. A survey reads only
    /// lists of replicas.
    is_doubted: bool,
}

/// Whether a log is complete, as far as a survey says.
pub(super) enum Completeness {
    /// It is complete with the replicas of these servers, each in this generation.
    Complete(BTreeMap<ServerId, u64>),
    /// It is incomplete, by the list of servers of this version. Only these servers may have the
    /// missing replicas.
    Incomplete(u64, BTreeSet<ServerId>),
}

/// Whether a recovery needs the replicas of a server that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// It does not.
    No,
    /// That is not known yet.
    Unknown,
    /// Something is missing, and this server may have it.
    Missing,
}

impl Default for Attempt {
    fn default() -> Self {
        Attempt {
            stage: Stage::default(),
            since: None,
            failures: 0,
            refused: BTreeMap::new(),
            trouble: None,
            patience: STUCK,
            fenced: None,
            bytes: 0,
            completeness: None,
            is_doubted: false,
        }
    }
}

/// The stage of an attempt.
pub(super) enum Stage {
    /// No work before this time, unless the server list changes from this version.
    Resting(Time, u64),
    Surveying(Rc<RunningSurvey>),
    Rebuilding(Round),
}

impl Default for Stage {
    fn default() -> Self {
        Stage::Resting(Time(0), 0)
    }
}

/// Partitions that are being rebuilt.
pub(super) struct Round {
    pub(super) recovery: u64,
    /// One master takes the whole log back.
    pub(super) take_back: bool,
    /// In the order in which they are read.
    pub(super) segments: Vec<Replicas>,
    /// The backups with replicas of them.
    pub(super) backups: BTreeSet<ServerId>,
    /// The backups that know the round.
    pub(super) told: Rc<RefCell<BTreeSet<ServerId>>>,
    /// The backups that cannot read their segments, and why.
    pub(super) useless: BTreeMap<ServerId, String>,
    /// The time when a part was first seen to have failed.
    pub(super) failed_at: Option<Time>,
    /// From then on masters are told, even if not all backups know the round.
    pub(super) patience: Time,
    /// The state of each partition.
    pub(super) parts: Vec<PartState>,
    /// The size of each partition, by the log's statistics.
    pub(super) expected: Vec<Vec<TabletStatus>>,
    /// A master could not do its part.
    pub(super) is_troubled: bool,
}

/// The state of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartState {
    /// Its master must be told, not before this time, after so many failed attempts.
    Due(Time, u32),
    /// It has begun.
    Begun,
    /// No further report can come.
    Over,
}

impl Attempt {
    /// Notes a failure. The next attempt follows after a pause, which grows.
    pub(super) fn on_failure(&mut self, leadership: &Leadership, trouble: String) {
        self.trouble = Some(shortened(trouble));
        self.failures += 1;
        let pause = leadership.shared.options.recovery_pause;
        let pause = pause.saturating_mul(1 << (self.failures - 1).min(10)).min(RECOVERY_PAUSE_MAX);
        self.enter(Stage::Resting(leadership.now() + pause, leadership.cluster().list_version()));
    }

    /// Notes that these masters do not finish their parts while other tablets wait for a new round.
    pub(super) fn on_stuck(&mut self, leadership: &Leadership, masters: &[MasterId]) {
        for master in masters {
            *self.refused.entry(*master).or_default() += 1;
        }
        self.patience = self.patience.saturating_mul(2);
        let names: Vec<String> = masters.iter().take(8).map(ToString::to_string).collect();
        self.on_failure(
            leadership,
            format!(
                "{} did not finish in time, and the other tablets wait for it",
                names.join(", ")
            ),
        );
    }

    /// Notes a backup's answer to its reading list of a round: its objection, if it has one.
    pub(super) fn on_backup_answer(
        &mut self,
        recovery: u64,
        server: ServerId,
        useless: Option<String>,
    ) {
        let Stage::Rebuilding(round) = &mut self.stage else { return };
        if round.recovery != recovery {
            return;
        }
        match useless {
            None => _ = round.useless.remove(&server),
            Some(why) => {
                self.is_doubted = true;
                self.trouble = Some(shortened(why.clone()));
                round.useless.insert(server, why);
            }
        }
    }

    /// Notes the result of a survey.
    pub(super) fn on_surveyed(&mut self, completeness: Completeness) {
        self.completeness = Some(completeness);
    }

    /// Whether the recovery needs the replicas of a server that is down.
    pub(super) fn needs(&self, server: ServerId, cluster: &Cluster) -> Need {
        let is_up = |(server, generation): (&ServerId, &u64)| {
            cluster.backup(*server).is_some_and(|it| it.generation == *generation)
        };
        match &self.completeness {
            // The server may have the only sound copy.
            Some(_) if self.is_doubted => Need::Missing,
            Some(Completeness::Complete(used)) if used.iter().all(is_up) => Need::No,
            Some(Completeness::Incomplete(list, servers)) if *list == cluster.list_version() => {
                if servers.contains(&server) {
                    Need::Missing
                } else {
                    Need::No
                }
            }
            _ => Need::Unknown,
        }
    }

    /// Begins the remainder again, at once.
    pub(super) fn begin_anew(&mut self) {
        self.enter(Stage::default());
    }

    /// Begins a round.
    pub(super) fn begin_round(&mut self, round: Round) {
        self.enter(Stage::Rebuilding(round));
    }

    /// Whether the round of this number is in progress.
    pub(super) fn is_at(&self, recovery: u64) -> bool {
        matches!(&self.stage, Stage::Rebuilding(round) if round.recovery == recovery)
    }

    fn enter(&mut self, stage: Stage) {
        if let Stage::Surveying(old) = std::mem::replace(&mut self.stage, stage) {
            old.end();
        }
    }

    /// Notes that a part was rebuilt.
    pub(super) fn on_part_rebuilt(&mut self) {
        self.failures = 0;
    }

    /// Notes that no further report of a partition can come, with the reason if there is one; `by`
    /// could not do it.
    pub(super) fn on_part_over(
        &mut self,
        (recovery, partition): (u64, usize),
        by: MasterId,
        trouble: Option<String>,
    ) {
        let Stage::Rebuilding(round) = &mut self.stage else { return };
        if round.recovery != recovery {
            return;
        }
        if let Some(told) = round.parts.get_mut(partition) {
            *told = PartState::Over;
        }
        if let Some(trouble) = trouble {
            round.is_troubled = true;
            self.is_doubted = true;
            *self.refused.entry(by).or_default() += 1;
            self.trouble = Some(shortened(trouble));
        }
    }

    /// Returns the state of a partition, as long as the round lasts.
    pub(super) fn part_state(&mut self, recovery: u64, partition: usize) -> Option<&mut PartState> {
        match &mut self.stage {
            Stage::Rebuilding(round) if round.recovery == recovery => {
                round.parts.get_mut(partition)
            }
            _ => None,
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Stage::Surveying(surveying) = &self.stage {
            surveying.end();
        }
    }
}

/// Shortens a foreign text.
pub(super) fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TROUBLE_BYTES_MAX));
    text
}
