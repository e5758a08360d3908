//! `SORT`: the elements of a list, set or sorted set in an order, which other keys may give.

use super::bounds::integer;
use super::commands::{Command, DENYOOM, Group, Keys, MOVABLE_KEYS, READONLY, WRITE};
use super::context::{Context, is};
use super::events::Kinds;
use super::hash;
use super::key_slots::{slot_of, slot_of_pattern};
use super::list::{self, List};
use super::long_string::LongString;
use super::parser::Arguments;
use super::set::Set;
use super::sorted_set::SortedSet;
use super::stop::{self, Done, Stop};
use super::store::Kind;
use super::transaction::Transaction;
use std::cmp::Ordering;
use std::ops::Range;

const OTHERS: Keys =
    Keys::unknown("RO access").note("The keys of BY and GET depend on the elements.");

/// The categories. The commands are dangerous because their patterns may name any keys.
const CATEGORIES: &str = "@set @sortedset @list @dangerous";

pub(super) const COMMANDS: &[Command] = &[
    Command::new("sort", -2, WRITE | DENYOOM | MOVABLE_KEYS, sort)
        .keys(&[
            Keys::one("RO access", 1),
            OTHERS,
            Keys::unknown("OW update").note("STORE may be anywhere among the options."),
        ])
        .about(Group::Generic, "1.0.0", "Sorts the elements of a list, set or sorted set.")
        .categories(CATEGORIES),
    Command::new("sort_ro", -2, READONLY | MOVABLE_KEYS, sort_ro)
        .keys(&[Keys::one("RO access", 1), OTHERS])
        .about(
            Group::Generic,
            "7.0.0",
            "Sorts the elements of a list, set or sorted set, and writes nothing.",
        )
        .categories(CATEGORIES),
];

/// The options.
struct Options<'a> {
    is_descending: bool,
    is_alphabetic: bool,
    limit: (i64, i64),
    /// The pattern of the keys that give the order.
    by: Option<&'a [u8]>,
    /// The patterns of the keys whose values are returned.
    gets: Vec<&'a [u8]>,
    target: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn of(arguments: Arguments<'a>, may_store: bool) -> Result<Options<'a>, Stop> {
        let mut options = Options {
            is_descending: false,
            is_alphabetic: false,
            limit: (0, -1),
            by: None,
            gets: Vec::new(),
            target: None,
        };
        let mut index = 2;
        while let Some(option) = arguments.get(index) {
            let (value, second) = (arguments.get(index + 1), arguments.get(index + 2));
            let used = match (option, value, second) {
                (it, ..) if is(it, "asc") => {
                    options.is_descending = false;
                    1
                }
                (it, ..) if is(it, "desc") => {
                    options.is_descending = true;
                    1
                }
                (it, ..) if is(it, "alpha") => {
                    options.is_alphabetic = true;
                    1
                }
                (it, Some(first), Some(count)) if is(it, "limit") => {
                    options.limit = (integer(first)?, integer(count)?);
                    3
                }
                (it, Some(value), _) if may_store && is(it, "store") => {
                    options.target = Some(value);
                    2
                }
                (it, Some(value), _) if is(it, "by") => {
                    options.by = Some(value);
                    2
                }
                (it, Some(value), _) if is(it, "get") => {
                    options.gets.push(value);
                    2
                }
                _ => return Err(stop::SYNTAX),
            };
            index += used;
        }
        Ok(options)
    }

    /// Refuses patterns whose keys may be on other nodes than the sorted key.
    fn check_slots(&self, context: &Context<'_>, key: &[u8]) -> Done {
        if !context.may_lack_keys() {
            return Ok(());
        }
        let is_here = |pattern: &[u8]| slot_of_pattern(pattern) == Some(slot_of(key));
        let refused = |option: &str| {
            Err(Stop::error_of(format!(
                "ERR {option} option of SORT denied in cluster mode when keys formed by the \
                 pattern may be in different slots."
            )))
        };
        // A pattern without a star names no key that gives the order.
        match self.by {
            Some(by) if !self.keeps_order() && !is_here(by) => return refused("BY"),
            _ => {}
        }
        match self.gets.iter().all(|get| *get == b"#" || is_here(get)) {
            true => Ok(()),
            false => refused("GET"),
        }
    }

    /// Whether elements stay in their order: the pattern names one key for all.
    fn keeps_order(&self) -> bool {
        self.by.is_some_and(|pattern| !pattern.contains(&b'*'))
    }

    /// Returns the places of the elements that are returned.
    fn places(&self, length: usize) -> Range<usize> {
        let begin = usize::try_from(self.limit.0.max(0)).unwrap_or(usize::MAX).min(length);
        let count = usize::try_from(self.limit.1).unwrap_or(usize::MAX);
        begin..begin.saturating_add(count).min(length)
    }
}

/// Returns all elements of a key, in their order.
fn elements(objects: &mut Transaction<'_>, key: &[u8]) -> Result<(Kind, Vec<Vec<u8>>), Stop> {
    let Some(kind) = objects.read(key)?.map(|found| found.kind) else {
        return Ok((Kind::List, Vec::new()));
    };
    let mut all = Vec::new();
    match kind {
        Kind::List => {
            if let Some(list) = List::find(objects, key)? {
                list.visit(objects, 0..list.len(), false, |element| {
                    all.push(element.to_vec());
                    true
                })?;
            }
        }
        Kind::Set => {
            if let Some(set) = Set::find(objects, key)? {
                all = set.members(objects)?;
            }
        }
        Kind::SortedSet => {
            if let Some(set) = SortedSet::find(objects, key)? {
                set.visit(objects, 0..set.len(), false, |_, member| {
                    all.push(member.to_vec());
                    true
                })?;
            }
        }
        Kind::String | Kind::LongString | Kind::Hash | Kind::Stream => {
            return Err(stop::WRONG_TYPE);
        }
    }
    Ok((kind, all))
}

/// The most bytes of values of other keys. Many elements may name the same long value.
const VALUES_BYTES_MAX: usize = 256 << 20;

/// Values of other keys.
#[derive(Default)]
struct Values {
    bytes: usize,
    all: Vec<Option<Vec<u8>>>,
}

impl Values {
    fn push(&mut self, value: Option<Vec<u8>>) -> Done {
        let bytes = size_of::<Option<Vec<u8>>>() + value.as_ref().map_or(0, Vec::len);
        self.bytes = self.bytes.saturating_add(bytes);
        self.all.push(value);
        match self.bytes <= VALUES_BYTES_MAX {
            true => Ok(()),
            false => Err(Stop::error("ERR The values are too long. Ask for less at a time.")),
        }
    }
}

/// Returns the value of the key that a pattern names for an element: `w_*`, a field of a hash as
/// `h_*->f`, or `#` for the element itself.
fn look_up(
    objects: &mut Transaction<'_>,
    pattern: &[u8],
    element: &[u8],
) -> Result<Option<Vec<u8>>, Stop> {
    if pattern == b"#" {
        return Ok(Some(element.to_vec()));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return Ok(None) };
    let (prefix, rest) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = rest.windows(2).position(|bytes| bytes == b"->");
    let (suffix, field) = match arrow {
        Some(arrow) if arrow + 2 < rest.len() => (&rest[..arrow], Some(&rest[arrow + 2..])),
        _ => (rest, None),
    };
    let key = [prefix, element, suffix].concat();
    let Some(found) = objects.read(&key)? else { return Ok(None) };
    match (found.kind, field) {
        (Kind::String, None) => Ok(Some(found.value.to_vec())),
        (Kind::LongString, None) => {
            let long = LongString::of(&found)?;
            objects.all_of(&long).map(Some)
        }
        (Kind::Hash, Some(field)) => {
            hash::look_up(objects, &key, field, |value| value.map(<[u8]>::to_vec))
        }
        _ => Ok(None),
    }
}

/// Reads a number by which elements are sorted.
fn number_of(text: &[u8]) -> Result<f64, Stop> {
    const NOT_A_NUMBER: Stop = Stop::error("ERR One or more scores can't be converted into double");
    // Redis reads the text up to its end in C.
    let text = &text[..memchr::memchr(0, text).unwrap_or(text.len())];
    if text.is_empty() {
        return Ok(0.0);
    }
    let text = str::from_utf8(text).map_err(|_| NOT_A_NUMBER)?;
    let number: f64 = text.parse().map_err(|_| NOT_A_NUMBER)?;
    if number.is_nan() { Err(NOT_A_NUMBER) } else { Ok(number) }
}

/// Sorts elements.
fn in_order(
    objects: &mut Transaction<'_>,
    elements: Vec<Vec<u8>>,
    by: Option<&[u8]>,
    is_alphabetic: bool,
    is_descending: bool,
) -> Result<Vec<Vec<u8>>, Stop> {
    let directed = |order: Ordering| if is_descending { order.reverse() } else { order };
    if !is_alphabetic {
        let mut scored = Vec::with_capacity(elements.len());
        for element in elements {
            let score = match by {
                Some(pattern) => match look_up(objects, pattern, &element)? {
                    Some(text) => number_of(&text)?,
                    None => 0.0,
                },
                None => number_of(&element)?,
            };
            scored.push((score, element));
        }
        scored.sort_by(|one, other| {
            let order = one.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal);
            directed(order.then_with(|| one.1.cmp(&other.1)))
        });
        return Ok(scored.into_iter().map(|(_, element)| element).collect());
    }
    let mut weights = Values::default();
    for element in &elements {
        weights.push(match by {
            Some(pattern) => look_up(objects, pattern, element)?,
            None => Some(element.clone()),
        })?;
    }
    let mut weighed: Vec<_> = weights.all.into_iter().zip(elements).collect();
    weighed.sort_by(|one, other| directed(one.0.cmp(&other.0)));
    Ok(weighed.into_iter().map(|(_, element)| element).collect())
}

/// Checks that the client's user may read each key: `BY` and `GET` may name any.
fn check_rights(context: &Context<'_>, arguments: &Arguments<'_>, options: &Options<'_>) -> Done {
    let (has_by, has_get) =
        (!options.keeps_order() && options.by.is_some(), !options.gets.is_empty());
    let state = &*context.state;
    let name = state.clients.get(&context.client).and_then(|client| client.user.as_deref());
    let user = state.settings.users.of(name);
    if !(has_by || has_get) || user.is_some_and(|user| user.may_everything()) {
        return Ok(());
    }
    let words: Vec<&[u8]> = arguments.iter().collect();
    let command = state.names.command(&arguments[0]);
    let reads_all = user.zip(command);
    if reads_all.is_some_and(|(user, it)| user.reads_all_with(&state.names, it, &words)) {
        return Ok(());
    }
    Err(Stop::error(match has_by {
        true => "ERR BY option of SORT denied due to insufficient ACL permissions.",
        false => "ERR GET option of SORT denied due to insufficient ACL permissions.",
    }))
}

fn sorted(context: &mut Context<'_>, arguments: Arguments<'_>, may_store: bool) -> Done {
    let options = Options::of(arguments, may_store)?;
    options.check_slots(context, &arguments[1])?;
    check_rights(context, &arguments, &options)?;
    let is_of_script = context.is_of_script;
    let objects = &mut context.objects;
    let (kind, mut all) = elements(objects, &arguments[1])?;
    // The order of a set is not to be stored, and no script may depend on it.
    let is_ordered_set = kind == Kind::Set && (options.target.is_some() || is_of_script);
    if !options.keeps_order() {
        let Options { by, is_alphabetic, is_descending, .. } = options;
        all = in_order(objects, all, by, is_alphabetic, is_descending)?;
    } else if is_ordered_set {
        all = in_order(objects, all, None, true, options.is_descending)?;
    } else if options.is_descending && kind != Kind::Set {
        all.reverse();
    }
    let places = options.places(all.len());
    let mut values = Values::default();
    for element in &all[places] {
        if options.gets.is_empty() {
            values.push(Some(element.clone()))?;
        }
        for pattern in &options.gets {
            values.push(look_up(objects, pattern, element)?)?;
        }
    }
    let values = values.all;
    match options.target {
        Some(target) => store(context, target, values),
        None => {
            context.reply.array(values.len());
            for value in values {
                match value {
                    Some(value) => context.reply.string(&value),
                    None => context.reply.null(),
                }
            }
            Ok(())
        }
    }
}

/// Writes a list in place of any value. The reply is its length.
fn store(context: &mut Context<'_>, key: &[u8], values: Vec<Option<Vec<u8>>>) -> Done {
    let objects = &mut context.objects;
    let values: Vec<Vec<u8>> = values.into_iter().map(Option::unwrap_or_default).collect();
    list::check(objects, values.iter().map(|value| &**value))?;
    if values.is_empty() {
        objects.delete(key)?;
    } else {
        objects.note_overwrite(key, Kind::List)?;
        objects.forget_pages(key)?;
        let mut list = List::new(objects, key);
        for value in &values {
            list.push(objects, list::End::Right, value)?;
        }
        list.save(objects)?;
        objects.event(Kinds::LIST, "sortstore", key);
        context.signal(key);
    }
    context.reply.integer(values.len() as i64);
    Ok(())
}

fn sort(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    sorted(context, arguments, true)
}

fn sort_ro(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    sorted(context, arguments, false)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Door;

    #[test]
    fn elements_are_sorted_as_by_redis() {
        let mut door = Door::new();
        door.expect(&[
            ("rpush l 3 1 2 10", ":4|"),
            ("sort l", "*4|$1|1|$1|2|$1|3|$2|10|"),
            ("sort l desc", "*4|$2|10|$1|3|$1|2|$1|1|"),
            ("sort l alpha", "*4|$1|1|$2|10|$1|2|$1|3|"),
            ("sort l limit 1 2", "*2|$1|2|$1|3|"),
            ("sort l limit -1 2", "*2|$1|1|$1|2|"),
            ("sort l limit 1 -1", "*3|$1|2|$1|3|$2|10|"),
            ("sort l limit 1", "-ERR syntax error|"),
            ("sort l limit x 1", "-ERR value is not an integer or out of range|"),
            ("sort l by nosort", "*4|$1|3|$1|1|$1|2|$2|10|"),
            ("sort l by nosort desc", "*4|$2|10|$1|2|$1|1|$1|3|"),
            ("sort l by w_*", "*4|$1|1|$2|10|$1|2|$1|3|"),
            ("mset w_1 5 w_2 4 w_3 x", "+OK|"),
            ("sort l by w_*", "-ERR One or more scores can't be converted into double|"),
            ("set w_3 1", "+OK|"),
            ("sort l by w_*", "*4|$2|10|$1|3|$1|2|$1|1|"),
            ("sort l by w_* get # get w_*", "*8|$2|10|$-1|$1|3|$1|1|$1|2|$1|4|$1|1|$1|5|"),
            ("sort l by w_* alpha", "*4|$2|10|$1|3|$1|2|$1|1|"),
            ("sort l get o_* get #", "*8|$-1|$1|1|$-1|$1|2|$-1|$1|3|$-1|$2|10|"),
            ("sort l store d", ":4|"),
            ("lrange d 0 -1", "*4|$1|1|$1|2|$1|3|$2|10|"),
            ("sort none store d", ":0|"),
            ("exists d", ":0|"),
            ("sort none", "*0|"),
            ("rpush m a b", ":2|"),
            ("sort m", "-ERR One or more scores can't be converted into double|"),
            ("sort m alpha", "*2|$1|a|$1|b|"),
            ("set s v", "+OK|"),
            ("sort s", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("sort none by", "-ERR syntax error|"),
            ("sort l foo", "-ERR syntax error|"),
            ("hset h_1 f 9", ":1|"),
            ("hset h_2 f 8", ":1|"),
            ("sort l by h_*->f", "*4|$2|10|$1|3|$1|2|$1|1|"),
            ("sort l by h_*->f get h_*->f", "*4|$-1|$-1|$1|8|$1|9|"),
            ("sort l by *->", "*4|$1|1|$2|10|$1|2|$1|3|"),
            ("sort l get *", "*4|$-1|$-1|$-1|$-1|"),
            ("zadd z 3 a 1 b 2 c", ":3|"),
            ("sort z alpha", "*3|$1|a|$1|b|$1|c|"),
            ("sort z by nosort", "*3|$1|b|$1|c|$1|a|"),
            ("sort z by nosort desc", "*3|$1|a|$1|c|$1|b|"),
            ("sort z by nosort limit 1 1", "*1|$1|c|"),
            ("sort z by nosort desc limit 0 2", "*2|$1|a|$1|c|"),
            ("sadd st 3 1 2", ":3|"),
            ("sort st", "*3|$1|1|$1|2|$1|3|"),
            ("sort st by nosort", "*3|$1|1|$1|2|$1|3|"),
            ("sadd su b a c", ":3|"),
            ("sort su by nosort store d2", ":3|"),
            ("lrange d2 0 -1", "*3|$1|a|$1|b|$1|c|"),
            ("sort l by nosort get #", "*4|$1|3|$1|1|$1|2|$2|10|"),
            ("sort_ro l", "*4|$1|1|$1|2|$1|3|$2|10|"),
            ("sort_ro l store d", "-ERR syntax error|"),
            ("sort l limit 0 2 limit 1 1", "*1|$1|2|"),
            ("sort l desc asc", "*4|$1|1|$1|2|$1|3|$2|10|"),
            ("sort l store d store e", ":4|"),
            ("sort l get # store d", ":4|"),
            ("sort l by w_* desc limit 0 2", "*2|$1|1|$1|2|"),
            ("sort l limit 100 1", "*0|"),
            ("sort l limit 0 0", "*0|"),
            ("rpush n 1.5 -2 1e2 0x10", ":4|"),
            ("sort n", "-ERR One or more scores can't be converted into double|"),
            ("rpush q nan 1", ":2|"),
            ("sort q", "-ERR One or more scores can't be converted into double|"),
            ("rpush eq 1 1.0 01", ":3|"),
            ("sort eq", "*3|$2|01|$1|1|$3|1.0|"),
            ("sort eq desc", "*3|$3|1.0|$1|1|$2|01|"),
            ("sort l by w_* get nothing", "*4|$-1|$-1|$-1|$-1|"),
        ]);
    }

    #[test]
    fn a_stored_list_serves_clients_that_wait() {
        let mut door = Door::new();
        assert_eq!(door.said_to(1, "blpop b 0"), "");
        assert_eq!(door.said_to(2, "rpush a 2 1\nsort a store b"), ":2|:2|");
        assert_eq!(door.heard(1), "*2|$1|b|$1|1|");
    }
}
