//! `XGROUP` and `XACK`: the consumer groups of a stream.

use super::bounds::integer;
use super::commands::{
    Command, DENYOOM, FAST, Group as Family, Keys, LOADING, STALE, WRITE, by_subcommand,
};
use super::context::{Context, from, is};
use super::events::Kinds;
use super::parser::Arguments;
use super::stop::{Done, Stop, shown};
use super::stream::Stream;
use super::stream_groups::{Group, check_name};
use super::stream_id::StreamId;

const UPDATE: &[Keys] = &[Keys::one("RW update", 2)];
const INSERT: &[Keys] = &[Keys::one("RW insert", 2)];
const DELETE: &[Keys] = &[Keys::one("RW delete", 2)];

pub(super) const COMMANDS: &[Command] =
    &[
        Command::new("xgroup", -2, 0, by_subcommand)
            .subcommands(&[
                Command::new("xgroup|setid", -5, WRITE, xgroup_setid).keys(UPDATE).about(
                    Family::Stream,
                    "5.0.0",
                    "Sets the last id that a group has read.",
                ),
                Command::new("xgroup|create", -5, WRITE | DENYOOM, xgroup_create)
                    .keys(INSERT)
                    .about(Family::Stream, "5.0.0", "Makes a group."),
                Command::new("xgroup|delconsumer", 5, WRITE, xgroup_delconsumer)
                    .keys(DELETE)
                    .about(Family::Stream, "5.0.0", "Deletes a consumer and its pending entries."),
                Command::new("xgroup|destroy", 4, WRITE, xgroup_destroy).keys(DELETE).about(
                    Family::Stream,
                    "5.0.0",
                    "Deletes a group.",
                ),
                Command::new("xgroup|help", 2, LOADING | STALE, xgroup_help).about(
                    Family::Stream,
                    "5.0.0",
                    "Describes the subcommands.",
                ),
                Command::new("xgroup|createconsumer", 5, WRITE | DENYOOM, xgroup_createconsumer)
                    .keys(INSERT)
                    .about(Family::Stream, "6.2.0", "Makes a consumer of a group."),
            ])
            .about(Family::Stream, "5.0.0", "Commands about the groups of a stream.")
            .categories(""),
        Command::new("xack", -4, WRITE | FAST, xack).keys(&[Keys::one("RW update", 1)]).about(
            Family::Stream,
            "5.0.0",
            "Acknowledges pending entries of a group.",
        ),
    ];

/// The bytes of a word that an error shows.
const SHOWN_BYTES_MAX: usize = 128;

/// Returns the error for wrong options of a subcommand.
pub(super) fn wrong_subcommand(arguments: Arguments<'_>) -> Stop {
    let word = shown(&arguments[1]);
    let name = arguments[0].to_ascii_uppercase();
    Stop::error_of(
        [
            b"ERR unknown subcommand or wrong number of arguments for '",
            &word[..word.len().min(SHOWN_BYTES_MAX)],
            b"'. Try ",
            &*name,
            b" HELP.",
        ]
        .concat(),
    )
}

/// The error for a stream that must exist.
const NO_STREAM: Stop = Stop::error(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
     the MKSTREAM option to create an empty stream automatically.",
);

/// Returns the error for a group that does not exist.
pub(super) fn no_group(key: &[u8], group: &[u8]) -> Stop {
    let (key, group) = (shown(key), shown(group));
    let parts = [b"NOGROUP No such consumer group '", group, b"' for key name '", key, &b"'"[..]];
    Stop::error_of(parts.concat())
}

/// The options of `CREATE` and `SETID`.
#[derive(Default)]
struct Options {
    makes_stream: bool,
    entries_read: Option<u64>,
}

impl Options {
    fn of(arguments: Arguments<'_>, is_create: bool) -> Result<Options, Stop> {
        let mut options = Options::default();
        let mut at = 5;
        while let Some(word) = arguments.get(at) {
            match arguments.get(at + 1) {
                _ if is_create && is(word, "MKSTREAM") => options.makes_stream = true,
                Some(value) if is(word, "ENTRIESREAD") => {
                    options.entries_read = match integer(value)? {
                        -1 => None,
                        count => Some(u64::try_from(count).map_err(|_| {
                            Stop::error("ERR value for ENTRIESREAD must be positive or -1")
                        })?),
                    };
                    at += 1;
                }
                _ => return Err(wrong_subcommand(arguments)),
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Returns the stream of a command, which must exist.
fn find<'k>(context: &mut Context<'_>, arguments: Arguments<'k>) -> Result<Stream<'k>, Stop> {
    // The key outlives the borrow of the arguments.
    let key = arguments.get(2).unwrap_or_default();
    Stream::find(&mut context.objects, key)?.ok_or(NO_STREAM)
}

/// Returns the stream and the group of a command, which must exist.
fn find_group<'k>(
    context: &mut Context<'_>,
    arguments: Arguments<'k>,
) -> Result<(Stream<'k>, Group), Stop> {
    let mut stream = find(context, arguments)?;
    let group = stream.group(&mut context.objects, &arguments[3])?;
    let group = group.ok_or_else(|| no_group(&arguments[2], &arguments[3]))?;
    Ok((stream, group))
}

/// Reads the id to which a group is set. Besides the ids of `CREATE`, Redis takes the bounds of
/// ranges.
fn id_to_set(text: &[u8], last: StreamId) -> Result<StreamId, Stop> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => id_of(text, last),
    }
}

/// Reads the id that a group begins with. `$` is the last one of the stream.
fn id_of(text: &[u8], last: StreamId) -> Result<StreamId, Stop> {
    if text == b"$" { Ok(last) } else { StreamId::parse(text, 0) }
}

fn xgroup_create(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let options = Options::of(arguments, true)?;
    let (key, name) = (&arguments[2], &arguments[3]);
    let objects = &mut context.objects;
    let mut stream = match Stream::find(objects, key)? {
        Some(stream) => stream,
        None if options.makes_stream => Stream::new(objects, key),
        None => return Err(NO_STREAM),
    };
    if arguments.len() > 8 {
        return Err(wrong_subcommand(arguments));
    }
    let last = id_of(&arguments[4], stream.state.last)?;
    let entries_read = options.entries_read.map(|count| count.min(stream.state.added));
    if stream.group(objects, name)?.is_some() {
        return Err(Stop::error("BUSYGROUP Consumer Group name already exists"));
    }
    check_name(objects, name)?;
    stream.add_group(objects, name, last, entries_read)?;
    stream.save(objects)?;
    objects.event(Kinds::STREAM, "xgroup-create", key);
    context.ok();
    Ok(())
}

fn xgroup_setid(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let options = Options::of(arguments, false)?;
    let (mut stream, group) = find_group(context, arguments)?;
    if !matches!(arguments.len(), 5 | 7) {
        return Err(wrong_subcommand(arguments));
    }
    let last = id_to_set(&arguments[4], stream.state.last)?;
    let entries_read = options.entries_read.map(|count| count.min(stream.state.added));
    let group = Group { last, entries_read, ..group };
    stream.put_group(&mut context.objects, &arguments[3], &group)?;
    stream.save(&mut context.objects)?;
    context.objects.event(Kinds::STREAM, "xgroup-setid", &arguments[2]);
    context.ok();
    Ok(())
}

fn xgroup_destroy(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let mut stream = find(context, arguments)?;
    let objects = &mut context.objects;
    let group = stream.group(objects, &arguments[3])?;
    if let Some(group) = &group {
        stream.remove_group(objects, &arguments[3], group)?;
        stream.save(objects)?;
        objects.event(Kinds::STREAM, "xgroup-destroy", &arguments[2]);
        // Its consumers that wait get an error.
        context.signal(&arguments[2]);
    }
    context.reply.integer(i64::from(group.is_some()));
    Ok(())
}

fn xgroup_createconsumer(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (mut stream, group) = find_group(context, arguments)?;
    let objects = &mut context.objects;
    check_name(objects, &arguments[4])?;
    let is_new = stream.consumer(objects, &group, &arguments[4])?.is_none();
    if is_new {
        stream.add_consumer(objects, &group, &arguments[4])?;
        stream.save(objects)?;
        objects.event(Kinds::STREAM, "xgroup-createconsumer", &arguments[2]);
    }
    context.reply.integer(i64::from(is_new));
    Ok(())
}

fn xgroup_delconsumer(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (mut stream, group) = find_group(context, arguments)?;
    let objects = &mut context.objects;
    let mut pending = 0;
    if let Some(consumer) = stream.consumer(objects, &group, &arguments[4])? {
        pending = stream.remove_consumer(objects, &group, &arguments[4], &consumer)?;
        stream.save(objects)?;
        objects.event(Kinds::STREAM, "xgroup-delconsumer", &arguments[2]);
    }
    context.reply.integer(pending as i64);
    Ok(())
}

fn xgroup_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    super::help::reply(context, "xgroup");
    Ok(())
}

fn xack(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let objects = &mut context.objects;
    let mut found = Stream::read(objects, &arguments[1])?;
    let group = match &mut found {
        Some(stream) => stream.group(objects, &arguments[2])?,
        None => None,
    };
    let (Some(mut stream), Some(group)) = (found, group) else {
        context.reply.integer(0);
        return Ok(());
    };
    let ids = from(arguments, 3).map(|text| StreamId::parse(text, 0));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    let mut acknowledged = 0;
    for id in ids {
        acknowledged += i64::from(stream.remove_pending(objects, &group, id)?);
    }
    if acknowledged > 0 {
        stream.save(objects)?;
    }
    context.reply.integer(acknowledged);
    Ok(())
}
