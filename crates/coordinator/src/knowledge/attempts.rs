//! The progress of recoveries. A new leader begins each again, under another number. The modules of
//! `recoveries` take the steps.

use crate::cluster::Cluster;
use crate::limits::{STUCK, TROUBLE_BYTES_MAX};
use crate::survey::Survey;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_wire::control::{Replicas, TabletStatus};
use thunderhead_wire::{Generation, MasterId, RecoveryId, ServerId};

/// The attempts to recover former masters.
pub(crate) type Attempts = RefCell<BTreeMap<MasterId, Attempt>>;

/// The progress of a recovery.
pub(crate) struct Attempt {
    pub(crate) stage: Stage,
    /// The begin of the first attempt.
    pub(crate) since: Option<Time>,
    /// The number of consecutive failures.
    pub(crate) failures: u32,
    /// The masters that could not do it, and how often.
    pub(crate) refused: BTreeMap<MasterId, u32>,
    /// The reason of the last failure, or the present obstacle.
    pub(crate) trouble: Option<String>,
    /// About the bytes of memory that a shard would need, if none seems to have room; otherwise 0.
    pub(crate) needed_bytes: u64,
    /// How long parts may take after another part has failed.
    pub(crate) patience: Duration,
    /// When all backups were fenced whose replicas the assigned parts use.
    pub(crate) fenced: Option<Time>,
    /// Bytes of the log.
    pub(crate) bytes: u64,
    /// The result of the last survey.
    completeness: Option<Completeness>,
    /// Some replicas were counted by a survey and could not be used later. A survey reads only
    /// lists of replicas.
    is_doubted: bool,
}

/// Whether a log is complete, as far as a survey says.
pub(crate) enum Completeness {
    /// It is complete with the replicas of these servers, each in this generation.
    Complete(BTreeMap<ServerId, Generation>),
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
            needed_bytes: 0,
            patience: STUCK,
            fenced: None,
            bytes: 0,
            completeness: None,
            is_doubted: false,
        }
    }
}

/// The stage of an attempt.
pub(crate) enum Stage {
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

/// A survey in progress.
pub(crate) struct RunningSurvey {
    pub(crate) crashed: MasterId,
    pub(crate) begun: Time,
    pub(crate) over: Cell<bool>,
    pub(crate) survey: RefCell<Survey>,
    /// The backups that are asked, with their generations.
    pub(crate) asked: RefCell<BTreeMap<ServerId, Generation>>,
}

impl RunningSurvey {
    /// Returns a survey that has asked no backup yet.
    pub(crate) fn new(crashed: MasterId, now: Time) -> Rc<RunningSurvey> {
        Rc::new(RunningSurvey {
            crashed,
            begun: now,
            over: Cell::new(false),
            survey: RefCell::default(),
            asked: RefCell::default(),
        })
    }

    /// Ends the survey: no further questions are sent.
    pub(crate) fn end(&self) {
        self.over.set(true);
    }
}

/// Partitions that are being rebuilt.
pub(crate) struct Round {
    pub(crate) recovery: RecoveryId,
    /// One master takes the whole log back.
    pub(crate) take_back: bool,
    /// In the order in which they are read.
    pub(crate) segments: Vec<Replicas>,
    /// The backups with replicas of them.
    pub(crate) backups: BTreeSet<ServerId>,
    /// The backups that know the round.
    pub(crate) told: Rc<RefCell<BTreeSet<ServerId>>>,
    /// The backups that cannot read their segments, and why.
    pub(crate) useless: BTreeMap<ServerId, String>,
    /// The time when a part was first seen to have failed.
    pub(crate) failed_at: Option<Time>,
    /// From then on masters are told, even if not all backups know the round.
    pub(crate) patience: Time,
    /// The state of each partition.
    pub(crate) parts: Vec<PartState>,
    /// The size of each partition, by the log's statistics.
    pub(crate) expected: Vec<Vec<TabletStatus>>,
    /// A master could not do its part.
    pub(crate) is_troubled: bool,
}

/// The state of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartState {
    /// Its master must be told, not before this time, after so many failed attempts.
    Due(Time, u32),
    /// It has begun.
    Begun,
    /// No further report can come.
    Over,
}

impl Attempt {
    /// Notes a backup's answer to its reading list of a round: its objection, if it has one.
    pub(crate) fn on_backup_answer(
        &mut self,
        recovery: RecoveryId,
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
    pub(crate) fn on_surveyed(&mut self, completeness: Completeness) {
        self.completeness = Some(completeness);
    }

    /// Whether the recovery needs the replicas of a server that is down.
    pub(crate) fn needs(&self, server: ServerId, cluster: &Cluster) -> Need {
        let is_up = |(server, generation): (&ServerId, &Generation)| {
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
    pub(crate) fn begin_anew(&mut self) {
        self.enter(Stage::default());
    }

    /// Begins a round.
    pub(crate) fn begin_round(&mut self, round: Round) {
        self.enter(Stage::Rebuilding(round));
    }

    /// Whether the round of this number is in progress.
    pub(crate) fn is_at(&self, recovery: RecoveryId) -> bool {
        matches!(&self.stage, Stage::Rebuilding(round) if round.recovery == recovery)
    }

    /// Enters a stage, and ends the survey of the former one.
    pub(crate) fn enter(&mut self, stage: Stage) {
        if let Stage::Surveying(old) = std::mem::replace(&mut self.stage, stage) {
            old.end();
        }
    }

    /// Notes that a part was rebuilt.
    pub(crate) fn on_part_rebuilt(&mut self) {
        self.failures = 0;
    }

    /// Notes that no further report of a partition can come, with the reason if there is one; `by`
    /// could not do it.
    pub(crate) fn on_part_over(
        &mut self,
        (recovery, partition): (RecoveryId, usize),
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
    pub(crate) fn part_state(
        &mut self,
        recovery: RecoveryId,
        partition: usize,
    ) -> Option<&mut PartState> {
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
pub(crate) fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TROUBLE_BYTES_MAX));
    text
}
