//! The operations of one key, in the orders that judging needs.
//!
//! All of this is computed once; a search only remembers its progress in each order.

use super::register::{self, Need};
use super::{Action, Condition, Operation, Outcome, Version, Violation};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;

/// The operations of one key.
pub(super) struct History<'a, K> {
    /// The relevant operations, by the time of their calls.
    pub(super) operations: Vec<&'a Operation<K>>,
    /// The certain events of the key, in the only order that the versions allow.
    pub(super) milestones: Vec<Milestone>,
    /// Unanswered updates, by the time of their first calls.
    pub(super) unanswered: Vec<Unanswered>,
    /// The indexes of the deletes among them.
    pub(super) deletes: Vec<usize>,
    /// Values that reads found and that only unanswered updates can have written.
    pub(super) found: HashSet<u64>,
}

/// An event that certainly happened to the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Milestone {
    /// The version that it brought or removed.
    pub(super) version: Version,
    pub(super) event: Event,
    /// The number of operations that saw the version and changed nothing.
    pub(super) observers: usize,
}

/// The kind of a milestone.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// An answered operation brought the version.
    Update(usize),
    /// An answered operation removed the version.
    Delete(usize),
    /// An unanswered operation brought the version, and this value if a read found it.
    Unanswered(Option<u64>),
}

/// Equal unanswered updates. They have no deadline, so it does not matter which of them happens.
pub(super) struct Unanswered {
    pub(super) action: Action,
    /// Their places among the operations.
    calls: Vec<usize>,
}

impl Unanswered {
    /// Returns the number of them that were called before the operation at a place.
    pub(super) fn called(&self, next_called: usize) -> usize {
        self.calls.partition_point(|at| *at < next_called)
    }
}

/// Returns the version that an operation with its outcome requires, and the value that it found.
pub(super) fn version_seen<K>(operation: &Operation<K>) -> Option<(Version, Option<u64>)> {
    match (register::needs(operation.action, operation.outcome), operation.outcome) {
        (Need::Version(version), Outcome::Found(_, value)) => Some((version, Some(value))),
        (Need::Version(version), _) => Some((version, None)),
        _ => None,
    }
}

/// Returns the rank that an answered operation gets from its version: a version is brought, seen,
/// and removed.
fn order<K>(operation: &Operation<K>) -> Option<(Version, u8)> {
    match operation.outcome {
        Outcome::Done(version, _) => Some((version, 0)),
        Outcome::Found(version, _) => Some((version, 1)),
        Outcome::Refused(version) if version != Version::NONE => Some((version, 1)),
        Outcome::Deleted(version) => Some((version, 2)),
        Outcome::Unknown | Outcome::Absent | Outcome::Refused(_) => None,
    }
}

impl<'a, K: Clone + Debug> History<'a, K> {
    /// Puts the operations in order. Fails if answers are wrong without any search.
    pub(super) fn new(
        mut operations: Vec<&'a Operation<K>>,
    ) -> Result<History<'a, K>, Violation<K>> {
        operations.retain(|operation| {
            operation.outcome != Outcome::Unknown || register::effect(operation.action).is_some()
        });
        operations.sort_by_key(|operation| operation.called);
        let mut history = History {
            operations,
            milestones: Vec::new(),
            unanswered: Vec::new(),
            deletes: Vec::new(),
            found: HashSet::new(),
        };
        history.sort_updates()?;
        history.compare_versions()?;
        history.group_unanswered();
        Ok(history)
    }

    fn sort_updates(&mut self) -> Result<(), Violation<K>> {
        // A version comes before it is removed, and both come before any higher version.
        let mut events: BTreeMap<(Version, bool), Event> = BTreeMap::new();
        let mut seen: HashMap<Version, (Option<u64>, usize)> = HashMap::new();
        for (at, operation) in self.operations.iter().enumerate() {
            if operation.outcome == Outcome::Unknown {
                continue;
            }
            if operation.called > operation.answered || !register::answers(operation) {
                return Err(Violation::Nonsense((*operation).clone()));
            }
            let other = match operation.outcome {
                Outcome::Done(version, _) => events.insert((version, false), Event::Update(at)),
                Outcome::Deleted(version) => events.insert((version, true), Event::Delete(at)),
                _ => None,
            };
            if let Some(Event::Update(other) | Event::Delete(other)) = other {
                let first = self.operations[other].clone();
                return Err(Violation::SameVersion(first, (*operation).clone()));
            }
            if let Some((version, value)) = version_seen(operation) {
                let (known, observers) = seen.entry(version).or_default();
                *known = known.or(value);
                *observers += usize::from(register::only_observes(operation.outcome));
            }
        }
        for (version, (value, _)) in &seen {
            if let Entry::Vacant(free) = events.entry((*version, false)) {
                free.insert(Event::Unanswered(*value));
                self.found.extend(*value);
            }
        }
        let observers = |version| seen.get(&version).map_or(0, |(_, observers)| *observers);
        let milestones = events.into_iter().map(|((version, _), event)| Milestone {
            version,
            event,
            observers: observers(version),
        });
        self.milestones = milestones.collect();
        Ok(())
    }

    /// Fails if an operation used a version although a higher one had been seen before its call.
    ///
    /// A search would find that too, but with a less clear message.
    fn compare_versions(&self) -> Result<(), Violation<K>> {
        let mut sorted: Vec<_> =
            self.operations.iter().filter_map(|it| Some((order(it)?, *it))).collect();
        sorted.sort_by_key(|(order, _)| Reverse(*order));
        // The higher-ranked operation with the earliest answer, and the same without equal ranks.
        let (mut first, mut earliest): (Option<(Version, &Operation<K>)>, _) = (None, None);
        let mut of_order = None;
        for (order, operation) in sorted {
            if of_order != Some(order) {
                (of_order, earliest) = (Some(order), first);
            }
            if let Some((version, earlier)) = earliest
                && earlier.answered < operation.called
            {
                let (operation, before) =
                    (operation.clone(), format!("at {version} at least: {earlier:?}"));
                return Err(Violation::Unexplained { operation, before });
            }
            if first.is_none_or(|(_, first)| operation.answered < first.answered) {
                first = Some((order.0, operation));
            }
        }
        Ok(())
    }

    fn group_unanswered(&mut self) {
        let mut groups: HashMap<Action, usize> = HashMap::new();
        for (at, operation) in self.operations.iter().enumerate() {
            if operation.outcome != Outcome::Unknown {
                continue;
            }
            let Some(action) = register::effect(operation.action) else { continue };
            let group = *groups.entry(action).or_insert(self.unanswered.len());
            if group == self.unanswered.len() {
                self.unanswered.push(Unanswered { action, calls: Vec::new() });
                if matches!(action, Action::Delete { .. }) {
                    self.deletes.push(group);
                }
            }
            self.unanswered[group].calls.push(at);
        }
    }

    /// Whether some unanswered delete, called before an operation, may remove this version or a
    /// higher one. It may have been used up already.
    pub(super) fn may_be_deleted(&self, version: Version, next_called: usize) -> bool {
        self.deletes.iter().map(|group| &self.unanswered[*group]).any(|delete| {
            let passed = match delete.action {
                Action::Delete { condition: Condition::VersionIs(wanted) } => wanted < version,
                _ => false,
            };
            !passed && delete.called(next_called) > 0
        })
    }
}
