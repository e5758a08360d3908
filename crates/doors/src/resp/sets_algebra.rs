//! Commands about several sets: intersections, unions and differences.

use super::bounds;
use super::collection::{INTSET, LARGE};
use super::commands::{Command, DENYOOM, Group, Keys, MOVABLE_KEYS, READONLY, WRITE};
use super::context::{Context, from, is};
use super::events::Kinds;
use super::number::integer_of;
use super::parser::Arguments;
use super::set::{FORM, Set};
use super::stop::{self, Done, Stop};
use super::store::Kind;
use super::transaction::Transaction;
use std::collections::BTreeSet;
use std::rc::Rc;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("sinter", -2, READONLY, sinter)
        .keys(&[Keys::range("RO access", 1, -1, 1)])
        .tips(&["nondeterministic_output_order"])
        .about(Group::Set, "1.0.0", "Returns the members that all sets have."),
    Command::new("sintercard", -3, READONLY | MOVABLE_KEYS, sintercard)
        .keys(&[Keys::counted("RO access", 1)])
        .about(Group::Set, "7.0.0", "Counts the members that all sets have."),
    Command::new("sinterstore", -3, WRITE | DENYOOM, sinterstore)
        .keys(&[Keys::one("OW update", 1), Keys::range("RO access", 2, -1, 1)])
        .about(Group::Set, "1.0.0", "Writes a set of the members that all sets have."),
    Command::new("sunion", -2, READONLY, sunion)
        .keys(&[Keys::range("RO access", 1, -1, 1)])
        .tips(&["nondeterministic_output_order"])
        .about(Group::Set, "1.0.0", "Returns the members of several sets."),
    Command::new("sunionstore", -3, WRITE | DENYOOM, sunionstore)
        .keys(&[Keys::one("OW update", 1), Keys::range("RO access", 2, -1, 1)])
        .about(Group::Set, "1.0.0", "Writes a set of the members of several sets."),
    Command::new("sdiff", -2, READONLY, sdiff)
        .keys(&[Keys::range("RO access", 1, -1, 1)])
        .tips(&["nondeterministic_output_order"])
        .about(Group::Set, "1.0.0", "Returns the members that only the first set has."),
    Command::new("sdiffstore", -3, WRITE | DENYOOM, sdiffstore)
        .keys(&[Keys::one("OW update", 1), Keys::range("RO access", 2, -1, 1)])
        .about(Group::Set, "1.0.0", "Writes a set of the members that only the first set has."),
];

/// A way to combine sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Intersection,
    Union,
    Difference,
}

/// Returns the sets of some keys; `None` for a key that does not exist.
fn sets_of<'k>(
    objects: &mut Transaction<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Vec<Option<Set<'k>>>, Stop> {
    keys.map(|key| Set::to_read(objects, key)).collect()
}

/// Returns the members of a combination, at most so many.
fn combine(
    objects: &mut Transaction<'_>,
    operation: Operation,
    sets: Vec<Option<Set<'_>>>,
    limit: u64,
) -> Result<Vec<Rc<[u8]>>, Stop> {
    match operation {
        Operation::Union => unite(objects, &sets),
        Operation::Intersection => {
            let sets: Option<Vec<Set<'_>>> = sets.into_iter().collect();
            let Some(mut sets) = sets else { return Ok(Vec::new()) };
            // The smallest one is looked through.
            let lengths: Vec<u64> = sets.iter().map(Set::len).collect::<Result<_, _>>()?;
            let smallest = (0..sets.len()).min_by_key(|index| lengths[*index]).unwrap_or(0);
            let first = sets.remove(smallest);
            select(objects, &first, &mut sets, true, limit)
        }
        Operation::Difference => {
            let mut sets = sets.into_iter();
            let Some(Some(first)) = sets.next() else { return Ok(Vec::new()) };
            let mut others: Vec<Set<'_>> = sets.flatten().collect();
            select(objects, &first, &mut others, false, limit)
        }
    }
}

/// Returns the members of a set that all other sets have, or that none has.
fn select(
    objects: &mut Transaction<'_>,
    first: &Set<'_>,
    others: &mut [Set<'_>],
    is_in_all: bool,
    limit: u64,
) -> Result<Vec<Rc<[u8]>>, Stop> {
    let mut selected = Vec::new();
    let mut check = |objects: &mut Transaction<'_>, member: &[u8]| -> Result<bool, Stop> {
        for other in others.iter_mut() {
            if other.has(objects, member)? != is_in_all {
                return Ok(false);
            }
        }
        Ok(true)
    };
    if first.collection.encoding != LARGE {
        for member in first.members(objects)? {
            if (selected.len() as u64) < limit && check(objects, &member)? {
                selected.push(Rc::from(member));
            }
        }
        return Ok(selected);
    }
    let mut items = first.collection.cursor(objects, 0)?;
    while (selected.len() as u64) < limit
        && let Some((member, _)) = items.next(objects)?
    {
        if check(objects, member)? {
            selected.push(Rc::from(member));
        }
    }
    Ok(selected)
}

fn unite(objects: &mut Transaction<'_>, sets: &[Option<Set<'_>>]) -> Result<Vec<Rc<[u8]>>, Stop> {
    let (mut members, mut seen) = (Vec::new(), BTreeSet::new());
    for set in sets.iter().flatten() {
        for member in set.members(objects)? {
            let member: Rc<[u8]> = Rc::from(member);
            if seen.insert(Rc::clone(&member)) {
                members.push(member);
            }
        }
    }
    Ok(members)
}

fn reply_with(context: &mut Context<'_>, arguments: Arguments<'_>, operation: Operation) -> Done {
    let sets = sets_of(&mut context.objects, from(arguments, 1))?;
    let is_integers =
        |set: &Option<Set<'_>>| set.as_ref().is_none_or(|set| set.collection.encoding == INTSET);
    let is_sorted = operation == Operation::Union && sets.iter().all(is_integers);
    let mut members = combine(&mut context.objects, operation, sets, u64::MAX)?;
    if is_sorted {
        members.sort_by_key(|member| integer_of(member));
    }
    context.reply.set(members.len());
    members.iter().for_each(|member| context.reply.string(member));
    Ok(())
}

fn store(context: &mut Context<'_>, arguments: Arguments<'_>, operation: Operation) -> Done {
    let key = &arguments[1];
    let objects = &mut context.objects;
    let sets = sets_of(objects, from(arguments, 2))?;
    let members = combine(objects, operation, sets, u64::MAX)?;
    let Some(first) = members.first() else {
        objects.delete(key)?;
        context.reply.integer(0);
        return Ok(());
    };
    for member in &members {
        FORM.check(objects, member, &[])?;
    }
    objects.note_overwrite(key, Kind::Set)?;
    objects.forget_pages(key)?;
    let mut set = Set::new(objects, key, first, 1);
    set.fill(objects, &members)?;
    set.collection.close(objects)?;
    let name = match operation {
        Operation::Intersection => "sinterstore",
        Operation::Union => "sunionstore",
        Operation::Difference => "sdiffstore",
    };
    objects.event(Kinds::SET, name, key);
    context.reply.integer(members.len() as i64);
    Ok(())
}

fn sinter(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_with(context, arguments, Operation::Intersection)
}

fn sunion(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_with(context, arguments, Operation::Union)
}

fn sdiff(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_with(context, arguments, Operation::Difference)
}

fn sinterstore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    store(context, arguments, Operation::Intersection)
}

fn sunionstore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    store(context, arguments, Operation::Union)
}

fn sdiffstore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    store(context, arguments, Operation::Difference)
}

fn sintercard(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let error = Stop::error("ERR numkeys should be greater than 0");
    let count = bounds::at_least(1, &arguments[1], error)?;
    let end = usize::try_from(count).ok().and_then(|count| count.checked_add(2));
    let Some(end) = end.filter(|end| *end <= arguments.len()) else {
        return Err(Stop::error("ERR Number of keys can't be greater than number of args"));
    };
    let (mut limit, mut at) = (0, end);
    while let Some(word) = arguments.get(at) {
        let Some(number) = arguments.get(at + 1).filter(|_| is(word, "LIMIT")) else {
            return Err(stop::SYNTAX);
        };
        limit = bounds::at_least(0, number, Stop::error("ERR LIMIT can't be negative"))?;
        at += 2;
    }
    let sets = sets_of(&mut context.objects, from(arguments, 2).take(end - 2))?;
    let limit = if limit == 0 { u64::MAX } else { limit };
    let members = combine(&mut context.objects, Operation::Intersection, sets, limit)?;
    context.reply.integer(members.len() as i64);
    Ok(())
}
