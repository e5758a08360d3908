//! The checks of arguments, and their translation for the client.
//!
//! Bad arguments refuse a call as a whole: nothing was done then, not even for other elements of an
//! array. The limits of keys and values are checked here too, so that such a mistake costs no
//! message.

use crate::abi::{
    TH_ABSENT, TH_ALWAYS, TH_CACHE, TH_DURABLE, TH_KEY_BYTES_MAX, TH_OP_DELETE, TH_OP_GET,
    TH_OP_GET_TTL, TH_OP_INCREMENT, TH_OP_INCREMENT_DOUBLE, TH_OP_PUT, TH_OP_PUT_DOUBLE,
    TH_OP_PUT_INT64, TH_OP_SET_EXPIRY, TH_OP_TABLE_CREATE, TH_OP_TABLE_DROP, TH_OP_TABLE_OPEN,
    TH_OPS_MAX, TH_PRESENT, TH_VALUE_BYTES_MAX, TH_VERSION_BELOW, TH_VERSION_IS, th_call,
    th_condition, th_op, th_table_options,
};
use crate::failure::Failure;
use crate::sized;
use crate::status::{
    TH_BAD_ARGUMENT, TH_BAD_NAME, TH_BAD_TIME_TO_LIVE, TH_KEY_EMPTY, TH_KEY_TOO_LONG, TH_NOT_UTF8,
    TH_VALUE_TOO_LONG,
};
use std::time::Duration;
use thunderhead_client::control::{CreateTable, DropTable, Policy, TableOptions};
use thunderhead_client::{
    Action, Condition, Number, Operation, Question, Request, Status, TableId, TimeToLive, Version,
};

/// The longest deadline: a year. A longer one is more likely a mistake of units.
const DEADLINE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// The most bytes of a table's name.
const NAME_BYTES_MAX: usize = 255;

/// Returns a name, if it is UTF-8.
pub(crate) fn utf8<'a>(bytes: &'a [u8], name: &'static str) -> Result<&'a str, Failure> {
    std::str::from_utf8(bytes)
        .map_err(|_| Failure::refusal(TH_NOT_UTF8, format!("the argument {name} is not UTF-8")))
}

/// Checks the name of a table.
pub(crate) fn table_name(name: &str) -> Result<&str, Failure> {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    fits.then_some(name).ok_or_else(|| Failure::refusal(TH_BAD_NAME, Status::BadName.text()))
}

/// Checks the number of elements of an array.
pub(crate) fn check_count(count: usize) -> Result<(), Failure> {
    if count <= TH_OPS_MAX {
        return Ok(());
    }
    let why = format!("an array has {count} elements; at most {TH_OPS_MAX} are allowed");
    Err(Failure::refusal(TH_BAD_ARGUMENT, why))
}

/// Returns a time limit; `None` for 0.
#[inline]
pub(crate) fn deadline(us: u64) -> Result<Option<Duration>, Failure> {
    let deadline = Duration::from_micros(us);
    if deadline > DEADLINE_MAX {
        let why = format!("a deadline of {us} microseconds is longer than a year");
        return Err(Failure::refusal(TH_BAD_ARGUMENT, why));
    }
    Ok((us > 0).then_some(deadline))
}

/// Returns the time limit of one call; `None` for the client's.
///
/// # Safety
/// As for [`sized::input`].
#[inline]
pub(crate) unsafe fn call(call: *const th_call) -> Result<Option<Duration>, Failure> {
    // SAFETY: as the caller vouches.
    match unsafe { sized::optional(call) }? {
        Some(call) if call.ttl_ms != 0 => Err(no_time_to_live()),
        Some(call) => deadline(call.deadline_us),
        None => Ok(None),
    }
}

/// Returns the time limit of one write, and how long its object lives; `None` for the table's
/// default.
///
/// # Safety
/// As for [`sized::input`].
#[inline]
pub(crate) unsafe fn call_of_write(
    call: *const th_call,
) -> Result<(Option<Duration>, Option<TimeToLive>), Failure> {
    // SAFETY: as the caller vouches.
    match unsafe { sized::optional(call) }? {
        Some(call) => Ok((deadline(call.deadline_us)?, time_to_live(call.ttl_ms))),
        None => Ok((None, None)),
    }
}

/// Returns how long an object lives; `None` for the table's default.
fn time_to_live(ttl_ms: u64) -> Option<TimeToLive> {
    (ttl_ms > 0).then(|| TimeToLive::of_code(ttl_ms))
}

/// Returns how long an object lives from now on.
pub(crate) fn given_time_to_live(ttl_ms: u64) -> Result<TimeToLive, Failure> {
    let missing = || Failure::refusal(TH_BAD_TIME_TO_LIVE, Status::BadTimeToLive.text());
    time_to_live(ttl_ms).ok_or_else(missing)
}

#[cold]
fn no_time_to_live() -> Failure {
    let why = "only writes of one object and changes of its expiry have a time to live";
    Failure::refusal(TH_BAD_ARGUMENT, why)
}

/// The action of a write.
pub(crate) fn write(value: &[u8], time_to_live: Option<TimeToLive>) -> Action {
    match time_to_live {
        None => Action::Write(value.to_vec()),
        Some(time_to_live) => Action::WriteExpiring(value.to_vec(), time_to_live),
    }
}

/// The action of a write of a number.
pub(crate) fn write_number(number: Number, time_to_live: Option<TimeToLive>) -> Action {
    match time_to_live {
        None => Action::WriteNumber(number),
        Some(time_to_live) => Action::WriteNumberExpiring(number, time_to_live),
    }
}

/// Checks a key.
#[inline]
pub(crate) fn key(key: &[u8]) -> Result<&[u8], Failure> {
    if key.is_empty() {
        Err(Failure::refusal(TH_KEY_EMPTY, Status::KeyEmpty.text()))
    } else if key.len() > TH_KEY_BYTES_MAX {
        Err(Failure::refusal(TH_KEY_TOO_LONG, Status::KeyTooLong.text()))
    } else {
        Ok(key)
    }
}

/// Checks a value.
#[inline]
pub(crate) fn value(value: &[u8]) -> Result<&[u8], Failure> {
    if value.len() > TH_VALUE_BYTES_MAX {
        return Err(Failure::refusal(TH_VALUE_TOO_LONG, Status::ValueTooLong.text()));
    }
    Ok(value)
}

/// Translates a condition.
pub(crate) fn condition(from: th_condition) -> Result<Condition, Failure> {
    let version = Version(from.version);
    let is_plain = from.reserved == 0 && (from.version == 0 || from.kind >= TH_VERSION_IS);
    let condition = match from.kind {
        TH_ALWAYS => Condition::Always,
        TH_ABSENT => Condition::Absent,
        TH_PRESENT => Condition::Present,
        TH_VERSION_IS => Condition::VersionIs(version),
        TH_VERSION_BELOW => Condition::VersionBelow(version),
        _ => return Err(bad_condition()),
    };
    if is_plain { Ok(condition) } else { Err(bad_condition()) }
}

#[cold]
fn bad_condition() -> Failure {
    let why = "a condition is malformed; make it with th_version_is() or its sisters";
    Failure::refusal(TH_BAD_ARGUMENT, why)
}

/// Translates an operation on an object.
///
/// # Safety
/// Its slices are valid: see [`sized::bytes`]. So are its options of a table: see
/// [`sized::input`].
pub(crate) unsafe fn operation(op: &th_op) -> Result<Operation, Failure> {
    check_reserved(op)?;
    // SAFETY: as the caller vouches.
    let (its_key, its_value) =
        unsafe { (sized::bytes(op.key, "key")?, sized::bytes(op.value, "value")?) };
    let its_key = key(its_key)?;
    let condition = condition(op.condition)?;
    let time_to_live = time_to_live(op.ttl_ms);
    let action = match op.kind {
        TH_OP_PUT => write(value(its_value)?, time_to_live),
        TH_OP_PUT_INT64 => write_number(Number::Integer(op.integer), time_to_live),
        TH_OP_PUT_DOUBLE => write_number(Number::Float(op.real), time_to_live),
        TH_OP_SET_EXPIRY => Action::SetExpiry(given_time_to_live(op.ttl_ms)?),
        _ if op.ttl_ms != 0 => return Err(no_time_to_live()),
        TH_OP_GET => Action::Read,
        TH_OP_GET_TTL => Action::ReadExpiry,
        TH_OP_DELETE => Action::Delete,
        TH_OP_INCREMENT => Action::Increment(Number::Integer(op.integer)),
        TH_OP_INCREMENT_DOUBLE => Action::Increment(Number::Float(op.real)),
        kind => {
            let why = format!("no operation on an object has the kind {kind}");
            return Err(Failure::refusal(TH_BAD_ARGUMENT, why));
        }
    };
    let has_none = matches!(action, Action::Read | Action::ReadExpiry | Action::Increment(_));
    if condition != Condition::Always && has_none {
        let why = "reads and increments have no condition";
        return Err(Failure::refusal(TH_BAD_ARGUMENT, why));
    }
    Ok(Operation { table: TableId(op.table), key: its_key.to_vec(), condition, action })
}

/// Translates an operation on an object or a table.
///
/// # Safety
/// As for [`operation`].
pub(crate) unsafe fn request(op: &th_op) -> Result<Request, Failure> {
    if !(TH_OP_TABLE_CREATE..=TH_OP_TABLE_OPEN).contains(&op.kind) {
        // SAFETY: as the caller vouches.
        return unsafe { operation(op) }.map(|it| Request::Operations(vec![it]));
    }
    check_reserved(op)?;
    if op.ttl_ms != 0 {
        return Err(no_time_to_live());
    }
    // SAFETY: as the caller vouches.
    let name = unsafe { sized::bytes(op.key, "key") }?;
    let name = table_name(utf8(name, "key")?)?;
    Ok(Request::Question(match op.kind {
        TH_OP_TABLE_CREATE => {
            let server_span = span(u32::try_from(op.integer).unwrap_or(0))?;
            // SAFETY: as the caller vouches.
            let options = unsafe { table_options(op.table_options) }?;
            Question::CreateTable(CreateTable { options, ..CreateTable::spread(name, server_span) })
        }
        TH_OP_TABLE_DROP => Question::DropTable(DropTable::named(name)),
        _ => Question::Map(Some(name.to_owned())),
    }))
}

fn check_reserved(op: &th_op) -> Result<(), Failure> {
    if op.reserved != 0 {
        let why = "th_op.reserved is not 0; begin with zeros";
        return Err(Failure::refusal(TH_BAD_ARGUMENT, why));
    }
    if op.kind != TH_OP_TABLE_CREATE && !op.table_options.is_null() {
        let why = "only TH_OP_TABLE_CREATE has options of a table";
        return Err(Failure::refusal(TH_BAD_ARGUMENT, why));
    }
    Ok(())
}

/// Translates the options of a new table.
///
/// # Safety
/// As for [`sized::input`].
pub(crate) unsafe fn table_options(
    options: *const th_table_options,
) -> Result<TableOptions, Failure> {
    // SAFETY: as the caller vouches.
    let Some(given) = unsafe { sized::optional(options) }? else {
        return Ok(TableOptions::DEFAULT);
    };
    if given.reserved != 0 {
        let why = "th_table_options.reserved is not 0; begin with zeros";
        return Err(Failure::refusal(TH_BAD_ARGUMENT, why));
    }
    let policy = match given.policy {
        TH_DURABLE => Policy::Durable,
        TH_CACHE => Policy::Cache,
        policy => {
            let why = format!("no policy of a table has the number {policy}");
            return Err(Failure::refusal(TH_BAD_ARGUMENT, why));
        }
    };
    let th_table_options { max_bytes, reserved_bytes, .. } = given;
    let options = TableOptions { policy, max_bytes, reserved_bytes, ..TableOptions::DEFAULT };
    match time_to_live(given.ttl_ms) {
        None => Ok(options),
        Some(time) => options
            .with_time_to_live(time)
            .map_err(|status| Failure::refusal(TH_BAD_TIME_TO_LIVE, status.text())),
    }
}

/// Checks the number of shards of a new table.
pub(crate) fn span(span: u32) -> Result<u32, Failure> {
    if span == 0 {
        let why = "a table is spread over at least one shard";
        return Err(Failure::refusal(TH_BAD_ARGUMENT, why));
    }
    Ok(span)
}

/// Numbers an element in the text of its failure.
pub(crate) fn at_index(index: usize, failure: Failure) -> Failure {
    Failure { text: format!("element {index}: {}", failure.text).into(), ..failure }
}
