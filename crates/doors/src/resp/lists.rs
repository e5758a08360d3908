//! Commands about lists. The file `lists_moving.rs` has the commands that move elements or wait.

use super::bounds::{self, integer};
use super::commands::{Command, DENYOOM, FAST, Group, Keys, READONLY, WRITE};
use super::context::{Context, from, is};
use super::events::Kinds;
use super::list::{self, End, List};
use super::list_in_place;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::transaction::Transaction;

const INSERT: &[Keys] = &[Keys::one("RW insert", 1)];
const UPDATE: &[Keys] = &[Keys::one("RW update", 1)];
const DELETE: &[Keys] = &[Keys::one("RW delete", 1)];
const TAKE: &[Keys] = &[Keys::one("RW access delete", 1)];
const READ: &[Keys] = &[Keys::one("RO access", 1)];

pub(super) const COMMANDS: &[Command] = &[
    Command::new("lpush", -3, WRITE | DENYOOM | FAST, lpush).keys(INSERT).about(
        Group::List,
        "1.0.0",
        "Adds elements at the left end of a list, which is made if there is none.",
    ),
    Command::new("rpush", -3, WRITE | DENYOOM | FAST, rpush).keys(INSERT).about(
        Group::List,
        "1.0.0",
        "Adds elements at the right end of a list, which is made if there is none.",
    ),
    Command::new("lpushx", -3, WRITE | DENYOOM | FAST, lpushx).keys(INSERT).about(
        Group::List,
        "2.2.0",
        "Adds elements at the left end of a list if there is one.",
    ),
    Command::new("rpushx", -3, WRITE | DENYOOM | FAST, rpushx).keys(INSERT).about(
        Group::List,
        "2.2.0",
        "Adds elements at the right end of a list if there is one.",
    ),
    Command::new("lpop", -2, WRITE | FAST, lpop).keys(TAKE).about(
        Group::List,
        "1.0.0",
        "Takes elements from the left end of a list.",
    ),
    Command::new("rpop", -2, WRITE | FAST, rpop).keys(TAKE).about(
        Group::List,
        "1.0.0",
        "Takes elements from the right end of a list.",
    ),
    Command::new("llen", 2, READONLY | FAST, llen).keys(&[Keys::one("RO", 1)]).about(
        Group::List,
        "1.0.0",
        "Returns the number of elements of a list.",
    ),
    Command::new("lindex", 3, READONLY, lindex).keys(READ).about(
        Group::List,
        "1.0.0",
        "Returns the element at a place of a list.",
    ),
    Command::new("lset", 4, WRITE | DENYOOM, lset).keys(UPDATE).about(
        Group::List,
        "1.0.0",
        "Writes an element in place of another one.",
    ),
    Command::new("lrange", 4, READONLY, lrange).keys(READ).about(
        Group::List,
        "1.0.0",
        "Returns a part of a list.",
    ),
    Command::new("linsert", 5, WRITE | DENYOOM, linsert).keys(INSERT).about(
        Group::List,
        "2.2.0",
        "Adds an element before or behind another one.",
    ),
    Command::new("lrem", 4, WRITE, lrem).keys(DELETE).about(
        Group::List,
        "1.0.0",
        "Removes elements that are equal to a string.",
    ),
    Command::new("ltrim", 4, WRITE, ltrim).keys(DELETE).about(
        Group::List,
        "1.0.0",
        "Removes all elements outside of a part of a list.",
    ),
    Command::new("lpos", -3, READONLY, lpos).keys(READ).about(
        Group::List,
        "6.0.6",
        "Returns the places of elements that are equal to a string.",
    ),
];

fn push(context: &mut Context<'_>, arguments: Arguments<'_>, end: End, makes: bool) -> Done {
    let key = &arguments[1];
    let objects = &mut context.objects;
    list::check(objects, from(arguments, 2))?;
    if arguments.len() == 3
        && let Some(length) = list_in_place::push(objects, key, end, &arguments[2])?
    {
        context.reply.integer(length as i64);
        objects.event(Kinds::LIST, end.pushed(), key);
        context.signal(key);
        return Ok(());
    }
    let mut list = match List::find(objects, key)? {
        Some(list) => list,
        None if makes => List::new(objects, key),
        None => {
            context.reply.integer(0);
            return Ok(());
        }
    };
    for element in from(arguments, 2) {
        list.push(objects, end, element)?;
    }
    context.reply.integer(list.len() as i64);
    list.save(objects)?;
    objects.event(Kinds::LIST, end.pushed(), key);
    context.signal(key);
    Ok(())
}

fn lpush(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    push(context, arguments, End::Left, true)
}

fn rpush(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    push(context, arguments, End::Right, true)
}

fn lpushx(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    push(context, arguments, End::Left, false)
}

fn rpushx(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    push(context, arguments, End::Right, false)
}

/// Takes elements from an end, with an array of them as the reply. The list has some.
pub(super) fn take(context: &mut Context<'_>, mut list: List<'_>, end: End, count: u64) -> Done {
    let Context { objects, reply, .. } = context;
    let (length, count) = (list.len(), count.min(list.len()));
    let places = match end {
        End::Left => 0..count,
        End::Right => length - count..length,
    };
    reply.array(count as usize);
    list.visit(objects, places.clone(), end == End::Right, |element| {
        reply.string(element);
        true
    })?;
    list.remove(objects, places)?;
    objects.event(Kinds::LIST, end.popped(), list.key());
    list.save(objects)
}

/// Takes one element from an end. The list has some.
pub(super) fn take_one(
    context: &mut Context<'_>,
    mut list: List<'_>,
    end: End,
) -> Result<Vec<u8>, Stop> {
    let objects = &mut context.objects;
    let element = list.pop(objects, end)?;
    objects.event(Kinds::LIST, end.popped(), list.key());
    list.save(objects)?;
    Ok(element)
}

fn pop(context: &mut Context<'_>, arguments: Arguments<'_>, end: End, name: &str) -> Done {
    if arguments.len() > 3 {
        return Err(stop::wrong_arity(name));
    }
    let count = arguments.get(2).map(bounds::positive).transpose()?;
    let (Context { objects, reply, .. }, key) = (&mut *context, &arguments[1]);
    let is_done = count.is_none() && list_in_place::pop(objects, key, end, |it| reply.string(it))?;
    if is_done {
        objects.event(Kinds::LIST, end.popped(), key);
        return Ok(());
    }
    let list = List::find(objects, key)?;
    match (list, count) {
        (None, None) => context.reply.null(),
        (None, Some(_)) => context.reply.null_array(),
        (Some(_), Some(0)) => context.reply.array(0),
        (Some(list), Some(count)) => take(context, list, end, count)?,
        (Some(list), None) => {
            let element = take_one(context, list, end)?;
            context.reply.string(&element);
        }
    }
    Ok(())
}

fn lpop(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    pop(context, arguments, End::Left, "lpop")
}

fn rpop(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    pop(context, arguments, End::Right, "rpop")
}

fn llen(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let list = List::read(&mut context.objects, &arguments[1])?;
    context.reply.integer(list.map_or(0, |list| list.len() as i64));
    Ok(())
}

fn lindex(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let Some(list) = List::read(&mut context.objects, &arguments[1])? else {
        context.reply.null();
        return Ok(());
    };
    match bounds::place(integer(&arguments[2])?, list.len()) {
        Some(place) => {
            let element = list.element(&mut context.objects, place)?;
            context.reply.string(&element);
        }
        None => context.reply.null(),
    }
    Ok(())
}

fn lset(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let objects = &mut context.objects;
    let Some(mut list) = List::find(objects, &arguments[1])? else {
        return Err(stop::NO_SUCH_KEY);
    };
    let index = integer(&arguments[2])?;
    let place = bounds::place(index, list.len()).ok_or(stop::OUT_OF_RANGE)?;
    list::check(objects, from(arguments, 3))?;
    list.replace(objects, place, &arguments[3])?;
    list.save(objects)?;
    objects.event(Kinds::LIST, "lset", &arguments[1]);
    context.ok();
    Ok(())
}

fn lrange(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (first, last) = (integer(&arguments[2])?, integer(&arguments[3])?);
    let Context { objects, reply, .. } = context;
    let Some(list) = List::read(objects, &arguments[1])? else {
        reply.array(0);
        return Ok(());
    };
    let places = bounds::places(first, last, list.len());
    reply.array((places.end - places.start) as usize);
    list.visit(objects, places, false, |element| {
        reply.string(element);
        true
    })
}

fn linsert(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let behind = match &arguments[2] {
        word if is(word, "after") => 1,
        word if is(word, "before") => 0,
        _ => return Err(stop::SYNTAX),
    };
    let objects = &mut context.objects;
    let Some(mut list) = List::find(objects, &arguments[1])? else {
        context.reply.integer(0);
        return Ok(());
    };
    let (mut place, mut is_there) = (0, false);
    list.visit(objects, 0..list.len(), false, |element| {
        is_there = *element == arguments[3];
        place += u64::from(!is_there);
        !is_there
    })?;
    if !is_there {
        context.reply.integer(-1);
        return Ok(());
    }
    list::check(objects, from(arguments, 4))?;
    list.insert(objects, place + behind, &arguments[4])?;
    context.reply.integer(list.len() as i64);
    list.save(objects)?;
    objects.event(Kinds::LIST, "linsert", &arguments[1]);
    Ok(())
}

fn lrem(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let count = bounds::signed(&arguments[2])?;
    // In a transaction, all changes are one.
    let is_alone = context.may_wait && !context.is_of_script;
    let bytes_max = if is_alone { 2 * context.objects.value_bytes_max() } else { usize::MAX };
    // If the command is executed again, it may have removed some elements already: the last ones of
    // all that it was to remove.
    let mut removed = context.client().removed;
    let most = if count == 0 { u64::MAX } else { count.unsigned_abs().saturating_sub(removed) };
    let mut found = find_equal(&mut context.objects, arguments, most, count < 0)?;
    while !found.is_empty() {
        let Some(mut list) = List::find(&mut context.objects, &arguments[1])? else { break };
        let rest = list.remove_each(&mut context.objects, &found, bytes_max)?;
        list.save(&mut context.objects)?;
        removed += (found.len() - rest) as u64;
        found.truncate(rest);
        if rest > 0 {
            // One list of changes has no room for all pages. Each leaves a list without some of
            // the elements.
            context.commit()?;
            context.client().removed = removed;
            let database = context.objects.database;
            context.state.first_part = Some((database, arguments[1].to_vec()));
        }
    }
    context.reply.integer(removed as i64);
    if removed > 0 {
        context.objects.event(Kinds::LIST, "lrem", &arguments[1]);
    }
    Ok(())
}

/// Returns the places of the elements that `LREM` removes: at most so many, from the begin or from
/// the end.
fn find_equal(
    objects: &mut Transaction<'_>,
    arguments: Arguments<'_>,
    most: u64,
    is_reverse: bool,
) -> Result<Vec<u64>, Stop> {
    let (mut found, mut seen) = (Vec::new(), 0);
    let Some(list) = List::find(objects, &arguments[1])?.filter(|_| most > 0) else {
        return Ok(found);
    };
    let length = list.len();
    list.visit(objects, 0..length, is_reverse, |element| {
        if *element == arguments[3] {
            found.push(if is_reverse { length - 1 - seen } else { seen });
        }
        seen += 1;
        (found.len() as u64) < most
    })?;
    if is_reverse {
        found.reverse();
    }
    Ok(found)
}

fn ltrim(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (first, last) = (integer(&arguments[2])?, integer(&arguments[3])?);
    let objects = &mut context.objects;
    if let Some(mut list) = List::find(objects, &arguments[1])? {
        let places = bounds::places(first, last, list.len());
        list.remove(objects, places.end..list.len())?;
        list.remove(objects, 0..places.start)?;
        objects.event(Kinds::LIST, "ltrim", &arguments[1]);
        list.save(objects)?;
    }
    context.ok();
    Ok(())
}

/// The options of `LPOS`.
struct Search {
    rank: i64,
    count: Option<u64>,
    compared_max: u64,
}

impl Search {
    fn of(arguments: Arguments<'_>) -> Result<Search, Stop> {
        let mut search = Search { rank: 1, count: None, compared_max: 0 };
        let mut index = 3;
        while let Some(option) = arguments.get(index) {
            let Some(value) = arguments.get(index + 1) else { return Err(stop::SYNTAX) };
            if is(option, "rank") {
                search.rank = bounds::signed(value)?;
                if search.rank == 0 {
                    return Err(Stop::error(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                         second ... or use negative to start from the end of the list",
                    ));
                }
            } else if is(option, "count") {
                let error = Stop::error("ERR COUNT can't be negative");
                search.count = Some(bounds::at_least(0, value, error)?);
            } else if is(option, "maxlen") {
                let error = Stop::error("ERR MAXLEN can't be negative");
                search.compared_max = bounds::at_least(0, value, error)?;
            } else {
                return Err(stop::SYNTAX);
            }
            index += 2;
        }
        Ok(search)
    }
}

fn lpos(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let Search { rank, count, compared_max } = Search::of(arguments)?;
    let Context { objects, reply, .. } = context;
    let mut found = Vec::new();
    if let Some(list) = List::read(objects, &arguments[1])? {
        let (length, is_reverse) = (list.len(), rank < 0);
        let compared = if compared_max == 0 { length } else { compared_max.min(length) };
        let places = if is_reverse { length - compared..length } else { 0..compared };
        let wanted = match count {
            Some(0) => u64::MAX,
            count => count.unwrap_or(1),
        };
        let (mut seen, mut matches) = (0, 0);
        list.visit(objects, places, is_reverse, |element| {
            if *element == arguments[2] {
                matches += 1;
                if matches >= rank.unsigned_abs() {
                    found.push(if is_reverse { length - 1 - seen } else { seen });
                }
            }
            seen += 1;
            (found.len() as u64) < wanted
        })?;
    }
    match (count, found.first()) {
        (None, None) => reply.null(),
        (None, Some(place)) => reply.integer(*place as i64),
        (Some(_), _) => {
            reply.array(found.len());
            for place in found {
                reply.integer(place as i64);
            }
        }
    }
    Ok(())
}
