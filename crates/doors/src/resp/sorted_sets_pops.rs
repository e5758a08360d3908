//! Commands that take members from an end of a sorted set, or wait until there is one.

use super::bounds;
use super::commands::{BLOCKING, Command, FAST, Group, Keys, MOVABLE_KEYS, WRITE};
use super::context::{Context, from, is};
use super::events::Kinds;
use super::lists_moving::Several;
use super::parser::Arguments;
use super::sorted_set::SortedSet;
use super::sorted_sets::write_member;
use super::stop::{self, Done, Stop};
use super::store::Kind;
use super::waits::{deadline, wait};
use super::writer::Version;

const TAKE: &[Keys] = &[Keys::one("RW access delete", 1)];
const TAKE_BEFORE_LAST: &[Keys] = &[Keys::range("RW access delete", 1, -2, 1)];

pub(super) const COMMANDS: &[Command] = &[
    Command::new("zpopmin", -2, WRITE | FAST, zpopmin).keys(TAKE).about(
        Group::SortedSet,
        "5.0.0",
        "Takes the members with the lowest scores.",
    ),
    Command::new("zpopmax", -2, WRITE | FAST, zpopmax).keys(TAKE).about(
        Group::SortedSet,
        "5.0.0",
        "Takes the members with the highest scores.",
    ),
    Command::new("zmpop", -4, WRITE | MOVABLE_KEYS, zmpop)
        .keys(&[Keys::counted("RW access delete", 1)])
        .about(Group::SortedSet, "7.0.0", "Takes members from the first sorted set that has some."),
    Command::new("bzpopmin", -3, WRITE | BLOCKING | FAST, bzpopmin).keys(TAKE_BEFORE_LAST).about(
        Group::SortedSet,
        "5.0.0",
        "Takes the member with the lowest score of the first sorted set that has one, or waits.",
    ),
    Command::new("bzpopmax", -3, WRITE | BLOCKING | FAST, bzpopmax).keys(TAKE_BEFORE_LAST).about(
        Group::SortedSet,
        "5.0.0",
        "Takes the member with the highest score of the first sorted set that has one, or waits.",
    ),
    Command::new("bzmpop", -5, WRITE | BLOCKING | MOVABLE_KEYS, bzmpop)
        .keys(&[Keys::counted("RW access delete", 2)])
        .about(
            Group::SortedSet,
            "7.0.0",
            "Takes members from the first sorted set that has some, or waits for some.",
        ),
];

/// The end from which members are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Min,
    Max,
}

fn end_of(word: &[u8]) -> Result<End, Stop> {
    match word {
        word if is(word, "min") => Ok(End::Min),
        word if is(word, "max") => Ok(End::Max),
        _ => Err(stop::SYNTAX),
    }
}

/// Takes members from an end, and writes them without the beginning of an array.
fn take(
    context: &mut Context<'_>,
    mut set: SortedSet<'_>,
    end: End,
    count: u64,
    is_pair: bool,
) -> Done {
    let Context { objects, reply, .. } = context;
    let ranks = match end {
        End::Min => 0..count,
        End::Max => set.len() - count..set.len(),
    };
    set.visit(objects, ranks.clone(), end == End::Max, |score, member| {
        write_member(reply, member, score, true, is_pair);
        true
    })?;
    set.remove_ranks(objects, ranks)?;
    let name = if end == End::Min { "zpopmin" } else { "zpopmax" };
    objects.event(Kinds::SORTED_SET, name, set.key());
    set.save(objects)
}

fn pop(context: &mut Context<'_>, arguments: Arguments<'_>, end: End) -> Done {
    if arguments.len() > 3 {
        return Err(stop::SYNTAX);
    }
    let wanted = arguments.get(2).map(bounds::positive).transpose()?;
    let is_pair = wanted.is_some() && context.reply.version() == Version::Three;
    let Some(set) = SortedSet::find(&mut context.objects, &arguments[1])? else {
        context.reply.array(0);
        return Ok(());
    };
    let count = wanted.unwrap_or(1).min(set.len());
    context.reply.array(if is_pair { count as usize } else { 2 * count as usize });
    if count == 0 {
        return Ok(());
    }
    take(context, set, end, count, is_pair)
}

fn zpopmin(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    pop(context, arguments, End::Min)
}

fn zpopmax(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    pop(context, arguments, End::Max)
}

fn pop_or_wait(context: &mut Context<'_>, arguments: Arguments<'_>, end: End) -> Done {
    let last = arguments.len() - 1;
    let deadline = deadline(context, &arguments[last])?;
    let keys = from(arguments, 1).take(last - 1);
    for key in keys.clone() {
        if let Some(set) = SortedSet::find(&mut context.objects, key)? {
            context.reply.array(3);
            context.reply.string(key);
            return take(context, set, end, 1, false);
        }
    }
    wait(keys, Kind::SortedSet, deadline, true)
}

fn bzpopmin(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    pop_or_wait(context, arguments, End::Min)
}

fn bzpopmax(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    pop_or_wait(context, arguments, End::Max)
}

/// Takes members from the first sorted set that has some; returns whether there was one.
fn take_first(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    several: &Several,
    end: End,
) -> Result<bool, Stop> {
    for key in several.keys(arguments) {
        if let Some(set) = SortedSet::find(&mut context.objects, key)? {
            let count = several.count.min(set.len());
            context.reply.array(2);
            context.reply.string(key);
            context.reply.array(count as usize);
            take(context, set, end, count, true)?;
            return Ok(true);
        }
    }
    Ok(false)
}

fn zmpop(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (several, end) = Several::of(arguments, 1, end_of)?;
    if !take_first(context, arguments, &several, end)? {
        context.reply.null_array();
    }
    Ok(())
}

fn bzmpop(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (several, end) = Several::of(arguments, 2, end_of)?;
    let deadline = deadline(context, &arguments[1])?;
    if take_first(context, arguments, &several, end)? {
        return Ok(());
    }
    let keys = several.keys(arguments);
    wait(keys, Kind::SortedSet, deadline, true)
}
