//! `HSCAN`, `SSCAN` and the like: walks through the items of a collection by their hashes.
//!
//! The cursor is the upper 63 bits of the hash of the next item. So the server keeps no state for
//! a scan. A scan visits each item that stays at least once, also if others come and go, because
//! the item keeps its hash. It visits a collection that Redis would keep as a listpack at once,
//! as Redis does.

use super::collection::{self, Collection};
use super::context::{Context, is};
use super::hash::Hash;
use super::keys::{cursor_of, is_match};
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::store::Kind;
use super::tree::{self, Form};

/// The items that one call visits if the client names no number.
const COUNT: i64 = 10;

/// The options of a scan.
struct Options<'a> {
    pattern: Option<&'a [u8]>,
    count: u64,
    has_values: bool,
}

impl<'a> Options<'a> {
    fn of(arguments: Arguments<'a>, kind: Kind) -> Result<Options<'a>, Stop> {
        let has_values = kind != Kind::Set;
        let mut options = Options { pattern: None, count: COUNT as u64, has_values };
        let mut at = 3;
        while let Some(word) = arguments.get(at) {
            let value = arguments.get(at + 1);
            if is(word, "COUNT")
                && let Some(value) = value
            {
                let count = integer_of(value).ok_or(stop::NOT_AN_INTEGER)?;
                options.count = u64::try_from(count).map_err(|_| stop::SYNTAX)?;
                if count == 0 {
                    return Err(stop::SYNTAX);
                }
                at += 2;
            } else if is(word, "MATCH")
                && let Some(value) = value
            {
                options.pattern = Some(value);
                at += 2;
            } else if is(word, "NOVALUES") {
                if kind != Kind::Hash {
                    let text = "ERR NOVALUES option can only be used in HSCAN";
                    return Err(Stop::error(text));
                }
                options.has_values = false;
                at += 1;
            } else {
                return Err(stop::SYNTAX);
            }
        }
        Ok(options)
    }
}

/// Returns the cursor of an item.
fn place_of(key: &[u8]) -> u64 {
    tree::hash(key) >> 1
}

/// Executes a scan of a hash or a set. `write` writes the value of an item.
pub(super) fn scan(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    kind: Kind,
    form: Form,
) -> Done {
    let key = &arguments[1];
    let cursor = cursor_of(&arguments[2])?;
    // The hash is there twice if some of its fields have expired: its items are looked up while
    // they are visited.
    let (found, mut expiring) = match kind {
        Kind::Hash => {
            let objects = &mut context.objects;
            let mut hash = Hash::read(objects, key)?;
            let expired = hash.as_mut().map_or(Ok(0), |hash| hash.expired(objects))?;
            let expiring = if expired > 0 { Hash::find(objects, key)? } else { None };
            (hash.map(|hash| hash.collection), expiring)
        }
        _ => (Collection::to_read(&mut context.objects, key, kind, &[form])?, None),
    };
    let Some(mut collection) = found else {
        context.reply.array(2);
        context.reply.string(b"0");
        context.reply.array(0);
        return Ok(());
    };
    let Options { pattern, count, has_values } = Options::of(arguments, kind)?;
    let objects = &mut context.objects;
    let is_whole = collection.is_small()? || collection.encoding != collection::LARGE;
    let begin = match is_whole {
        true => 0,
        false => collection.tree().rank_of_hash(objects, cursor.min(u64::MAX >> 1) << 1)?,
    };
    let mut items = collection.cursor(objects, begin)?;
    let (mut parts, mut visited, mut last) = (Vec::new(), 0, 0);
    let next = loop {
        let Some((item, value)) = items.next(objects)? else { break 0 };
        if !is_whole {
            let place = place_of(item);
            // Items with the same place are visited by the same call.
            if visited >= count && place != last {
                break place;
            }
            last = place;
        }
        visited += 1;
        let is_expired = match &mut expiring {
            Some(hash) => hash.check_expired(objects, item)?,
            None => false,
        };
        if !is_expired && is_match(pattern, item) {
            parts.push(item.to_vec());
            if has_values {
                parts.push(value.to_vec());
            }
        }
    };
    if collection.encoding == collection::INTSET {
        parts.sort_by_key(|part| integer_of(part));
    }
    context.reply.array(2);
    context.reply.string(next.to_string().as_bytes());
    context.reply.array(parts.len());
    for part in parts {
        context.reply.string(&part);
    }
    Ok(())
}
