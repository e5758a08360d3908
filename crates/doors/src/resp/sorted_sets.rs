//! Commands about the members of a sorted set and their scores. The commands that
//! return ranges, combine sets, take members or visit them have files of their own.

use super::bounds;
use super::commands::{Command, DENYOOM, FAST, Group, Keys, READONLY, WRITE};
use super::context::{Context, from, is};
use super::events::Kinds;
use super::parser::Arguments;
use super::random::{below, positions};
use super::score::score;
use super::sorted_set::{self, SortedSet};
use super::stop::{self, Done, Stop};
use super::writer::{Version, Writer};
use std::collections::BTreeSet;

const READ: &[Keys] = &[Keys::one("RO access", 1)];

pub(super) const COMMANDS: &[Command] = &[
    Command::new("zadd", -4, WRITE | DENYOOM | FAST, zadd)
        .keys(&[Keys::one("RW update", 1)])
        .about(Group::SortedSet, "1.2.0", "Adds members with scores, or changes their scores."),
    Command::new("zincrby", 4, WRITE | DENYOOM | FAST, zincrby)
        .keys(&[Keys::one("RW access update", 1)])
        .about(Group::SortedSet, "1.2.0", "Adds a number to the score of a member."),
    Command::new("zrem", -3, WRITE | FAST, zrem).keys(&[Keys::one("RW delete", 1)]).about(
        Group::SortedSet,
        "1.2.0",
        "Removes members.",
    ),
    Command::new("zcard", 2, READONLY | FAST, zcard).keys(&[Keys::one("RO", 1)]).about(
        Group::SortedSet,
        "1.2.0",
        "Returns the number of members.",
    ),
    Command::new("zscore", 3, READONLY | FAST, zscore).keys(READ).about(
        Group::SortedSet,
        "1.2.0",
        "Returns the score of a member.",
    ),
    Command::new("zmscore", -3, READONLY | FAST, zmscore).keys(READ).about(
        Group::SortedSet,
        "6.2.0",
        "Returns the scores of members.",
    ),
    Command::new("zrank", -3, READONLY | FAST, zrank).keys(READ).about(
        Group::SortedSet,
        "2.0.0",
        "Returns the number of members before one.",
    ),
    Command::new("zrevrank", -3, READONLY | FAST, zrevrank).keys(READ).about(
        Group::SortedSet,
        "2.0.0",
        "Returns the number of members behind one.",
    ),
    Command::new("zrandmember", -2, READONLY, zrandmember)
        .keys(READ)
        .tips(&["nondeterministic_output"])
        .about(Group::SortedSet, "6.2.0", "Returns members by chance."),
];

/// Writes a member, with its score if that is wanted.
pub(super) fn write_member(
    reply: &mut Writer<'_>,
    member: &[u8],
    score: f64,
    has_score: bool,
    is_pair: bool,
) {
    if has_score && is_pair {
        reply.array(2);
    }
    reply.string(member);
    if has_score {
        reply.double(score);
    }
}

/// Begins an array of members. With scores it is one of pairs in version 3, and flat in version 2.
pub(super) fn begin_members(reply: &mut Writer<'_>, count: usize, has_scores: bool) -> bool {
    let is_pair = has_scores && reply.version() == Version::Three;
    reply.array(if has_scores && !is_pair { 2 * count } else { count });
    is_pair
}

/// The options of `ZADD`.
#[derive(Clone, Copy, Default)]
pub(super) struct Options {
    only_new: bool,
    only_old: bool,
    only_greater: bool,
    only_less: bool,
    counts_changed: bool,
    increments: bool,
}

impl Options {
    /// Reads options; returns the index of the first score, too.
    fn of(arguments: Arguments<'_>, mut options: Options) -> Result<(Options, usize), Stop> {
        let mut index = 2;
        while let Some(option) = arguments.get(index) {
            match option {
                it if is(it, "nx") => options.only_new = true,
                it if is(it, "xx") => options.only_old = true,
                it if is(it, "gt") => options.only_greater = true,
                it if is(it, "lt") => options.only_less = true,
                it if is(it, "ch") => options.counts_changed = true,
                it if is(it, "incr") => options.increments = true,
                _ => break,
            }
            index += 1;
        }
        let rest = arguments.len() - index;
        if rest == 0 || !rest.is_multiple_of(2) {
            return Err(stop::SYNTAX);
        }
        let Options { only_new, only_old, only_greater, only_less, .. } = options;
        if only_new && only_old {
            let text = "ERR XX and NX options at the same time are not compatible";
            return Err(Stop::error(text));
        }
        if (only_new && (only_greater || only_less)) || (only_greater && only_less) {
            let text = "ERR GT, LT, and/or NX options at the same time are not compatible";
            return Err(Stop::error(text));
        }
        if options.increments && rest > 2 {
            let text = "ERR INCR option supports a single increment-element pair";
            return Err(Stop::error(text));
        }
        Ok((options, index))
    }
}

impl Options {
    /// Reads the options of `GEOADD`; returns the index of the first place, too.
    pub(super) fn of_places(arguments: Arguments<'_>) -> Result<(Options, usize), Stop> {
        let mut options = Options::default();
        let mut index = 2;
        while let Some(option) = arguments.get(index) {
            match option {
                it if is(it, "nx") => options.only_new = true,
                it if is(it, "xx") => options.only_old = true,
                it if is(it, "ch") => options.counts_changed = true,
                _ => break,
            }
            index += 1;
        }
        let rest = arguments.len() - index;
        if rest == 0 || !rest.is_multiple_of(3) || options.only_new && options.only_old {
            return Err(stop::SYNTAX);
        }
        Ok((options, index))
    }
}

/// The effect of a score on a member.
enum Effect {
    Added,
    Changed,
    /// It has the score already.
    Same,
    /// An option forbids it.
    Refused,
}

/// Gives a member a score; returns that score, too.
fn update(
    context: &mut Context<'_>,
    set: &mut SortedSet<'_>,
    options: Options,
    mut score: f64,
    member: &[u8],
) -> Result<(Effect, f64), Stop> {
    let objects = &mut context.objects;
    let sought = set.seek(objects, member)?;
    let Some(before) = sought.score else {
        if options.only_old {
            return Ok((Effect::Refused, score));
        }
        set.insert(objects, score, member, sought)?;
        return Ok((Effect::Added, score));
    };
    if options.only_new {
        return Ok((Effect::Refused, before));
    }
    if options.increments {
        score += before;
        if score.is_nan() {
            return Err(Stop::error("ERR resulting score is not a number (NaN)"));
        }
    }
    let is_refused =
        (options.only_less && score >= before) || (options.only_greater && score <= before);
    if is_refused {
        return Ok((Effect::Refused, before));
    }
    if score == before {
        return Ok((Effect::Same, before));
    }
    set.insert(objects, score, member, sought)?;
    Ok((Effect::Changed, score))
}

fn add(context: &mut Context<'_>, arguments: Arguments<'_>, options: Options) -> Done {
    let (options, first) = Options::of(arguments, options)?;
    let members = from(arguments, first + 1).step_by(2);
    let scored = from(arguments, first).step_by(2).zip(members.clone());
    let scored = scored.map(|(text, member)| Ok((score(text)?, member)));
    let scored = scored.collect::<Result<Vec<_>, Stop>>()?;
    sorted_set::check(&context.objects, members)?;
    add_members(context, &arguments[1], options, &scored)
}

/// Adds members that fit into the store, or changes their scores. Replies, too.
pub(super) fn add_members(
    context: &mut Context<'_>,
    key: &[u8],
    options: Options,
    scored: &[(f64, &[u8])],
) -> Done {
    let found = SortedSet::to_add(&mut context.objects, key)?;
    let mut set = match found {
        None if options.only_old => {
            match options.increments {
                true => context.reply.null(),
                false => context.reply.integer(0),
            }
            return Ok(());
        }
        found => found.unwrap_or_else(|| SortedSet::new(&context.objects, key)),
    };
    set.reserve(scored.len());
    let (mut added, mut changed, mut last) = (0, 0, None);
    for (score, member) in scored {
        let (effect, score) = update(context, &mut set, options, *score, member)?;
        added += i64::from(matches!(effect, Effect::Added));
        changed += i64::from(matches!(effect, Effect::Changed));
        last = (!matches!(effect, Effect::Refused)).then_some(score);
    }
    if added + changed > 0 {
        set.save(&mut context.objects)?;
        let name = if options.increments { "zincr" } else { "zadd" };
        context.objects.event(Kinds::SORTED_SET, name, key);
        context.signal(key);
    }
    match (options.increments, last) {
        (true, Some(score)) => context.reply.double(score),
        (true, None) => context.reply.null(),
        (false, _) if options.counts_changed => context.reply.integer(added + changed),
        (false, _) => context.reply.integer(added),
    }
    Ok(())
}

fn zadd(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    add(context, arguments, Options::default())
}

fn zincrby(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    add(context, arguments, Options { increments: true, ..Options::default() })
}

fn zrem(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let objects = &mut context.objects;
    let mut count = 0;
    if let Some(mut set) = SortedSet::find(objects, &arguments[1])? {
        for member in from(arguments, 2) {
            if let Some(score) = set.score(objects, member)? {
                set.remove(objects, score, member)?;
                count += 1;
            }
        }
        if count > 0 {
            objects.event(Kinds::SORTED_SET, "zrem", &arguments[1]);
            set.save(objects)?;
        }
    }
    context.reply.integer(count);
    Ok(())
}

fn zcard(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let set = SortedSet::read(&mut context.objects, &arguments[1])?;
    context.reply.integer(set.map_or(0, |set| set.len() as i64));
    Ok(())
}

fn write_score(reply: &mut Writer<'_>, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

fn zscore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let Context { objects, reply, .. } = context;
    let score = match SortedSet::read(objects, &arguments[1])? {
        Some(mut set) => set.score(objects, &arguments[2])?,
        None => None,
    };
    write_score(reply, score);
    Ok(())
}

fn zmscore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let Context { objects, reply, .. } = context;
    let mut set = SortedSet::read(objects, &arguments[1])?;
    reply.array(arguments.len() - 2);
    for member in from(arguments, 2) {
        let score = match &mut set {
            Some(set) => set.score(objects, member)?,
            None => None,
        };
        write_score(reply, score);
    }
    Ok(())
}

fn rank(context: &mut Context<'_>, arguments: Arguments<'_>, is_reverse: bool, name: &str) -> Done {
    if arguments.len() > 4 {
        return Err(stop::wrong_arity(name));
    }
    let has_score = match arguments.get(3) {
        Some(word) if is(word, "withscore") => true,
        Some(_) => return Err(stop::SYNTAX),
        None => false,
    };
    let Context { objects, reply, .. } = context;
    let (mut set, member) = (SortedSet::read(objects, &arguments[1])?, &arguments[2]);
    let score = match &mut set {
        Some(set) => set.score(objects, member)?,
        None => None,
    };
    let (Some(mut set), Some(score)) = (set, score) else {
        match has_score {
            true => reply.null_array(),
            false => reply.null(),
        }
        return Ok(());
    };
    let rank = set.rank(objects, score, member)?;
    let rank = if is_reverse { set.len() - 1 - rank } else { rank };
    if has_score {
        reply.array(2);
    }
    reply.integer(rank as i64);
    if has_score {
        reply.double(score);
    }
    Ok(())
}

fn zrank(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    rank(context, arguments, false, "zrank")
}

fn zrevrank(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    rank(context, arguments, true, "zrevrank")
}

/// Bytes of a reply with members by chance, after which the command is refused. The same member
/// may be returned without end.
const REPLY_BYTES_MAX: usize = 48 << 20;

/// The most members that are drawn.
const ITEMS_MAX: u64 = 1_000_000;

fn zrandmember(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    const OUT_OF_RANGE: Stop = Stop::error("ERR value is out of range");
    let count = arguments.get(2).map(bounds::signed).transpose()?;
    let has_scores = match arguments.get(3) {
        None => false,
        Some(word) if arguments.len() == 4 && is(word, "withscores") => true,
        Some(_) => return Err(stop::SYNTAX),
    };
    if has_scores && count.is_some_and(|count| count.unsigned_abs() > i64::MAX as u64 / 2) {
        return Err(OUT_OF_RANGE);
    }
    let Context { objects, reply, state, .. } = context;
    let Some(set) = SortedSet::read(objects, &arguments[1])? else {
        match count {
            Some(_) => reply.array(0),
            None => reply.null(),
        }
        return Ok(());
    };
    let (ranks, is_pair) = match count {
        None => (BTreeSet::from([below(state, set.len())]), false),
        Some(count @ 0..) => {
            let count = count.unsigned_abs().min(set.len());
            (positions(state, count, set.len()), begin_members(reply, count as usize, has_scores))
        }
        Some(count) => {
            let count = count.unsigned_abs();
            if count > ITEMS_MAX {
                return Err(OUT_OF_RANGE);
            }
            let is_pair = begin_members(reply, count as usize, has_scores);
            let begin = reply.length();
            for _ in 0..count {
                let rank = below(state, set.len());
                set.visit(objects, rank..rank + 1, false, |score, member| {
                    write_member(reply, member, score, has_scores, is_pair);
                    true
                })?;
                if reply.length() - begin > REPLY_BYTES_MAX {
                    return Err(OUT_OF_RANGE);
                }
            }
            return Ok(());
        }
    };
    for rank in ranks {
        set.visit(objects, rank..rank + 1, false, |score, member| {
            write_member(reply, member, score, has_scores, is_pair);
            true
        })?;
    }
    Ok(())
}
