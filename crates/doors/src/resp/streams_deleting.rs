//! `XDELEX` and `XACKDEL`: the deletion of entries that groups may still use.

use super::commands::{Command, FAST, Group as Family, Keys, WRITE};
use super::context::{Context, from, is};
use super::events::Kinds;
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::stream::Stream;
use super::stream_groups::Group;
use super::stream_id::StreamId;
use super::streams_trimming::References;
use super::transaction::Transaction;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("xdelex", -5, WRITE | FAST, xdelex).keys(&[Keys::one("RW delete", 1)]).about(
        Family::Stream,
        "8.2.0",
        "Deletes entries of a stream, perhaps only if no group uses them.",
    ),
    Command::new("xackdel", -6, WRITE | FAST, xackdel)
        .keys(&[Keys::one("RW update delete", 1)])
        .about(Family::Stream, "8.2.0", "Acknowledges pending entries and deletes them."),
];

/// The outcome for an id.
#[derive(Clone, Copy)]
enum Outcome {
    /// There is no such entry.
    Missing = -1,
    Deleted = 1,
    /// A group uses the entry.
    Referenced = 2,
}

/// The options and ids.
struct Options {
    references: References,
    /// The indexes of the first id, and the number of ids.
    first: usize,
    count: usize,
}

impl Options {
    fn of(arguments: Arguments<'_>, mut at: usize) -> Result<Options, Stop> {
        let (mut references, mut ids) = (None, None);
        while let Some(word) = arguments.get(at) {
            if references.is_none()
                && let Some(found) = References::of(word)
            {
                references = Some(found);
                at += 1;
            } else if ids.is_none()
                && is(word, "IDS")
                && let Some(count) = arguments.get(at + 1)
            {
                let count = integer_of(count).filter(|count| *count > 0);
                let error = Stop::error("ERR Number of IDs must be a positive integer");
                let count = usize::try_from(count.ok_or(error)?).unwrap_or(usize::MAX);
                if count > arguments.len() - at - 2 {
                    return Err(Stop::error(
                        "ERR The `numids` parameter must match the number of arguments",
                    ));
                }
                ids = Some((at + 2, count));
                at += 2 + count;
            } else {
                return Err(stop::SYNTAX);
            }
        }
        let (first, count) = ids.ok_or(stop::SYNTAX)?;
        Ok(Options { references: references.unwrap_or_default(), first, count })
    }

    fn ids(&self, arguments: Arguments<'_>) -> Result<Vec<StreamId>, Stop> {
        let texts = from(arguments, self.first).take(self.count);
        texts.map(|text| StreamId::parse(text, 0)).collect()
    }

    fn reply_missing(&self, context: &mut Context<'_>) -> Done {
        reply(context, &vec![Outcome::Missing; self.count]);
        Ok(())
    }
}

fn reply(context: &mut Context<'_>, outcomes: &[Outcome]) {
    context.reply.array(outcomes.len());
    outcomes.iter().for_each(|outcome| context.reply.integer(*outcome as i64));
}

/// Deletes an entry, which may be gone already, but still pending.
fn delete(
    stream: &mut Stream<'_>,
    objects: &mut Transaction<'_>,
    groups: &[(Vec<u8>, Group)],
    references: References,
    id: StreamId,
) -> Result<Outcome, Stop> {
    match references {
        References::Keep => {}
        References::Delete => stream.remove_references(objects, groups, id)?,
        References::Acknowledged => {
            if stream.find_reference(objects, groups, id)? {
                return Ok(Outcome::Referenced);
            }
        }
    }
    Ok(if stream.remove(objects, id)? { Outcome::Deleted } else { Outcome::Missing })
}

fn xdelex(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let found = Stream::find(&mut context.objects, &arguments[1])?;
    let options = Options::of(arguments, 2)?;
    let Some(mut stream) = found else { return options.reply_missing(context) };
    let ids = options.ids(arguments)?;
    let objects = &mut context.objects;
    let groups = stream.groups(objects)?;
    let mut outcomes = Vec::with_capacity(ids.len());
    for id in ids {
        outcomes.push(delete(&mut stream, objects, &groups, options.references, id)?);
    }
    let is_deleted = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Deleted));
    if is_deleted || options.references == References::Delete {
        stream.save(objects)?;
    }
    if is_deleted {
        objects.event(Kinds::STREAM, "xdel", &arguments[1]);
    }
    reply(context, &outcomes);
    Ok(())
}

fn xackdel(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let objects = &mut context.objects;
    let mut found = Stream::read(objects, &arguments[1])?;
    let group = match &mut found {
        Some(stream) => stream.group(objects, &arguments[2])?,
        None => None,
    };
    let options = Options::of(arguments, 3)?;
    let (Some(mut stream), Some(group)) = (found, group) else {
        return options.reply_missing(context);
    };
    let ids = options.ids(arguments)?;
    let objects = &mut context.objects;
    let groups = stream.groups(objects)?;
    let mut outcomes = Vec::with_capacity(ids.len());
    let length = stream.len()?;
    for id in ids {
        outcomes.push(match stream.remove_pending(objects, &group, id)? {
            false => Outcome::Missing,
            // An acknowledged entry counts as deleted, also if it was gone before.
            true => match delete(&mut stream, objects, &groups, options.references, id)? {
                Outcome::Missing => Outcome::Deleted,
                outcome => outcome,
            },
        });
    }
    let is_deleted = stream.len()? < length;
    if outcomes.iter().any(|outcome| !matches!(outcome, Outcome::Missing)) {
        stream.save(objects)?;
    }
    if is_deleted {
        objects.event(Kinds::STREAM, "xdel", &arguments[1]);
    }
    reply(context, &outcomes);
    Ok(())
}
