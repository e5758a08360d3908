//! `XREAD` and `XREADGROUP`: the entries of some streams after given ids. A client may wait for
//! them.

use super::bounds::integer;
use super::commands::{
    BLOCKING, Command, Find, Group as Family, Keys, MOVABLE_KEYS, READONLY, WRITE,
};
use super::context::{Context, from, is};
use super::parser::Arguments;
use super::stop::{self, Done, Stop, Wait};
use super::store::Kind;
use super::stream::{self, Stream};
use super::stream_groups::{Group, Pending, check_name};
use super::stream_id::StreamId;
use super::transaction::Transaction;
use super::waits;
use super::writer::Version;

/// Keys that are the first half of the words behind `STREAMS`.
const fn streams(from: i64) -> Keys {
    let find = Find::Range(-1, 1, 2);
    Keys { find, ..Keys::behind("RO access", "STREAMS", from) }
}

pub(super) const COMMANDS: &[Command] = &[
    Command::new("xread", -4, READONLY | BLOCKING | MOVABLE_KEYS, xread).keys(&[streams(1)]).about(
        Family::Stream,
        "5.0.0",
        "Returns the next entries of streams, or waits for some.",
    ),
    Command::new("xreadgroup", -7, WRITE | BLOCKING | MOVABLE_KEYS, xreadgroup)
        .keys(&[streams(4)])
        .about(
            Family::Stream,
            "5.0.0",
            "Delivers the next entries of streams to a consumer of a group, or waits for some.",
        ),
];

/// The options.
#[derive(Default)]
struct Options<'a> {
    /// The names of the group and of the consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    /// The most entries of each stream.
    count: Option<u64>,
    /// The time at which a wait ends; `None` in it stands for a wait without a limit.
    wait: Option<Option<u64>>,
    /// Whether entries are delivered as acknowledged.
    is_acknowledged: bool,
    /// The index of the first key, and the number of keys.
    first: usize,
    streams: usize,
}

impl<'a> Options<'a> {
    fn of(
        context: &Context<'_>,
        arguments: Arguments<'a>,
        is_group: bool,
    ) -> Result<Options<'a>, Stop> {
        let only_group = |option: &str| match is_group {
            true => Ok(()),
            false => Err(Stop::error_of(format!(
                "ERR The {option} option is only supported by XREADGROUP. You called XREAD \
                 instead."
            ))),
        };
        let mut options = Options::default();
        let mut at = 1;
        while let Some(word) = arguments.get(at) {
            let (value, second) = (arguments.get(at + 1), arguments.get(at + 2));
            at += match (word, value, second) {
                (it, Some(value), _) if is(it, "BLOCK") => {
                    options.wait = Some(waits::deadline_ms(context, value)?);
                    2
                }
                (it, Some(value), _) if is(it, "COUNT") => {
                    options.count = u64::try_from(integer(value)?).ok().filter(|count| *count > 0);
                    2
                }
                (it, Some(_), _) if is(it, "STREAMS") => {
                    options.first = at + 1;
                    break;
                }
                (it, Some(group), Some(consumer)) if is(it, "GROUP") => {
                    only_group("GROUP")?;
                    options.group = Some((group, consumer));
                    3
                }
                (it, ..) if is(it, "NOACK") => {
                    only_group("NOACK")?;
                    options.is_acknowledged = true;
                    1
                }
                _ => return Err(stop::SYNTAX),
            };
        }
        if options.first == 0 {
            return Err(stop::SYNTAX);
        }
        let words = arguments.len() - options.first;
        if !words.is_multiple_of(2) {
            return Err(Stop::error(match is_group {
                true => {
                    "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or \
                     '>' must be specified."
                }
                false => {
                    "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or \
                     '$' must be specified."
                }
            }));
        }
        options.streams = words / 2;
        if is_group && options.group.is_none() {
            return Err(Stop::error("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(options)
    }

    fn keys(&self, arguments: Arguments<'a>) -> impl Iterator<Item = &'a [u8]> + Clone {
        from(arguments, self.first).take(self.streams)
    }

    /// Lets the command wait, or replies that there is nothing.
    fn wait_or_null(
        &self,
        context: &mut Context<'_>,
        arguments: Arguments<'_>,
        replaced: Vec<(usize, Vec<u8>)>,
    ) -> Done {
        let Some(deadline) = self.wait else {
            context.reply.null_array();
            return Ok(());
        };
        let keys = self.keys(arguments).map(<[u8]>::to_vec).collect();
        Err(Stop::Wait(Box::new(Wait {
            keys,
            kind: Kind::Stream,
            deadline,
            is_array: true,
            is_of_group: self.group.is_some(),
            replaced,
        })))
    }
}

/// An entry that is returned: its id and its bytes, or `None` if the entry was deleted.
type Read = (StreamId, Option<Vec<u8>>);

/// Writes the entries of some streams.
fn reply(context: &mut Context<'_>, read: &[(&[u8], Vec<Read>)]) -> Done {
    let reply = &mut context.reply;
    let is_map = reply.version() == Version::Three;
    if is_map {
        reply.map(read.len())
    } else {
        reply.array(read.len())
    }
    for (key, entries) in read {
        if !is_map {
            reply.array(2);
        }
        reply.string(key);
        reply.array(entries.len());
        for (id, bytes) in entries {
            match bytes {
                Some(bytes) => stream::reply(reply, *id, bytes)?,
                None => {
                    reply.array(2);
                    stream::reply_id(reply, *id);
                    reply.null_array();
                }
            }
        }
    }
    Ok(())
}

/// Takes an entry from the room that is left for a reply.
fn take_room(room: &mut usize, entry: &[u8]) -> Done {
    *room = room.checked_sub(entry.len()).ok_or(stop::REPLY_TOO_LONG)?;
    Ok(())
}

/// Returns the entries behind an id.
fn entries_behind(
    stream: &mut Stream<'_>,
    objects: &mut Transaction<'_>,
    id: StreamId,
    count: Option<u64>,
    room: &mut usize,
) -> Result<Vec<Read>, Stop> {
    let mut entries = Vec::new();
    let Some(begin) = id.next() else { return Ok(entries) };
    let begin = stream.rank(objects, begin)?;
    let end = count.map_or(u64::MAX, |count| begin.saturating_add(count)).min(stream.len()?);
    stream.visit(objects, begin..end, false, |id, bytes| {
        take_room(room, bytes)?;
        entries.push((id, Some(bytes.to_vec())));
        Ok(())
    })?;
    Ok(entries)
}

fn xread(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let options = Options::of(context, arguments, false)?;
    let mut room = context.state.options.reply_bytes_max;
    let objects = &mut context.objects;
    let (mut begins, mut replaced) = (Vec::with_capacity(options.streams), Vec::new());
    for (number, key) in options.keys(arguments).enumerate() {
        let at = options.first + options.streams + number;
        let mut found = Stream::read(objects, key)?;
        begins.push(match (&arguments[at], &mut found) {
            (b"$" | b"+", None) => StreamId::MIN,
            (b"$", Some(stream)) => stream.state.last,
            (b"+", Some(stream)) => match stream.top(objects)? {
                Some(top) => top.previous().unwrap_or_default(),
                None => stream.state.last,
            },
            (b">", _) => {
                return Err(Stop::error(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
                     <group> <consumer> option.",
                ));
            }
            (text, _) => StreamId::parse(text, 0)?,
        });
        // A client that waits wants the entries from now on.
        if &arguments[at] == b"$" {
            let text = begins.last().map(|id| id.text().into_bytes());
            replaced.extend(text.map(|text| (at, text)));
        }
    }
    let mut read = Vec::new();
    for (key, id) in options.keys(arguments).zip(begins) {
        let Some(mut stream) = Stream::read(objects, key)? else { continue };
        let entries = entries_behind(&mut stream, objects, id, options.count, &mut room)?;
        if !entries.is_empty() {
            read.push((key, entries));
        }
    }
    match read.is_empty() {
        true => options.wait_or_null(context, arguments, replaced),
        false => reply(context, &read),
    }
}

/// The entries that a consumer wants.
#[derive(Clone, Copy)]
enum Wanted {
    /// Entries that its group has not read.
    New,
    /// Its pending entries behind an id.
    PendingBehind(StreamId),
}

fn wanted(text: &[u8]) -> Result<Wanted, Stop> {
    if matches!(text, b"$" | b"+") {
        let sign = char::from(text[0]);
        return Err(Stop::error_of(format!(
            "ERR The {sign} ID is meaningless in the context of XREADGROUP: you want to read the \
             history of this consumer by specifying a proper ID, or use the > ID to get new \
             messages. The {sign} ID would just return an empty result set."
        )));
    }
    if text == b">" {
        return Ok(Wanted::New);
    }
    match StreamId::parse(text, 0)? {
        // Redis takes this id for the sign.
        StreamId::MAX => Ok(Wanted::New),
        id => Ok(Wanted::PendingBehind(id)),
    }
}

fn xreadgroup(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let options = Options::of(context, arguments, true)?;
    let Some(names) = options.group else { return Err(stop::SYNTAX) };
    let mut room = context.state.options.reply_bytes_max;
    let objects = &mut context.objects;
    let mut all_wanted = Vec::with_capacity(options.streams);
    for (number, key) in options.keys(arguments).enumerate() {
        let mut found = Stream::read(objects, key)?;
        let group = match &mut found {
            Some(stream) => stream.group(objects, names.0)?,
            None => None,
        };
        if group.is_none() {
            return Err(Stop::error_of(
                [
                    b"NOGROUP No such key '",
                    stop::shown(key),
                    b"' or consumer group '",
                    stop::shown(names.0),
                    b"' in XREADGROUP with GROUP option",
                ]
                .concat(),
            ));
        }
        all_wanted.push(wanted(&arguments[options.first + options.streams + number])?);
    }
    check_name(objects, names.1)?;
    let mut read = Vec::new();
    for (key, wanted) in options.keys(arguments).zip(all_wanted) {
        let Some(stream) = Stream::read(objects, key)? else { continue };
        let entries = deliver(stream, objects, &options, names, wanted, &mut room)?;
        if !entries.is_empty() || matches!(wanted, Wanted::PendingBehind(_)) {
            read.push((key, entries));
        }
    }
    match read.is_empty() {
        true => options.wait_or_null(context, arguments, Vec::new()),
        false => reply(context, &read),
    }
}

/// The most entries that are delivered to a consumer at once. The notes about more might not fit
/// into one change of the store.
const DELIVERED_MAX: u64 = 10_000;

/// Delivers entries of a stream to a consumer, which is made if there is none.
fn deliver(
    mut stream: Stream<'_>,
    objects: &mut Transaction<'_>,
    options: &Options<'_>,
    names: (&[u8], &[u8]),
    wanted: Wanted,
    room: &mut usize,
) -> Result<Vec<Read>, Stop> {
    let Some(mut group) = stream.group(objects, names.0)? else { return Ok(Vec::new()) };
    let mut consumer = stream.seen(objects, &group, names.1)?;
    let entries = match wanted {
        Wanted::New => {
            let count = options.count.unwrap_or(u64::MAX).min(DELIVERED_MAX);
            let entries = entries_behind(&mut stream, objects, group.last, Some(count), room)?;
            let first = stream.first(objects)?;
            for (id, _) in &entries {
                stream.advance(objects, first, &mut group, *id)?;
            }
            if !entries.is_empty() {
                stream.put_group(objects, names.0, &group)?;
            }
            if !options.is_acknowledged && !entries.is_empty() {
                consumer.active = Some(objects.now());
                for (id, _) in &entries {
                    let before = stream.pending(objects, &group, *id)?;
                    let (consumer, delivered) = (consumer.number, objects.now());
                    let pending = Pending { consumer, delivered, deliveries: 1 };
                    stream.put_pending(objects, &group, *id, before.as_ref(), &pending)?;
                }
            }
            entries
        }
        Wanted::PendingBehind(id) => {
            let count = options.count.unwrap_or(u64::MAX).min(DELIVERED_MAX);
            deliver_again(&mut stream, objects, &group, consumer.number, (id, count), room)?
        }
    };
    stream.put_consumer(objects, &group, names.1, &consumer)?;
    stream.save(objects)?;
    Ok(entries)
}

/// Delivers pending entries of a consumer once more.
fn deliver_again(
    stream: &mut Stream<'_>,
    objects: &mut Transaction<'_>,
    group: &Group,
    consumer: u64,
    (id, count): (StreamId, u64),
    room: &mut usize,
) -> Result<Vec<Read>, Stop> {
    let Some(begin) = id.next() else { return Ok(Vec::new()) };
    let ids = stream.owned(objects, group, consumer, begin, count)?;
    let mut entries = Vec::with_capacity(ids.len());
    for id in ids {
        let entry = stream.entry(objects, id)?;
        take_room(room, entry.as_deref().unwrap_or_default())?;
        if entry.is_some()
            && let Some(before) = stream.pending(objects, group, id)?
        {
            let deliveries = before.deliveries.saturating_add(1);
            let pending = Pending { delivered: objects.now(), deliveries, ..before };
            stream.put_pending(objects, group, id, Some(&before), &pending)?;
        }
        entries.push((id, entry));
    }
    Ok(entries)
}
