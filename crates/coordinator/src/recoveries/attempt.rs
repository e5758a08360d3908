//! How the recovery of a master gets on, as far as a leader remembers it. Not written: a new leader
//! tries anew, under another number.

use super::asking::Surveying;
use crate::limits::{RECOVERY_PAUSE_MAX, STUCK, TROUBLE_BYTES_MAX};
use crate::reign::Reign;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_wire::control::{Replicas, TabletStatus};
use thunderhead_wire::{MasterId, ServerId};

/// The attempts at all masters that are gone.
pub(crate) type Attempts = RefCell<BTreeMap<MasterId, Attempt>>;

/// How it gets on.
pub(crate) struct Attempt {
    pub(super) stage: Stage,
    /// Since when it is being tried.
    pub(super) since: Option<Time>,
    /// How often in a row it failed.
    failures: u32,
    /// Which masters could not do it, and how often.
    pub(super) refused: BTreeMap<MasterId, u32>,
    /// Why it failed last, or what it waits for.
    pub(super) trouble: Option<String>,
    /// How long parts may take after another one has come to nothing.
    pub(super) patience: Duration,
    /// When all backups were fenced whose copies are used for what was given out.
    pub(super) fenced: Option<Time>,
    /// Bytes of the log.
    pub(super) bytes: u64,
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
        }
    }
}

/// Where it is.
pub(super) enum Stage {
    /// Nothing is done before this time, unless the list of servers changes from this version.
    Resting(Time, u64),
    Surveying(Rc<Surveying>),
    Rebuilding(Round),
}

impl Default for Stage {
    fn default() -> Self {
        Stage::Resting(Time(0), 0)
    }
}

/// Partitions that are rebuilt.
pub(super) struct Round {
    pub(super) recovery: u64,
    /// The log is taken back by the one to whom all of it was given.
    pub(super) take_back: bool,
    /// In the order in which they are read.
    pub(super) segments: Vec<Replicas>,
    /// Backups that have copies of them.
    pub(super) backups: BTreeSet<ServerId>,
    /// Those that know.
    pub(super) told: Rc<RefCell<BTreeSet<ServerId>>>,
    /// Those that will not read what they are to read, and why.
    pub(super) useless: BTreeMap<ServerId, String>,
    /// When it was first seen that a part has come to nothing.
    pub(super) failed_at: Option<Time>,
    /// Masters are told then, though not all backups know.
    pub(super) patience: Time,
    /// What was heard of each partition.
    pub(super) parts: Vec<Told>,
    /// How much there is of each, as far as the log says.
    pub(super) expected: Vec<Vec<TabletStatus>>,
    /// A master could not do its part.
    pub(super) is_troubled: bool,
}

/// What was heard of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Its master is to be told, not before this time, and was so many times in vain.
    Due(Time, u32),
    /// It has begun.
    Begun,
    /// Nothing comes of it any more.
    Over,
}

impl Attempt {
    /// It came to nothing; it is tried again after a pause, which grows.
    pub(super) fn fails(&mut self, reign: &Reign, trouble: String) {
        self.trouble = Some(shortened(trouble));
        self.failures += 1;
        let pause = reign.shared.options.recovery_pause;
        let pause = pause.saturating_mul(1 << (self.failures - 1).min(10)).min(RECOVERY_PAUSE_MAX);
        self.goes_to(Stage::Resting(reign.now() + pause, reign.cluster().list_version()));
    }

    /// These masters do not end their parts, and others wait to be divided anew.
    pub(super) fn is_stuck(&mut self, reign: &Reign, masters: &[MasterId]) {
        for master in masters {
            *self.refused.entry(*master).or_default() += 1;
        }
        self.patience = self.patience.saturating_mul(2);
        let names: Vec<String> = masters.iter().take(8).map(ToString::to_string).collect();
        self.fails(reign, format!("{} did not end in time what others wait for", names.join(", ")));
    }

    /// A backup was told what to read in a round, and said this against it.
    pub(super) fn backup_says(&mut self, recovery: u64, server: ServerId, useless: Option<String>) {
        let Stage::Rebuilding(round) = &mut self.stage else { return };
        if round.recovery != recovery {
            return;
        }
        match useless {
            None => _ = round.useless.remove(&server),
            Some(why) => {
                self.trouble = Some(shortened(why.clone()));
                round.useless.insert(server, why);
            }
        }
    }

    /// What is left is begun anew, at once.
    pub(super) fn begins_anew(&mut self) {
        self.goes_to(Stage::default());
    }

    /// Others rebuild its tablets.
    pub(super) fn begins(&mut self, round: Round) {
        self.goes_to(Stage::Rebuilding(round));
    }

    /// Whether they do so under this number.
    pub(super) fn is_at(&self, recovery: u64) -> bool {
        matches!(&self.stage, Stage::Rebuilding(round) if round.recovery == recovery)
    }

    fn goes_to(&mut self, stage: Stage) {
        if let Stage::Surveying(old) = std::mem::replace(&mut self.stage, stage) {
            old.end();
        }
    }

    /// Something was rebuilt.
    pub(super) fn succeeds(&mut self) {
        self.failures = 0;
    }

    /// Nothing comes of a partition any more, for this reason if there is one; `by` could not do it.
    pub(super) fn part_is_over(
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
            *told = Told::Over;
        }
        if let Some(trouble) = trouble {
            round.is_troubled = true;
            *self.refused.entry(by).or_default() += 1;
            self.trouble = Some(shortened(trouble));
        }
    }

    /// What was heard of a partition, as long as the round lasts.
    pub(super) fn told(&mut self, recovery: u64, partition: usize) -> Option<&mut Told> {
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

/// Shortens what somebody says.
pub(super) fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TROUBLE_BYTES_MAX));
    text
}
