//! When objects expire.
//!
//! A write gives its object a time to live with `ttl_ms` of its `th_call` or `th_op`. The functions
//! here change it and read it.

use crate::abi::{th_call, th_condition, th_error, th_slice};
use crate::arguments;
use crate::client::{ALWAYS, change, hand_over, th_client, update};
use crate::entry::entry;
use crate::sized;
use crate::status::{TH_OK, th_status};
use thunderhead_client::{Action, Answer, Error};

/// Changes when an object expires, if a condition holds: it lives for `ttl_ms` milliseconds from
/// now on, or for ever with `TH_NEVER`. Hands over its new version, or 0 if it does not exist,
/// unless `version` is `NULL`. `call` may be `NULL`.
///
/// Returns `TH_CONDITION_FAILED` if the condition does not hold; `error->version` is the version
/// that the object has.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "C has no other way to leave arguments out")]
pub unsafe extern "C" fn th_set_expiry(
    client: *mut th_client,
    table: u64,
    key: th_slice,
    ttl_ms: u64,
    condition: th_condition,
    call: *const th_call,
    version: *mut u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        let action = || Ok(Action::SetExpiry(arguments::given_time_to_live(ttl_ms)?));
        // SAFETY: the caller keeps the header's rules for pointers.
        unsafe { change(client, (table, key, condition), call, action, version) }
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Hands over how long an object still lives, in milliseconds: `TH_NEVER` if it does not expire, 0
/// if it does not exist. Hands over its version, or 0, unless `version` is `NULL`. `call` may be
/// `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_get_ttl(
    client: *mut th_client,
    table: u64,
    key: th_slice,
    call: *const th_call,
    ttl_ms: *mut u64,
    version: *mut u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (place, its_version) = unsafe {
            let place = sized::place(ttl_ms, "ttl_ms")?;
            (place, sized::optional_place(version, "version")?)
        };
        let action = || Ok(Action::ReadExpiry);
        // SAFETY: as above.
        let (left, version) = match unsafe { update(client, (table, key, ALWAYS), call, action) }? {
            Answer::Lives { version, time_to_live } => (time_to_live.code(), version.0),
            Answer::Absent => (0, 0),
            _ => return Err(Error::Incomprehensible.into()),
        };
        place.write(left);
        hand_over(its_version, version);
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}
