//! Unions, intersections and differences of sorted sets. A set is a sorted set whose members all
//! have the score 1.

use super::bounds::{self, integer};
use super::commands::{Command, DENYOOM, Group, Keys, MOVABLE_KEYS, READONLY, WRITE};
use super::context::{Context, from, is};
use super::parser::Arguments;
use super::score::score_of;
use super::set::Set;
use super::sorted_set::SortedSet;
use super::sorted_sets::{begin_members, write_member};
use super::sorted_sets_ranges::store;
use super::stop::{self, Done, Stop};
use super::store::Kind;
use super::transaction::Transaction;
use std::cmp::Ordering;
use std::collections::BTreeMap;

const READ: &[Keys] = &[Keys::counted("RO access", 1)];
const STORE: &[Keys] = &[Keys::one("OW update", 1), Keys::counted("RO access", 2)];

pub(super) const COMMANDS: &[Command] =
    &[
        Command::new("zunion", -3, READONLY | MOVABLE_KEYS, zunion).keys(READ).about(
            Group::SortedSet,
            "6.2.0",
            "Returns the members of any of some sorted sets.",
        ),
        Command::new("zinter", -3, READONLY | MOVABLE_KEYS, zinter).keys(READ).about(
            Group::SortedSet,
            "6.2.0",
            "Returns the members of all of some sorted sets.",
        ),
        Command::new("zdiff", -3, READONLY | MOVABLE_KEYS, zdiff).keys(READ).about(
            Group::SortedSet,
            "6.2.0",
            "Returns the members of one sorted set that others do not have.",
        ),
        Command::new("zunionstore", -4, WRITE | DENYOOM | MOVABLE_KEYS, zunionstore)
            .keys(STORE)
            .about(Group::SortedSet, "2.0.0", "Writes a union of sorted sets into a key."),
        Command::new("zinterstore", -4, WRITE | DENYOOM | MOVABLE_KEYS, zinterstore)
            .keys(STORE)
            .about(Group::SortedSet, "2.0.0", "Writes an intersection of sorted sets into a key."),
        Command::new("zdiffstore", -4, WRITE | DENYOOM | MOVABLE_KEYS, zdiffstore)
            .keys(STORE)
            .about(Group::SortedSet, "6.2.0", "Writes a difference of sorted sets into a key."),
        Command::new("zintercard", -3, READONLY | MOVABLE_KEYS, zintercard).keys(READ).about(
            Group::SortedSet,
            "7.0.0",
            "Counts the members of all of some sorted sets.",
        ),
    ];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// The rule by which the scores of one member in several sets become one.
#[derive(Clone, Copy, Debug)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, score: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => defined(score + other),
            Aggregate::Min if other < score => other,
            Aggregate::Max if other > score => other,
            Aggregate::Min | Aggregate::Max => score,
        }
    }
}

/// Returns 0 in place of a number that is none, such as the sum of both infinities.
fn defined(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The members of a key.
enum Members<'k> {
    None,
    Sorted(SortedSet<'k>),
    Plain(Set<'k>),
}

impl<'k> Members<'k> {
    fn read(objects: &mut Transaction<'_>, key: &'k [u8]) -> Result<Members<'k>, Stop> {
        match objects.read(key)?.map(|found| found.kind) {
            None => Ok(Members::None),
            Some(Kind::SortedSet) => {
                let set = SortedSet::find(objects, key)?;
                Ok(set.map_or(Members::None, Members::Sorted))
            }
            Some(Kind::Set) => Ok(Set::find(objects, key)?.map_or(Members::None, Members::Plain)),
            Some(_) => Err(stop::WRONG_TYPE),
        }
    }

    fn len(&self) -> Result<u64, Stop> {
        match self {
            Members::None => Ok(0),
            Members::Sorted(set) => Ok(set.len()),
            Members::Plain(set) => set.len(),
        }
    }

    fn score(&mut self, objects: &mut Transaction<'_>, member: &[u8]) -> Result<Option<f64>, Stop> {
        match self {
            Members::None => Ok(None),
            Members::Sorted(set) => set.score(objects, member),
            Members::Plain(set) => Ok(set.has(objects, member)?.then_some(1.0)),
        }
    }

    fn visit(
        &self,
        objects: &mut Transaction<'_>,
        mut visit: impl FnMut(f64, &[u8]),
    ) -> Result<(), Stop> {
        match self {
            Members::None => Ok(()),
            Members::Sorted(set) => set.visit(objects, 0..set.len(), false, |score, member| {
                visit(score, member);
                true
            }),
            Members::Plain(set) => {
                let mut items = set.collection.cursor(objects, 0)?;
                while let Some((member, _)) = items.next(objects)? {
                    visit(1.0, member);
                }
                Ok(())
            }
        }
    }

    fn all(&self, objects: &mut Transaction<'_>) -> Result<Vec<(f64, Vec<u8>)>, Stop> {
        let mut all = Vec::new();
        self.visit(objects, |score, member| all.push((score, member.to_vec())))?;
        Ok(all)
    }
}

/// A set and the number by which its scores are multiplied.
struct Source<'k> {
    members: Members<'k>,
    length: u64,
    weight: f64,
}

/// The arguments of a command.
struct Plan<'k> {
    sources: Vec<Source<'k>>,
    aggregate: Aggregate,
    has_scores: bool,
    limit: u64,
}

/// The use of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Reply,
    Store,
    Count,
}

impl<'k> Plan<'k> {
    /// Reads the arguments from the number of keys on.
    fn of(
        context: &mut Context<'_>,
        arguments: Arguments<'k>,
        first: usize,
        operation: Operation,
        its_use: Use,
        name: &str,
    ) -> Result<Plan<'k>, Stop> {
        let count = integer(&arguments[first])?;
        if count < 1 {
            return Err(Stop::error_of(format!(
                "ERR at least 1 input key is needed for '{name}' command"
            )));
        }
        let count = usize::try_from(count).map_err(|_| stop::SYNTAX)?;
        if count > arguments.len() - first - 1 {
            return Err(stop::SYNTAX);
        }
        let mut plan = Plan {
            sources: Vec::with_capacity(count),
            aggregate: Aggregate::Sum,
            has_scores: false,
            limit: 0,
        };
        for key in from(arguments, first + 1).take(count) {
            let members = Members::read(&mut context.objects, key)?;
            let length = members.len()?;
            plan.sources.push(Source { members, length, weight: 1.0 });
        }
        plan.options(arguments, first + 1 + count, operation, its_use)?;
        Ok(plan)
    }

    fn options(
        &mut self,
        arguments: Arguments<'_>,
        mut index: usize,
        operation: Operation,
        its_use: Use,
    ) -> Done {
        let combines = operation != Operation::Difference && its_use != Use::Count;
        while let Some(option) = arguments.get(index) {
            let rest = arguments.len() - index - 1;
            if combines && rest >= self.sources.len() && is(option, "weights") {
                for (source, text) in self.sources.iter_mut().zip(from(arguments, index + 1)) {
                    let error = Stop::error("ERR weight value is not a float");
                    source.weight = score_of(text).ok_or(error)?;
                }
                index += self.sources.len();
            } else if combines && rest >= 1 && is(option, "aggregate") {
                index += 1;
                self.aggregate = match &arguments[index] {
                    word if is(word, "sum") => Aggregate::Sum,
                    word if is(word, "min") => Aggregate::Min,
                    word if is(word, "max") => Aggregate::Max,
                    _ => return Err(stop::SYNTAX),
                };
            } else if its_use == Use::Reply && is(option, "withscores") {
                self.has_scores = true;
            } else if its_use == Use::Count && rest >= 1 && is(option, "limit") {
                index += 1;
                let error = Stop::error("ERR LIMIT can't be negative");
                self.limit = bounds::at_least(0, &arguments[index], error)?;
            } else {
                return Err(stop::SYNTAX);
            }
            index += 1;
        }
        Ok(())
    }

    fn result(
        &mut self,
        objects: &mut Transaction<'_>,
        operation: Operation,
    ) -> Result<Vec<(f64, Vec<u8>)>, Stop> {
        // Sums depend on the order of numbers.
        if operation != Operation::Difference {
            self.sources.sort_by_key(|source| source.length);
        }
        let mut result = match operation {
            Operation::Union => self.union(objects)?,
            Operation::Intersection => self.intersection(objects)?,
            Operation::Difference => self.difference(objects)?,
        };
        result.sort_by(|one, other| {
            // -0 is equal to 0.
            one.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal).then_with(|| one.1.cmp(&other.1))
        });
        Ok(result)
    }

    fn union(&self, objects: &mut Transaction<'_>) -> Result<Vec<(f64, Vec<u8>)>, Stop> {
        let mut scores = BTreeMap::<Vec<u8>, f64>::new();
        for Source { members, weight, .. } in &self.sources {
            members.visit(objects, |score, member| {
                let score = defined(score * weight);
                match scores.get_mut(member) {
                    Some(sum) => *sum = self.aggregate.of(*sum, score),
                    None => {
                        scores.insert(member.to_vec(), score);
                    }
                }
            })?;
        }
        Ok(scores.into_iter().map(|(member, score)| (score, member)).collect())
    }

    fn intersection(&mut self, objects: &mut Transaction<'_>) -> Result<Vec<(f64, Vec<u8>)>, Stop> {
        let Some((first, others)) = self.sources.split_first_mut() else { return Ok(Vec::new()) };
        let mut result = Vec::new();
        'members: for (score, member) in first.members.all(objects)? {
            let mut sum = defined(score * first.weight);
            for Source { members, weight, .. } in &mut *others {
                let Some(score) = members.score(objects, &member)? else { continue 'members };
                sum = self.aggregate.of(sum, score * *weight);
            }
            result.push((sum, member));
            if result.len() as u64 == self.limit {
                break;
            }
        }
        Ok(result)
    }

    fn difference(&mut self, objects: &mut Transaction<'_>) -> Result<Vec<(f64, Vec<u8>)>, Stop> {
        let Some((first, others)) = self.sources.split_first_mut() else { return Ok(Vec::new()) };
        let mut result = Vec::new();
        'members: for (score, member) in first.members.all(objects)? {
            for Source { members, .. } in &mut *others {
                if members.score(objects, &member)?.is_some() {
                    continue 'members;
                }
            }
            result.push((score, member));
        }
        Ok(result)
    }
}

fn reply(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    operation: Operation,
    name: &str,
) -> Done {
    let mut plan = Plan::of(context, arguments, 1, operation, Use::Reply, name)?;
    let Context { objects, reply, .. } = context;
    let result = plan.result(objects, operation)?;
    let is_pair = begin_members(reply, result.len(), plan.has_scores);
    for (score, member) in result {
        write_member(reply, &member, score, plan.has_scores, is_pair);
    }
    Ok(())
}

fn zunion(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply(context, arguments, Operation::Union, "zunion")
}

fn zinter(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply(context, arguments, Operation::Intersection, "zinter")
}

fn zdiff(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply(context, arguments, Operation::Difference, "zdiff")
}

fn store_result(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    operation: Operation,
    name: &'static str,
) -> Done {
    let mut plan = Plan::of(context, arguments, 2, operation, Use::Store, name)?;
    let result = plan.result(&mut context.objects, operation)?;
    store(context, &arguments[1], &result, name)
}

fn zunionstore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    store_result(context, arguments, Operation::Union, "zunionstore")
}

fn zinterstore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    store_result(context, arguments, Operation::Intersection, "zinterstore")
}

fn zdiffstore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    store_result(context, arguments, Operation::Difference, "zdiffstore")
}

fn zintercard(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let operation = Operation::Intersection;
    let mut plan = Plan::of(context, arguments, 1, operation, Use::Count, "zintercard")?;
    let result = plan.result(&mut context.objects, operation)?;
    context.reply.integer(result.len() as i64);
    Ok(())
}
