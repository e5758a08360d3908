//! Commands that move elements between lists, that take them from the first of several lists, or
//! that wait until a list has some.

use super::bounds;
use super::commands::{BLOCKING, Command, DENYOOM, Group, Keys, MOVABLE_KEYS, WRITE};
use super::context::{Context, from, is};
use super::events::Kinds;
use super::list::{End, List};
use super::lists::{take, take_one};
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::store::Kind;
use super::waits::{deadline, wait};

const MOVE: &[Keys] = &[Keys::one("RW access delete", 1), Keys::one("RW insert", 2)];
const TAKE_BEFORE_LAST: &[Keys] = &[Keys::range("RW access delete", 1, -2, 1)];

pub(super) const COMMANDS: &[Command] = &[
    Command::new("lmove", 5, WRITE | DENYOOM, lmove).keys(MOVE).about(
        Group::List,
        "6.2.0",
        "Takes an element from one list and adds it to another one.",
    ),
    Command::new("rpoplpush", 3, WRITE | DENYOOM, rpoplpush).keys(MOVE).about(
        Group::List,
        "1.2.0",
        "Takes the last element of one list and adds it at the left end of another one.",
    ),
    Command::new("lmpop", -4, WRITE | MOVABLE_KEYS, lmpop)
        .keys(&[Keys::counted("RW access delete", 1)])
        .about(Group::List, "7.0.0", "Takes elements from the first list that has some."),
    Command::new("blpop", -3, WRITE | BLOCKING, blpop).keys(TAKE_BEFORE_LAST).about(
        Group::List,
        "2.0.0",
        "Takes the first element of the first list that has one, or waits for one.",
    ),
    Command::new("brpop", -3, WRITE | BLOCKING, brpop).keys(TAKE_BEFORE_LAST).about(
        Group::List,
        "2.0.0",
        "Takes the last element of the first list that has one, or waits for one.",
    ),
    Command::new("blmove", 6, WRITE | DENYOOM | BLOCKING, blmove).keys(MOVE).about(
        Group::List,
        "6.2.0",
        "Takes an element from one list and adds it to another one, or waits for one.",
    ),
    Command::new("brpoplpush", 4, WRITE | DENYOOM | BLOCKING, brpoplpush).keys(MOVE).about(
        Group::List,
        "2.2.0",
        "Takes the last element of one list and adds it to another one, or waits for one.",
    ),
    Command::new("blmpop", -5, WRITE | BLOCKING | MOVABLE_KEYS, blmpop)
        .keys(&[Keys::counted("RW access delete", 2)])
        .about(
            Group::List,
            "7.0.0",
            "Takes elements from the first list that has some, or waits for some.",
        ),
];

fn end_of(word: &[u8]) -> Result<End, Stop> {
    match word {
        word if is(word, "left") => Ok(End::Left),
        word if is(word, "right") => Ok(End::Right),
        _ => Err(stop::SYNTAX),
    }
}

/// Moves an element; returns whether there was one.
fn transfer(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    source_end: End,
    target_end: End,
) -> Result<bool, Stop> {
    let (source, target) = (&arguments[1], &arguments[2]);
    let Some(mut list) = List::find(&mut context.objects, source)? else { return Ok(false) };
    let objects = &mut context.objects;
    let element = if source == target {
        let place = if source_end == End::Left { 0 } else { list.len().saturating_sub(1) };
        let element = list.element(objects, place)?;
        if source_end != target_end {
            list.push(objects, target_end, &element)?;
            let place = if source_end == End::Left { 0 } else { place + 1 };
            list.remove(objects, place..place + 1)?;
        }
        list.save(objects)?;
        objects.event(Kinds::LIST, target_end.pushed(), target);
        objects.event(Kinds::LIST, source_end.popped(), source);
        element
    } else {
        let place = if source_end == End::Left { 0 } else { list.len().saturating_sub(1) };
        let element = list.element(objects, place)?;
        let other = List::find(objects, target)?;
        let mut other = other.unwrap_or_else(|| List::new(objects, target));
        other.push(objects, target_end, &element)?;
        other.save(objects)?;
        objects.event(Kinds::LIST, target_end.pushed(), target);
        take_one(context, list, source_end)?
    };
    context.reply.string(&element);
    context.signal(target);
    Ok(true)
}

fn move_or_null(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    source_end: End,
    target_end: End,
) -> Done {
    if !transfer(context, arguments, source_end, target_end)? {
        context.reply.null();
    }
    Ok(())
}

fn move_or_wait(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    source_end: End,
    target_end: End,
    timeout: &[u8],
) -> Done {
    let deadline = deadline(context, timeout)?;
    if transfer(context, arguments, source_end, target_end)? {
        return Ok(());
    }
    wait(from(arguments, 1).take(1), Kind::List, deadline, false)
}

fn lmove(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (source_end, target_end) = (end_of(&arguments[3])?, end_of(&arguments[4])?);
    move_or_null(context, arguments, source_end, target_end)
}

fn rpoplpush(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    move_or_null(context, arguments, End::Right, End::Left)
}

fn blmove(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (source_end, target_end) = (end_of(&arguments[3])?, end_of(&arguments[4])?);
    move_or_wait(context, arguments, source_end, target_end, &arguments[5])
}

fn brpoplpush(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    move_or_wait(context, arguments, End::Right, End::Left, &arguments[3])
}

/// Takes one element from the first list that has one; the reply is its key and the element.
fn pop_or_wait(context: &mut Context<'_>, arguments: Arguments<'_>, end: End) -> Done {
    let last = arguments.len() - 1;
    let deadline = deadline(context, &arguments[last])?;
    let keys = from(arguments, 1).take(last - 1);
    for key in keys.clone() {
        if let Some(list) = List::find(&mut context.objects, key)? {
            let element = take_one(context, list, end)?;
            context.reply.array(2);
            context.reply.string(key);
            context.reply.string(&element);
            return Ok(());
        }
    }
    wait(keys, Kind::List, deadline, true)
}

fn blpop(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    pop_or_wait(context, arguments, End::Left)
}

fn brpop(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    pop_or_wait(context, arguments, End::Right)
}

/// The arguments of commands that take from the first of several keys: their number, the keys, an
/// end, and how many.
pub(super) struct Several {
    first: usize,
    keys: usize,
    pub(super) count: u64,
}

impl Several {
    /// Reads them. The number of keys has this index.
    pub(super) fn of<T>(
        arguments: Arguments<'_>,
        index: usize,
        end_of: fn(&[u8]) -> Result<T, Stop>,
    ) -> Result<(Several, T), Stop> {
        let error = Stop::error("ERR numkeys should be greater than 0");
        let keys = bounds::at_least(1, &arguments[index], error)?;
        let keys = usize::try_from(keys).map_err(|_| stop::SYNTAX)?;
        let end = index.saturating_add(keys).saturating_add(1);
        let end_word = arguments.get(end).ok_or(stop::SYNTAX)?;
        let parsed = end_of(end_word)?;
        let mut count = None;
        let mut at = end + 1;
        while let Some(option) = arguments.get(at) {
            match arguments.get(at + 1) {
                Some(value) if count.is_none() && is(option, "count") => {
                    let error = Stop::error("ERR count should be greater than 0");
                    count = Some(bounds::at_least(1, value, error)?);
                }
                _ => return Err(stop::SYNTAX),
            }
            at += 2;
        }
        Ok((Several { first: index + 1, keys, count: count.unwrap_or(1) }, parsed))
    }

    /// Returns the keys.
    pub(super) fn keys<'a>(&self, arguments: Arguments<'a>) -> impl Iterator<Item = &'a [u8]> {
        from(arguments, self.first).take(self.keys)
    }
}

/// Takes elements from the first list that has some; returns whether there was one.
fn take_first(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    several: &Several,
    end: End,
) -> Result<bool, Stop> {
    for key in several.keys(arguments) {
        if let Some(list) = List::find(&mut context.objects, key)? {
            context.reply.array(2);
            context.reply.string(key);
            take(context, list, end, several.count)?;
            return Ok(true);
        }
    }
    Ok(false)
}

fn lmpop(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (several, end) = Several::of(arguments, 1, end_of)?;
    if !take_first(context, arguments, &several, end)? {
        context.reply.null_array();
    }
    Ok(())
}

fn blmpop(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (several, end) = Several::of(arguments, 2, end_of)?;
    let deadline = deadline(context, &arguments[1])?;
    if take_first(context, arguments, &several, end)? {
        return Ok(());
    }
    let keys = several.keys(arguments);
    wait(keys, Kind::List, deadline, true)
}
