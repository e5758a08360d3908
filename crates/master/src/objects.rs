//! Updates of single objects: the effect of each, exactly once.

mod expiring;

use crate::clients::{Clients, DuplicateCheck};
use crate::outcome::Outcome;
use thunderhead_log::{Bytes, Completion, Condition, Error, HashedKey, Log};
use thunderhead_wire::operations::{Identity, UpdateKind, UpdatePart};
use thunderhead_wire::{KeyHash, LeaseId, Status, TableId, ValueKind, Version};

/// Does an update, or finds out that it was done.
#[inline]
pub(crate) fn update(
    log: &mut Log,
    clients: &mut Clients,
    identity: &Identity,
    part: &UpdatePart<'_>,
    key: HashedKey<'_>,
) -> Outcome {
    let (table, Some(condition)) = (part.head.table(), part.head.condition()) else {
        return Outcome::refused(Status::Malformed, Version::NONE);
    };
    if identity.lease() != LeaseId::NONE {
        match clients.check_duplicate(log, identity, (table, key)) {
            DuplicateCheck::New => {}
            DuplicateCheck::Done => {
                let recorded = log.completion(identity.lease(), identity.sequence());
                // The log's checksum covers these bytes, and this crate wrote them.
                let outcome = recorded.and_then(|it| Outcome::of_record(&it.to_vec()));
                let unreadable = Outcome::refused(Status::Stale, Version::NONE);
                return outcome.map_or(unreadable, |(_, outcome)| outcome);
            }
            DuplicateCheck::Refused(refused) => return refused,
        }
    }
    let done = match part.kind {
        UpdateKind::Write => put(log, identity, (table, key), (part.argument, None), condition),
        UpdateKind::Increment => match increment(log, identity, part, key, condition) {
            Ok((version, sum)) => return Outcome { sum: Some(sum), ..Outcome::done(version) },
            Err(refused) => Err(refused),
        },
        UpdateKind::Delete => delete(log, identity, (table, part.key), condition),
        UpdateKind::WriteNumber => {
            let kind = part.head.number_kind();
            match exactly_eight(part.argument) {
                Some(number) => {
                    put_number(log, identity, (table, key), (&number, kind, None), condition)
                }
                None => Err(Outcome::refused(Status::Malformed, Version::NONE)),
            }
        }
        UpdateKind::WriteExpiring => expiring::put(log, identity, part, key, condition),
        UpdateKind::SetExpiry => expiring::set(log, identity, part, key, condition),
    };
    let refused = match done {
        Ok(version) => return Outcome::done(version),
        Err(refused) => refused,
    };
    // The refusal may tell the client that an object has expired.
    if refused.depends_on_object()
        && let Err(error) = log.settle_clock()
    {
        return Outcome::of_error(&error);
    }
    if identity.lease() == LeaseId::NONE {
        return refused;
    }
    let recorded = if refused.depends_on_object() {
        record(log, identity, (table, part.key), refused)
    } else {
        Err(refused)
    };
    recorded.unwrap_or_else(|refused| {
        clients.not_made(identity);
        refused
    })
}

/// Adds to a number of the same kind. Returns the sum's version, and the sum.
fn increment(
    log: &mut Log,
    identity: &Identity,
    part: &UpdatePart<'_>,
    key: HashedKey<'_>,
    condition: Condition,
) -> Result<(Version, [u8; 8]), Outcome> {
    let table = part.head.table();
    let object = log.read(table, part.key).map_err(|error| Outcome::of_error(&error))?;
    let current = object.as_ref().map_or(Version::NONE, |object| object.version());
    if !condition.holds(current) {
        return Err(Outcome::refused(Status::ConditionFailed, current));
    }
    let Some(by) = exactly_eight(part.argument) else {
        return Err(Outcome::refused(Status::Malformed, Version::NONE));
    };
    let kind = part.head.number_kind();
    let refused = Outcome::refused(Status::NotANumber, current);
    let value = match &object {
        // Not by its length: 8 bytes of text are no number.
        Some(object) if object.kind() == kind => eight_of(&object.value()).ok_or(refused)?,
        Some(_) => return Err(refused),
        None => [0; 8],
    };
    let sum = if part.head.is_float() { sum_of_floats(value, by) } else { sum(value, by) };
    let sum = sum.ok_or(Outcome::refused(Status::Overflow, current))?;
    // The version was read just now, and this thread is the only writer.
    let unchanged = match current {
        Version::NONE => Condition::Absent,
        version => Condition::VersionIs(version),
    };
    let number = (&sum, kind, Some(sum));
    // An object that exists keeps its attributes, also where others get some by default.
    let kept = object.filter(|it| it.is_item() || log.writes_items()).map(|it| it.attributes());
    let put = match kept {
        None => put_number(log, identity, (table, key), number, unchanged),
        Some(attributes) => log.with_attributes(attributes, |log| {
            put_number(log, identity, (table, key), number, unchanged)
        }),
    };
    match put {
        // The number has expired since it was read, so there is none now.
        Err(refused) if refused.status == Status::ConditionFailed && current != Version::NONE => {
            increment(log, identity, part, key, condition)
        }
        done => Ok((done?, sum)),
    }
}

fn exactly_eight(bytes: &[u8]) -> Option<[u8; 8]> {
    bytes.try_into().ok()
}

/// The number in a value, which nearly always lies in one piece.
fn eight_of(value: &Bytes<'_>) -> Option<[u8; 8]> {
    value.as_slice().map_or_else(|| exactly_eight(&value.to_vec()), exactly_eight)
}

fn sum(value: [u8; 8], by: [u8; 8]) -> Option<[u8; 8]> {
    Some(i64::from_le_bytes(value).checked_add(i64::from_le_bytes(by))?.to_le_bytes())
}

/// Returns the sum, unless it is infinite or not a number.
fn sum_of_floats(value: [u8; 8], by: [u8; 8]) -> Option<[u8; 8]> {
    let sum = f64::from_le_bytes(value) + f64::from_le_bytes(by);
    sum.is_finite().then_some(sum.to_le_bytes())
}

/// Makes a number the object's, as [`put`] does with bytes.
#[inline(never)]
fn put_number(
    log: &mut Log,
    identity: &Identity,
    place: (TableId, HashedKey<'_>),
    (number, kind, sum): (&[u8; 8], ValueKind, Option<[u8; 8]>),
    condition: Condition,
) -> Result<Version, Outcome> {
    log.of_kind(kind, |log| put(log, identity, place, (number, sum), condition))
}

/// Makes a value, which may be the sum of an increment, the object's value. If the update has an
/// identity, also records the outcome.
#[inline]
fn put(
    log: &mut Log,
    identity: &Identity,
    (table, key): (TableId, HashedKey<'_>),
    (value, sum): (&[u8], Option<[u8; 8]>),
    condition: Condition,
) -> Result<Version, Outcome> {
    let refused = |error: Error| Outcome::of_error(&error);
    if identity.lease() == LeaseId::NONE {
        let written = log.write_expected(table, key, value, condition).map_err(refused)?;
        return Ok(written.version);
    }
    let first = identity.first_unacknowledged();
    let to_record = |version| Outcome { sum, ..Outcome::done(version) }.to_record(first);
    let name = (identity.lease(), identity.sequence());
    let written = log.write_recorded(table, key, value, condition, name, to_record);
    Ok(written.map_err(refused)?.version)
}

/// Deletes an object. Returns the version that it had.
fn delete(
    log: &mut Log,
    identity: &Identity,
    (table, key): (TableId, &[u8]),
    condition: Condition,
) -> Result<Version, Outcome> {
    let refused = |error: Error| Outcome::of_error(&error);
    if identity.lease() == LeaseId::NONE {
        let deleted = log.delete(table, key, condition).map_err(refused)?;
        if deleted.is_none() {
            log.settle_clock().map_err(refused)?;
        }
        return Ok(deleted.unwrap_or(Version::NONE));
    }
    // The record holds the outcome, so the version must be known before.
    let object = log.read(table, key).map_err(refused)?;
    let current = object.map_or(Version::NONE, |object| object.version());
    let result = Outcome::done(current).to_record(identity.first_unacknowledged());
    let (lease, sequence) = (identity.lease(), identity.sequence());
    let completion = Completion { lease, sequence, result: result.as_ref() };
    log.settle_clock().map_err(refused)?;
    log.delete_completed(table, key, condition, completion).map_err(refused)?;
    // The object may have expired since it was read.
    log.settle_clock().map_err(refused)?;
    Ok(current)
}

/// Records that an update was refused. Where there is no room for that, it has not been.
fn record(
    log: &mut Log,
    identity: &Identity,
    (table, key): (TableId, &[u8]),
    refused: Outcome,
) -> Result<Outcome, Outcome> {
    let result = refused.to_record(identity.first_unacknowledged());
    let (lease, sequence) = (identity.lease(), identity.sequence());
    let completion = Completion { lease, sequence, result: result.as_ref() };
    let recorded = log.complete(table, KeyHash::of(key), completion);
    recorded.map(|_| refused).map_err(|error| Outcome::of_error(&error))
}
