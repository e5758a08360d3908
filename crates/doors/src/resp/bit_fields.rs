//! `BITFIELD`: integers of any width at any place of a string.

use super::bits::offset_of;
use super::context::{Context, is};
use super::events::Kinds;
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::store::Kind;

/// The integers that a client names with `i8` or `u63`.
#[derive(Clone, Copy)]
struct Form {
    is_signed: bool,
    bits: u32,
}

/// The results of sums that do not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

enum Action {
    Get,
    Set(i64),
    Add(i64),
}

struct Operation {
    action: Action,
    form: Form,
    offset: u64,
    overflow: Overflow,
}

const BAD_FORM: Stop = Stop::error(
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 \
     is.",
);

impl Form {
    fn of(text: &[u8]) -> Result<Form, Stop> {
        let (is_signed, digits) = match text {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(BAD_FORM),
        };
        let most = if is_signed { 64 } else { 63 };
        let bits = integer_of(digits).filter(|bits| (1..=most).contains(bits)).ok_or(BAD_FORM)?;
        Ok(Form { is_signed, bits: bits as u32 })
    }

    fn least(self) -> i128 {
        if self.is_signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn most(self) -> i128 {
        (1 << (self.bits - u32::from(self.is_signed))) - 1
    }

    /// Returns the integer with the same lowest bits.
    fn wrapped(self, number: i128) -> i128 {
        let low = number & ((1 << self.bits) - 1);
        if self.is_signed && low > self.most() { low - (1 << self.bits) } else { low }
    }

    /// Returns a number that fits; `None` if it does not and that is a failure.
    fn fitted(self, number: i128, overflow: Overflow) -> Option<i128> {
        if (self.least()..=self.most()).contains(&number) {
            return Some(number);
        }
        match overflow {
            Overflow::Wrap => Some(self.wrapped(number)),
            Overflow::Saturate => Some(number.clamp(self.least(), self.most())),
            Overflow::Fail => None,
        }
    }

    fn read(self, value: &[u8], offset: u64) -> i128 {
        let mut number = 0i128;
        for at in offset..offset + u64::from(self.bits) {
            let byte = value.get((at / 8) as usize).copied().unwrap_or(0);
            number = number << 1 | i128::from(byte >> (7 - at % 8) & 1);
        }
        self.wrapped(number)
    }

    /// Returns the number of bytes up to its end.
    fn end(self, offset: u64) -> usize {
        (offset + u64::from(self.bits)).div_ceil(8) as usize
    }

    fn write(self, value: &mut [u8], offset: u64, number: i128) {
        for (index, at) in (offset..offset + u64::from(self.bits)).enumerate() {
            let bit = (number >> (self.bits as usize - 1 - index) & 1) as u8;
            let (byte, shift) = ((at / 8) as usize, 7 - at % 8);
            value[byte] = value[byte] & !(1 << shift) | bit << shift;
        }
    }
}

fn operations(
    context: &Context<'_>,
    arguments: Arguments<'_>,
    is_read_only: bool,
) -> Result<Vec<Operation>, Stop> {
    let (mut operations, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 2);
    while let Some(word) = arguments.get(at) {
        let [first, second, third] = [1, 2, 3].map(|more| arguments.get(at + more));
        if is(word, "OVERFLOW")
            && let Some(first) = first
        {
            overflow = match first {
                it if is(it, "WRAP") => Overflow::Wrap,
                it if is(it, "SAT") => Overflow::Saturate,
                it if is(it, "FAIL") => Overflow::Fail,
                _ => return Err(Stop::error("ERR Invalid OVERFLOW type specified")),
            };
            at += 2;
            continue;
        }
        let is_get = is(word, "GET");
        let is_known = is_get || is(word, "SET") || is(word, "INCRBY");
        let (Some(form), Some(place)) = (first, second) else { return Err(stop::SYNTAX) };
        if !is_known || !is_get && third.is_none() {
            return Err(stop::SYNTAX);
        }
        let form = Form::of(form)?;
        let offset = offset_of(context, place, Some(form.bits))?;
        if !is_get && is_read_only {
            return Err(Stop::error("ERR BITFIELD_RO only supports the GET subcommand"));
        }
        let number = || third.and_then(integer_of).ok_or(stop::NOT_AN_INTEGER);
        let action = match is_get {
            true => Action::Get,
            false if is(word, "SET") => Action::Set(number()?),
            false => Action::Add(number()?),
        };
        at += if is_get { 3 } else { 4 };
        operations.push(Operation { action, form, offset, overflow });
    }
    Ok(operations)
}

/// Executes the command with these arguments.
pub(super) fn execute(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    is_read_only: bool,
) -> Done {
    let key = &arguments[1];
    let operations = operations(context, arguments, is_read_only)?;
    let writes = operations.iter().any(|it| !matches!(it.action, Action::Get));
    if !writes {
        let Context { objects, reply, .. } = context;
        return objects.with_text(key, |value| {
            let value = value.unwrap_or_default();
            reply.array(operations.len());
            for Operation { form, offset, .. } in &operations {
                reply.integer(form.read(value, *offset) as i64);
            }
        });
    }
    let (mut value, expires) = context.objects.find_copy(key)?;
    // Also an operation that fails makes the string longer.
    let written = operations.iter().filter(|it| !matches!(it.action, Action::Get));
    let end = written.map(|it| it.form.end(it.offset)).max().unwrap_or(0);
    let grows = value.len() < end;
    if grows {
        value.resize(end, 0);
    }
    context.reply.array(operations.len());
    let mut is_changed = false;
    for Operation { action, form, offset, overflow } in operations {
        let before = form.read(&value, offset);
        // An unsigned field takes the bits of a negative number.
        let (wanted, is_sum) = match action {
            Action::Get => {
                context.reply.integer(before as i64);
                continue;
            }
            Action::Set(number) if form.is_signed => (i128::from(number), false),
            Action::Set(number) => (i128::from(number as u64), false),
            Action::Add(delta) => (before + i128::from(delta), true),
        };
        match form.fitted(wanted, overflow) {
            Some(number) => {
                is_changed |= grows || number != before;
                form.write(&mut value, offset, number);
                context.reply.integer(if is_sum { number } else { before } as i64);
            }
            None => context.reply.null(),
        }
    }
    // Fields that keep their numbers are no change: clients that watch the key do not notice.
    if grows || is_changed {
        context.objects.put(key, value, Kind::String, expires)?;
    }
    if is_changed {
        context.objects.event(Kinds::STRING, "setbit", key);
    }
    Ok(())
}
