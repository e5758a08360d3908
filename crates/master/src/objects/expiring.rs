//! Updates that decide when an object expires.
//!
//! The time to live begins when the master does the update, by the clock of its log. A repeated
//! request finds the record of the first one, so it does not prolong the object's life.

use super::{exactly_eight, record};
use crate::outcome::Outcome;
use thunderhead_log::{Attributes, Condition, HashedKey, Log};
use thunderhead_wire::operations::{ExpiringHead, Identity, UpdatePart};
use thunderhead_wire::{LeaseId, Status, TimeToLive, Version};

/// Writes an object that expires. Returns its version.
#[cold]
#[inline(never)]
pub(super) fn put(
    log: &mut Log,
    identity: &Identity,
    part: &UpdatePart<'_>,
    key: HashedKey<'_>,
    condition: Condition,
) -> Result<Version, Outcome> {
    let (time_to_live, kind, value) = ExpiringHead::take(part.argument).ok_or(malformed())?;
    let attributes = Attributes { expires: expires(log, time_to_live)?, ..log.attributes() };
    log.with_attributes(attributes, |log| {
        let place = (part.head.table(), key);
        log.of_kind(kind, |log| super::put(log, identity, place, (value, None), condition))
    })
}

/// Changes when an object expires, by writing it again. Returns its new version, or none if it does
/// not exist.
#[cold]
#[inline(never)]
pub(super) fn set(
    log: &mut Log,
    identity: &Identity,
    part: &UpdatePart<'_>,
    key: HashedKey<'_>,
    condition: Condition,
) -> Result<Version, Outcome> {
    let code = exactly_eight(part.argument).map(u64::from_le_bytes).ok_or(malformed())?;
    let expires = expires(log, TimeToLive::of_code(code))?;
    let table = part.head.table();
    let object = log.read(table, part.key).map_err(|error| Outcome::of_error(&error))?;
    let current = object.as_ref().map_or(Version::NONE, |object| object.version());
    if !condition.holds(current) {
        return Err(Outcome::refused(Status::ConditionFailed, current));
    }
    let Some(object) = object else { return absent(log, identity, part) };
    let (value, kind) = (object.value().to_vec(), object.kind());
    let attributes = Attributes { expires, ..object.attributes() };
    let unchanged = Condition::VersionIs(current);
    let put = log.with_attributes(attributes, |log| {
        let place = (table, key);
        log.of_kind(kind, |log| super::put(log, identity, place, (&value, None), unchanged))
    });
    match put {
        // This thread is the only writer, so the object has expired since it was read.
        Err(refused) if refused.status == Status::ConditionFailed => {
            set(log, identity, part, key, condition)
        }
        put => put,
    }
}

/// The outcome for an object that does not exist, once its absence may be told.
fn absent(log: &mut Log, identity: &Identity, part: &UpdatePart<'_>) -> Result<Version, Outcome> {
    log.settle_clock().map_err(|error| Outcome::of_error(&error))?;
    let absent = Outcome::done(Version::NONE);
    if identity.lease() != LeaseId::NONE {
        record(log, identity, (part.head.table(), part.key), absent)?;
    }
    Ok(absent.version)
}

fn expires(log: &Log, time_to_live: TimeToLive) -> Result<thunderhead_log::Timestamp, Outcome> {
    let expires = time_to_live.expires(log.time());
    expires.map_err(|status| Outcome::refused(status, Version::NONE))
}

fn malformed() -> Outcome {
    Outcome::refused(Status::Malformed, Version::NONE)
}
