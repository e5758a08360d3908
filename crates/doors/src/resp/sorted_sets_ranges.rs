//! Commands about the members of a sorted set in a range of ranks, scores or bytes.

use super::bounds::{self, integer};
use super::commands::{Command, DENYOOM, FAST, Group, Keys, READONLY, WRITE};
use super::context::{Context, is};
use super::events::Kinds;
use super::parser::Arguments;
use super::score::Cuts;
use super::sorted_set::{self, SortedSet};
use super::sorted_sets::{begin_members, write_member};
use super::stop::{self, Done, Stop};
use super::store::Kind;
use super::transaction::Transaction;
use std::ops::Range;

const READ: &[Keys] = &[Keys::one("RO access", 1)];
const DELETE: &[Keys] = &[Keys::one("RW delete", 1)];

pub(super) const COMMANDS: &[Command] = &[
    Command::new("zcount", 4, READONLY | FAST, zcount).keys(READ).about(
        Group::SortedSet,
        "2.0.0",
        "Counts the members with scores in a range.",
    ),
    Command::new("zlexcount", 4, READONLY | FAST, zlexcount).keys(READ).about(
        Group::SortedSet,
        "2.8.9",
        "Counts the members between two strings.",
    ),
    Command::new("zrange", -4, READONLY, zrange).keys(READ).about(
        Group::SortedSet,
        "1.2.0",
        "Returns the members in a range.",
    ),
    Command::new("zrangestore", -5, WRITE | DENYOOM, zrangestore)
        .keys(&[Keys::one("OW update", 1), Keys::one("RO access", 2)])
        .about(Group::SortedSet, "6.2.0", "Writes the members in a range into another key."),
    Command::new("zrevrange", -4, READONLY, zrevrange).keys(READ).about(
        Group::SortedSet,
        "1.2.0",
        "Returns the members in a range of ranks, backwards.",
    ),
    Command::new("zrangebyscore", -4, READONLY, zrangebyscore).keys(READ).about(
        Group::SortedSet,
        "1.0.5",
        "Returns the members with scores in a range.",
    ),
    Command::new("zrevrangebyscore", -4, READONLY, zrevrangebyscore).keys(READ).about(
        Group::SortedSet,
        "2.2.0",
        "Returns the members with scores in a range, backwards.",
    ),
    Command::new("zrangebylex", -4, READONLY, zrangebylex).keys(READ).about(
        Group::SortedSet,
        "2.8.9",
        "Returns the members between two strings.",
    ),
    Command::new("zrevrangebylex", -4, READONLY, zrevrangebylex).keys(READ).about(
        Group::SortedSet,
        "2.8.9",
        "Returns the members between two strings, backwards.",
    ),
    Command::new("zremrangebyrank", 4, WRITE, zremrangebyrank).keys(DELETE).about(
        Group::SortedSet,
        "2.0.0",
        "Removes the members in a range of ranks.",
    ),
    Command::new("zremrangebyscore", 4, WRITE, zremrangebyscore).keys(DELETE).about(
        Group::SortedSet,
        "1.2.0",
        "Removes the members with scores in a range.",
    ),
    Command::new("zremrangebylex", 4, WRITE, zremrangebylex).keys(DELETE).about(
        Group::SortedSet,
        "2.8.9",
        "Removes the members between two strings.",
    ),
];

/// The property by which a range is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// Members of a sorted set that lie beside each other.
enum Members {
    Ranks(i64, i64),
    Between(Cuts),
}

impl Members {
    fn of(by: By, first: &[u8], last: &[u8]) -> Result<Members, Stop> {
        Ok(match by {
            By::Rank => Members::Ranks(integer(first)?, integer(last)?),
            By::Score => Members::Between(Cuts::of_scores(first, last)?),
            By::Lex => Members::Between(Cuts::of_members(first, last)?),
        })
    }

    /// Returns their ranks. In reverse, ranks are counted from the end.
    fn ranks(
        &self,
        objects: &mut Transaction<'_>,
        set: &mut SortedSet<'_>,
        is_reverse: bool,
    ) -> Result<Range<u64>, Stop> {
        match self {
            Members::Ranks(first, last) => {
                let ranks = bounds::places(*first, *last, set.len());
                Ok(match is_reverse && !ranks.is_empty() {
                    true => set.len() - ranks.end..set.len() - ranks.start,
                    false => ranks,
                })
            }
            Members::Between(Cuts { begin, end }) => {
                let (begin, end) = (set.before(objects, begin)?, set.before(objects, end)?);
                Ok(begin..end.max(begin))
            }
        }
    }
}

fn count(context: &mut Context<'_>, arguments: Arguments<'_>, by: By) -> Done {
    let members = Members::of(by, &arguments[2], &arguments[3])?;
    let Context { objects, reply, .. } = context;
    let count = match SortedSet::read(objects, &arguments[1])? {
        Some(mut set) => {
            let ranks = members.ranks(objects, &mut set, false)?;
            ranks.end - ranks.start
        }
        None => 0,
    };
    reply.integer(count as i64);
    Ok(())
}

fn zcount(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    count(context, arguments, By::Score)
}

fn zlexcount(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    count(context, arguments, By::Lex)
}

fn remove(context: &mut Context<'_>, arguments: Arguments<'_>, by: By) -> Done {
    let members = Members::of(by, &arguments[2], &arguments[3])?;
    let Context { objects, reply, .. } = context;
    let mut count = 0;
    if let Some(mut set) = SortedSet::find(objects, &arguments[1])? {
        let ranks = members.ranks(objects, &mut set, false)?;
        count = ranks.end - ranks.start;
        if count > 0 {
            set.remove_ranks(objects, ranks)?;
            let name = match by {
                By::Rank => "zremrangebyrank",
                By::Score => "zremrangebyscore",
                By::Lex => "zremrangebylex",
            };
            objects.event(Kinds::SORTED_SET, name, &arguments[1]);
            set.save(objects)?;
        }
    }
    reply.integer(count as i64);
    Ok(())
}

fn zremrangebyrank(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    remove(context, arguments, By::Rank)
}

fn zremrangebyscore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    remove(context, arguments, By::Score)
}

fn zremrangebylex(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    remove(context, arguments, By::Lex)
}

/// The options of commands that return a range.
struct Options {
    by: By,
    is_reverse: bool,
    has_scores: bool,
    /// The members that are skipped, and the number of those behind them; a negative one stands
    /// for all.
    limit: (i64, i64),
}

impl Options {
    /// Reads the options from an index on. The client cannot choose a property that is given here.
    fn of(
        arguments: Arguments<'_>,
        first: usize,
        stores: bool,
        fixed_by: Option<By>,
        fixed_reverse: Option<bool>,
    ) -> Result<Options, Stop> {
        let (mut by, mut is_reverse) = (fixed_by, fixed_reverse);
        let (mut has_scores, mut limit) = (false, (0, -1));
        let mut index = first;
        while let Some(option) = arguments.get(index) {
            match option {
                it if !stores && is(it, "withscores") => has_scores = true,
                it if is(it, "limit") && index + 2 < arguments.len() => {
                    limit = (integer(&arguments[index + 1])?, integer(&arguments[index + 2])?);
                    index += 2;
                }
                it if is_reverse.is_none() && is(it, "rev") => is_reverse = Some(true),
                it if by.is_none() && is(it, "bylex") => by = Some(By::Lex),
                it if by.is_none() && is(it, "byscore") => by = Some(By::Score),
                _ => return Err(stop::SYNTAX),
            }
            index += 1;
        }
        let (by, is_reverse) = (by.unwrap_or(By::Rank), is_reverse.unwrap_or(false));
        if limit.1 != -1 && by == By::Rank {
            return Err(Stop::error(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                 BYLEX",
            ));
        }
        if has_scores && by == By::Lex {
            let text = "ERR syntax error, WITHSCORES not supported in combination with BYLEX";
            return Err(Stop::error(text));
        }
        Ok(Options { by, is_reverse, has_scores, limit })
    }

    /// Applies the limit to a range of ranks.
    fn limited(&self, ranks: Range<u64>) -> Range<u64> {
        let Range { start, end } = ranks;
        let (Ok(skipped), false) = (u64::try_from(self.limit.0), self.by == By::Rank) else {
            return if self.by == By::Rank { start..end } else { 0..0 };
        };
        let skipped = skipped.min(end - start);
        let count = u64::try_from(self.limit.1).unwrap_or(u64::MAX).min(end - start - skipped);
        match self.is_reverse {
            false => start + skipped..start + skipped + count,
            true => end - skipped - count..end - skipped,
        }
    }

    /// Returns the ranks of the members that are named by the arguments from an index on.
    fn ranks(
        &self,
        objects: &mut Transaction<'_>,
        set: &mut SortedSet<'_>,
        members: &Members,
    ) -> Result<Range<u64>, Stop> {
        Ok(self.limited(members.ranks(objects, set, self.is_reverse)?))
    }

    fn members(&self, arguments: Arguments<'_>, first: usize) -> Result<Members, Stop> {
        let (first, last) = (&arguments[first], &arguments[first + 1]);
        match self.is_reverse && self.by != By::Rank {
            true => Members::of(self.by, last, first),
            false => Members::of(self.by, first, last),
        }
    }
}

fn range(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    by: Option<By>,
    is_reverse: Option<bool>,
) -> Done {
    let options = Options::of(arguments, 4, false, by, is_reverse)?;
    let members = options.members(arguments, 2)?;
    let Context { objects, reply, .. } = context;
    let Some(mut set) = SortedSet::read(objects, &arguments[1])? else {
        reply.array(0);
        return Ok(());
    };
    let ranks = options.ranks(objects, &mut set, &members)?;
    let has_scores = options.has_scores;
    let is_pair = begin_members(reply, (ranks.end - ranks.start) as usize, has_scores);
    set.visit(objects, ranks, options.is_reverse, |score, member| {
        write_member(reply, member, score, has_scores, is_pair);
        true
    })
}

fn zrange(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    range(context, arguments, None, None)
}

fn zrevrange(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    range(context, arguments, Some(By::Rank), Some(true))
}

fn zrangebyscore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    range(context, arguments, Some(By::Score), Some(false))
}

fn zrevrangebyscore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    range(context, arguments, Some(By::Score), Some(true))
}

fn zrangebylex(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    range(context, arguments, Some(By::Lex), Some(false))
}

fn zrevrangebylex(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    range(context, arguments, Some(By::Lex), Some(true))
}

fn zrangestore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let options = Options::of(arguments, 5, true, None, None)?;
    let members = options.members(arguments, 3)?;
    let objects = &mut context.objects;
    let mut found = Vec::new();
    if let Some(mut set) = SortedSet::read(objects, &arguments[2])? {
        let ranks = options.ranks(objects, &mut set, &members)?;
        set.visit(objects, ranks, false, |score, member| {
            found.push((score, member.to_vec()));
            true
        })?;
    }
    store(context, &arguments[1], &found, "zrangestore")
}

/// Writes members, in their order, in place of any value, which is an event with a name. The reply
/// is their number.
pub(super) fn store(
    context: &mut Context<'_>,
    key: &[u8],
    members: &[(f64, Vec<u8>)],
    name: &'static str,
) -> Done {
    let objects = &mut context.objects;
    sorted_set::check(objects, members.iter().map(|(_, member)| &**member))?;
    if members.is_empty() {
        objects.delete(key)?;
    } else {
        objects.note_overwrite(key, Kind::SortedSet)?;
        objects.forget_pages(key)?;
        let mut set = SortedSet::new(objects, key);
        set.fill(objects, members)?;
        set.save(objects)?;
        objects.event(Kinds::SORTED_SET, name, key);
        context.signal(key);
    }
    context.reply.integer(members.len() as i64);
    Ok(())
}
