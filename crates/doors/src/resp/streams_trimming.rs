//! The options of `XADD` and `XTRIM`, and the removal of the oldest entries.
//!
//! Redis keeps entries in blocks of a hundred, and an approximate trim (`~`) removes whole blocks.
//! Here it removes a hundred entries at a time, counted from the oldest one. So a stream that is
//! trimmed by each `XADD` frees whole pages.

use super::bounds::integer;
use super::context::is;
use super::parser::Arguments;
use super::stop::{self, Stop};
use super::stream::Stream;
use super::stream_id::{NewId, StreamId};
use super::transaction::Transaction;

/// The entries that an approximate trim removes at a time, and the most of them in one command.
const BLOCK: u64 = 100;
const LIMIT: u64 = 100 * BLOCK;

/// The treatment of pending entries that name a deleted entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum References {
    /// They stay.
    #[default]
    Keep,
    /// They are deleted as well.
    Delete,
    /// An entry is deleted only if all groups have read and acknowledged it.
    Acknowledged,
}

impl References {
    /// Reads an option.
    pub(super) fn of(word: &[u8]) -> Option<References> {
        match word {
            word if is(word, "KEEPREF") => Some(References::Keep),
            word if is(word, "DELREF") => Some(References::Delete),
            word if is(word, "ACKED") => Some(References::Acknowledged),
            _ => None,
        }
    }
}

/// The entries that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// The last ones, so many.
    Last(u64),
    /// Those from an id on.
    From(StreamId),
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// Whether the stream must exist already.
    pub(super) must_exist: bool,
    /// The id of `XADD`.
    pub(super) id: Option<NewId>,
    /// The index of the id of `XADD`.
    pub(super) end: usize,
    kept: Option<Kept>,
    is_approximate: bool,
    limit: Option<u64>,
    references: References,
}

impl Options {
    /// Reads the options.
    pub(super) fn of(arguments: Arguments<'_>, is_add: bool) -> Result<Options, Stop> {
        let mut options = Options::default();
        let mut references = None;
        let mut at = 2;
        while let Some(word) = arguments.get(at) {
            let value = arguments.get(at + 1);
            if is_add && word == b"*" {
                options.id = Some(NewId::Automatic);
                break;
            }
            if let Some(value) = value
                && (is(word, "MAXLEN") || is(word, "MINID"))
            {
                at = options.read_kept(arguments, at, value)?;
            } else if let Some(value) = value
                && is(word, "LIMIT")
            {
                let negative = Stop::error("ERR The LIMIT argument must be >= 0.");
                options.limit = Some(u64::try_from(integer(value)?).map_err(|_| negative)?);
                at += 1;
            } else if is_add && is(word, "NOMKSTREAM") {
                options.must_exist = true;
            } else if references.is_none()
                && let Some(found) = References::of(word)
            {
                references = Some(found);
            } else if is_add {
                options.id = Some(NewId::parse(word)?);
                break;
            } else {
                return Err(stop::SYNTAX);
            }
            at += 1;
        }
        options.end = at;
        options.references = references.unwrap_or_default();
        if options.limit.is_some_and(|limit| limit > 0) && options.kept.is_none() {
            return Err(Stop::error(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        if !is_add && options.kept.is_none() {
            return Err(Stop::error(
                "ERR syntax error, XTRIM must be called with a trimming strategy",
            ));
        }
        if options.limit.is_some() && !options.is_approximate {
            return Err(Stop::error(
                "ERR syntax error, LIMIT cannot be used without the special ~ option",
            ));
        }
        Ok(options)
    }

    /// Reads `MAXLEN` or `MINID`; returns the index of its value.
    fn read_kept(
        &mut self,
        arguments: Arguments<'_>,
        at: usize,
        next: &[u8],
    ) -> Result<usize, Stop> {
        if self.kept.is_some() {
            return Err(Stop::error(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        let behind = arguments.get(at + 2).filter(|_| next == b"~" || next == b"=");
        self.is_approximate = behind.is_some() && next == b"~";
        let value = behind.unwrap_or(next);
        self.kept = Some(match is(&arguments[at], "MAXLEN") {
            true => {
                let negative = Stop::error("ERR The MAXLEN argument must be >= 0.");
                Kept::Last(u64::try_from(integer(value)?).map_err(|_| negative)?)
            }
            false => Kept::From(StreamId::parse(value, 0)?),
        });
        Ok(at + if behind.is_some() { 2 } else { 1 })
    }
}

/// Removes the oldest entries as the options say; returns their number.
pub(super) fn trim(
    stream: &mut Stream<'_>,
    objects: &mut Transaction<'_>,
    options: &Options,
) -> Result<u64, Stop> {
    let Some(kept) = options.kept else { return Ok(0) };
    let length = stream.len()?;
    let surplus = match kept {
        Kept::Last(most) => length.saturating_sub(most),
        Kept::From(id) => stream.rank(objects, id)?,
    };
    let surplus = match options.is_approximate {
        true => whole_blocks(surplus, length, options.limit.unwrap_or(LIMIT)),
        false => surplus,
    };
    if surplus == 0 {
        return Ok(0);
    }
    let groups = match options.references {
        References::Keep => Vec::new(),
        References::Delete | References::Acknowledged => stream.groups(objects)?,
    };
    if groups.is_empty() {
        stream.cut_first(objects, surplus)?;
        return Ok(surplus);
    }
    if options.references == References::Delete {
        for id in ids(stream, objects, surplus)? {
            stream.remove_references(objects, &groups, id)?;
        }
        stream.cut_first(objects, surplus)?;
        return Ok(surplus);
    }
    // Entries in use stay, so newer ones are removed in their place, up to the length wanted.
    let candidates = match (kept, options.is_approximate) {
        (Kept::Last(_), false) => {
            let read = groups.iter().map(|(_, group)| group.last).min().and_then(StreamId::next);
            read.map_or(Ok(length), |id| stream.rank(objects, id))?
        }
        _ => surplus,
    };
    let mut removed = 0;
    for id in ids(stream, objects, candidates)? {
        if removed == surplus {
            break;
        }
        if !stream.find_reference(objects, &groups, id)? {
            stream.cut(objects, id)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Returns the number of entries that an approximate trim removes.
fn whole_blocks(surplus: u64, length: u64, limit: u64) -> u64 {
    let mut removed = 0;
    while removed < length {
        let block = BLOCK.min(length - removed);
        let is_above_limit = limit > 0 && removed + block > limit;
        if is_above_limit || removed + block > surplus {
            break;
        }
        removed += block;
    }
    removed
}

/// Returns the ids of the oldest entries.
fn ids(
    stream: &mut Stream<'_>,
    objects: &mut Transaction<'_>,
    count: u64,
) -> Result<Vec<StreamId>, Stop> {
    let mut ids = Vec::new();
    stream.visit(objects, 0..count, false, |id, _| {
        ids.push(id);
        Ok(())
    })?;
    Ok(ids)
}
