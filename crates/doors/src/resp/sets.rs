//! Commands about sets.

use super::bounds;
use super::collection::{self, INTSET};
use super::commands::{Command, DENYOOM, FAST, Group, Keys, READONLY, WRITE};
use super::context::{Context, from};
use super::events::Kinds;
use super::parser::Arguments;
use super::random::{self, Choice};
use super::scan;
use super::set::{FORM, Set};
use super::stop::{self, Done, Stop};
use super::store::Kind;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("sadd", -3, WRITE | DENYOOM | FAST, sadd)
        .keys(&[Keys::one("RW insert", 1)])
        .about(Group::Set, "1.0.0", "Adds members to a set; returns how many are new."),
    Command::new("srem", -3, WRITE | FAST, srem).keys(&[Keys::one("RW delete", 1)]).about(
        Group::Set,
        "1.0.0",
        "Removes members from a set; returns how many there were.",
    ),
    Command::new("smembers", 2, READONLY, smembers)
        .keys(&[Keys::one("RO access", 1)])
        .tips(&["nondeterministic_output_order"])
        .about(Group::Set, "1.0.0", "Returns all members of a set."),
    Command::new("sismember", 3, READONLY | FAST, sismember).keys(&[Keys::one("RO", 1)]).about(
        Group::Set,
        "1.0.0",
        "Tells whether a set has a member.",
    ),
    Command::new("smismember", -3, READONLY | FAST, smismember)
        .keys(&[Keys::one("RO access", 1)])
        .about(Group::Set, "6.2.0", "Tells which of several members a set has."),
    Command::new("scard", 2, READONLY | FAST, scard).keys(&[Keys::one("RO", 1)]).about(
        Group::Set,
        "1.0.0",
        "Returns the number of members of a set.",
    ),
    Command::new("spop", -2, WRITE | FAST, spop)
        .keys(&[Keys::one("RW access delete", 1)])
        .tips(&["nondeterministic_output"])
        .about(Group::Set, "1.0.0", "Removes members of a set that are chosen by chance."),
    Command::new("srandmember", -2, READONLY, srandmember)
        .keys(&[Keys::one("RO access", 1)])
        .tips(&["nondeterministic_output"])
        .about(Group::Set, "1.0.0", "Returns members of a set that are chosen by chance."),
    Command::new("smove", 4, WRITE | FAST, smove)
        .keys(&[Keys::one("RW access delete", 1), Keys::one("RW insert", 2)])
        .about(Group::Set, "1.0.0", "Moves a member from one set to another."),
    Command::new("sscan", -3, READONLY, sscan)
        .keys(&[Keys::one("RO access", 1)])
        .tips(&["nondeterministic_output"])
        .about(Group::Set, "2.8.0", "Returns some members of a set, from a cursor on."),
];

fn sadd(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (key, count) = (&arguments[1], arguments.len() as u64 - 2);
    let objects = &mut context.objects;
    let mut set = match Set::find(objects, key)? {
        Some(mut set) => {
            set.reserve(count);
            set
        }
        None => Set::new(objects, key, &arguments[2], count),
    };
    for member in from(arguments, 2) {
        FORM.check(objects, member, &[])?;
    }
    let mut new = 0;
    for member in from(arguments, 2) {
        new += i64::from(set.add(objects, member)?);
    }
    if new > 0 {
        set.collection.close(objects)?;
        objects.event(Kinds::SET, "sadd", key);
    }
    context.reply.integer(new);
    Ok(())
}

fn srem(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let objects = &mut context.objects;
    let mut removed = 0;
    if let Some(mut set) = Set::find(objects, &arguments[1])? {
        for member in from(arguments, 2) {
            removed += i64::from(set.collection.tree().remove(objects, member)?);
        }
        if removed > 0 {
            objects.event(Kinds::SET, "srem", &arguments[1]);
            set.collection.close(objects)?;
        }
    }
    context.reply.integer(removed);
    Ok(())
}

fn smembers(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let Context { objects, reply, .. } = context;
    let Some(set) = Set::to_read(objects, &arguments[1])? else {
        reply.set(0);
        return Ok(());
    };
    reply.set(set.len()? as usize);
    show_all(context, &set)
}

/// Shows all members, in their order.
fn show_all(context: &mut Context<'_>, set: &Set<'_>) -> Done {
    let Context { objects, reply, .. } = context;
    if set.collection.encoding == INTSET {
        set.members(objects)?.iter().for_each(|member| reply.string(member));
        return Ok(());
    }
    let mut items = set.collection.cursor(objects, 0)?;
    while let Some((member, _)) = items.next(objects)? {
        reply.string(member);
    }
    Ok(())
}

fn sismember(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let of = (Kind::Set, FORM);
    let is_there = |value: Option<&[u8]>| value.is_some();
    let is_there =
        collection::look_up(&mut context.objects, &arguments[1], of, &arguments[2], is_there)?;
    context.reply.integer(i64::from(is_there));
    Ok(())
}

fn smismember(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let mut set = Set::to_read(&mut context.objects, &arguments[1])?;
    context.reply.array(arguments.len() - 2);
    for member in from(arguments, 2) {
        let is_there = match &mut set {
            Some(set) => set.has(&mut context.objects, member)?,
            None => false,
        };
        context.reply.integer(i64::from(is_there));
    }
    Ok(())
}

fn scard(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let length = collection::length(&mut context.objects, &arguments[1], Kind::Set, FORM)?;
    context.reply.integer(length as i64);
    Ok(())
}

fn spop(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let Some(count) = arguments.get(2) else { return pop_one(context, key) };
    if arguments.len() > 3 {
        return Err(stop::SYNTAX);
    }
    let count = bounds::positive(count)?;
    let Some(mut set) = Set::find(&mut context.objects, key)? else {
        context.reply.set(0);
        return Ok(());
    };
    let length = set.len()?;
    if count >= length {
        context.reply.set(length as usize);
        show_all(context, &set)?;
        context.objects.event(Kinds::SET, "spop", key);
        context.objects.delete(key)?;
        return Ok(());
    }
    context.reply.set(count as usize);
    let Context { objects, reply, state, .. } = context;
    // From the end, because positions behind a removed member change.
    for position in random::positions(state, count, length).into_iter().rev() {
        if let Some((member, _)) = set.collection.cursor(objects, position)?.next(objects)? {
            reply.string(member);
        }
        set.collection.tree().remove_range(objects, position, 1)?;
    }
    if count > 0 {
        objects.event(Kinds::SET, "spop", key);
        set.collection.close(objects)?;
    }
    Ok(())
}

fn pop_one(context: &mut Context<'_>, key: &[u8]) -> Done {
    let Some(mut set) = Set::find(&mut context.objects, key)? else {
        context.reply.null();
        return Ok(());
    };
    let position = random::below(context.state, set.len()?);
    let Context { objects, reply, .. } = context;
    match set.collection.cursor(objects, position)?.next(objects)? {
        Some((member, _)) => reply.string(member),
        None => reply.null(),
    }
    set.collection.tree().remove_range(objects, position, 1)?;
    objects.event(Kinds::SET, "spop", key);
    set.collection.close(objects)?;
    Ok(())
}

fn srandmember(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len() > 3 {
        return Err(stop::SYNTAX);
    }
    let key = &arguments[1];
    let count = arguments.get(2).map(bounds::signed).transpose()?;
    let set = Set::to_read(&mut context.objects, key)?;
    let Some(set) = set else {
        match count {
            Some(_) => context.reply.array(0),
            None => context.reply.null(),
        }
        return Ok(());
    };
    let length = set.len()?;
    match count {
        None => {
            random::choose(context, &set.collection, &[], Choice::Any(1, length), |reply, it, _| {
                reply.string(it);
            })
        }
        Some(count) => {
            let choice = Choice::of(count, length);
            context.reply.array(choice.shown());
            match choice {
                Choice::All(_) => show_all(context, &set),
                _ => random::choose(context, &set.collection, &[], choice, |reply, member, _| {
                    reply.string(member);
                }),
            }
        }
    }
}

fn smove(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (key, other, member) = (&arguments[1], &arguments[2], &arguments[3]);
    let objects = &mut context.objects;
    let is_moved = match objects.find(key)? {
        None => false,
        Some(_) => move_member(context, key, other, member)?,
    };
    context.reply.integer(i64::from(is_moved));
    Ok(())
}

fn move_member(
    context: &mut Context<'_>,
    key: &[u8],
    other: &[u8],
    member: &[u8],
) -> Result<bool, Stop> {
    let objects = &mut context.objects;
    let Some(mut set) = Set::find(objects, key)? else { return Ok(false) };
    let target = Set::find(objects, other)?;
    if key == other {
        return set.has(objects, member);
    }
    if !set.collection.tree().remove(objects, member)? {
        return Ok(false);
    }
    objects.event(Kinds::SET, "srem", key);
    set.collection.close(objects)?;
    let mut target = match target {
        Some(target) => target,
        None => Set::new(objects, other, member, 1),
    };
    if target.add(objects, member)? {
        target.collection.close(objects)?;
        objects.event(Kinds::SET, "sadd", other);
    }
    Ok(true)
}

fn sscan(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    scan::scan(context, arguments, Kind::Set, FORM)
}
