//! Updates of single objects: what each does, and that it does it once.

use crate::clients::Clients;
use crate::outcome::Outcome;
use thunderhead_log::{Completion, Condition, Error, Log};
use thunderhead_wire::operations::{Identity, UpdateKind, UpdatePart};
use thunderhead_wire::{KeyHash, Status, TableId, Version};

/// What an update will do to an object, once it has been looked at.
enum Effect<'a> {
    Write(&'a [u8]),
    Sum([u8; 8]),
    Delete,
}

/// Does an update, or finds out that it was done.
pub(crate) fn update(
    log: &mut Log,
    clients: &mut Clients,
    identity: Identity,
    part: &UpdatePart<'_>,
) -> Outcome {
    if identity.lease() != 0 {
        if clients.is_stale(identity) {
            return Outcome::refused(Status::Stale, Version::NONE);
        }
        if let Some(recorded) = log.completion(identity.lease(), identity.sequence()) {
            // What is in the log was checked by its checksum, and written by us.
            let outcome = Outcome::of_record(&recorded.to_vec());
            let unreadable = Outcome::refused(Status::Stale, Version::NONE);
            return outcome.map_or(unreadable, |(_, outcome)| outcome);
        }
        if let Err(refused) = clients.admit(log, identity) {
            return refused;
        }
    }
    let UpdatePart { head, key, .. } = *part;
    let (table, Some(condition)) = (head.table(), head.condition()) else {
        return Outcome::refused(Status::Malformed, Version::NONE);
    };
    if identity.lease() == 0 && part.kind == UpdateKind::Write {
        // Nothing of it is recorded, so it need not be known before what comes of it.
        let written = log.write_if(table, key, part.argument, condition);
        return match written {
            Ok(written) => Outcome::done(written.version),
            Err(error) => Outcome::of_error(&error),
        };
    }
    let outcome = match decide(log, part, table, condition) {
        Ok((effect, current)) => {
            // It was looked at just now, and nobody else writes here.
            let condition = match current {
                Version::NONE => Condition::Absent,
                version => Condition::VersionIs(version),
            };
            carry_out(log, clients, identity, (table, key), &effect, condition)
        }
        Err(refused) => Err(refused),
    };
    match outcome {
        Ok(outcome) => outcome,
        Err(refused) if identity.lease() != 0 && refused.depends_on_object() => {
            record(log, clients, identity, (table, key), refused)
        }
        Err(refused) => refused,
    }
}

/// What an update does to the object as it is now, and which version that is.
fn decide<'a>(
    log: &Log,
    part: &UpdatePart<'a>,
    table: TableId,
    condition: Condition,
) -> Result<(Effect<'a>, Version), Outcome> {
    let object = log.read(table, part.key).map_err(|error| Outcome::of_error(&error))?;
    let current = object.as_ref().map_or(Version::NONE, |object| object.version());
    if !condition.holds(current) {
        return Err(Outcome::refused(Status::ConditionFailed, current));
    }
    let effect = match part.kind {
        UpdateKind::Write => Effect::Write(part.argument),
        UpdateKind::Delete => Effect::Delete,
        UpdateKind::Increment => {
            let Some(by) = exactly_eight(part.argument) else {
                return Err(Outcome::refused(Status::Malformed, Version::NONE));
            };
            let value = match &object {
                Some(object) if object.value().len() == 8 => {
                    exactly_eight(&object.value().to_vec()).unwrap_or_default()
                }
                Some(_) => return Err(Outcome::refused(Status::NotANumber, current)),
                None => [0; 8],
            };
            let sum = if part.head.is_float() { sum_of_floats(value, by) } else { sum(value, by) };
            Effect::Sum(sum.ok_or(Outcome::refused(Status::Overflow, current))?)
        }
    };
    Ok((effect, current))
}

fn exactly_eight(bytes: &[u8]) -> Option<[u8; 8]> {
    bytes.try_into().ok()
}

fn sum(value: [u8; 8], by: [u8; 8]) -> Option<[u8; 8]> {
    Some(i64::from_le_bytes(value).checked_add(i64::from_le_bytes(by))?.to_le_bytes())
}

/// Infinity and what is no number are no sums either.
fn sum_of_floats(value: [u8; 8], by: [u8; 8]) -> Option<[u8; 8]> {
    let sum = f64::from_le_bytes(value) + f64::from_le_bytes(by);
    sum.is_finite().then_some(sum.to_le_bytes())
}

/// Does it, and records that with it where the update has an identity.
fn carry_out(
    log: &mut Log,
    clients: &mut Clients,
    identity: Identity,
    (table, key): (TableId, &[u8]),
    effect: &Effect<'_>,
    condition: Condition,
) -> Result<Outcome, Outcome> {
    let (value, sum) = match effect {
        Effect::Write(value) => (Some(*value), None),
        Effect::Sum(sum) => (Some(sum.as_slice()), Some(*sum)),
        Effect::Delete => (None, None),
    };
    let refused = |error: Error| Outcome::of_error(&error);
    if identity.lease() == 0 {
        let version = match value {
            Some(value) => log.write_if(table, key, value, condition).map_err(refused)?.version,
            None => log.delete(table, key, condition).map_err(refused)?.unwrap_or(Version::NONE),
        };
        return Ok(Outcome { sum, ..Outcome::done(version) });
    }
    // The record holds the outcome, so the new version must be known before.
    let version = match (value, condition) {
        (Some(_), Condition::VersionIs(current)) => current.next(),
        (Some(_), _) => log.safe_version().next(),
        (None, Condition::VersionIs(current)) => current,
        (None, _) => Version::NONE,
    };
    let outcome = Outcome { sum, ..Outcome::done(version) };
    let result = outcome.to_record(identity.first_unacknowledged());
    let (lease, sequence) = (identity.lease(), identity.sequence());
    let completion = Completion { lease, sequence, result: &result };
    match value {
        Some(value) => {
            let written = log.write_completed(table, key, value, condition, completion);
            let written = written.map_err(refused)?;
            debug_assert_eq!(written.version, version, "the record says so");
        }
        None => {
            log.delete_completed(table, key, condition, completion).map_err(refused)?;
        }
    }
    clients.recorded(identity);
    Ok(outcome)
}

/// Records that an update was refused. Where there is no room for that, it has not been.
fn record(
    log: &mut Log,
    clients: &mut Clients,
    identity: Identity,
    (table, key): (TableId, &[u8]),
    refused: Outcome,
) -> Outcome {
    let result = refused.to_record(identity.first_unacknowledged());
    let (lease, sequence) = (identity.lease(), identity.sequence());
    let completion = Completion { lease, sequence, result: &result };
    match log.complete(table, KeyHash::of(key), completion) {
        Ok(_) => {
            clients.recorded(identity);
            refused
        }
        Err(error) => Outcome::of_error(&error),
    }
}
