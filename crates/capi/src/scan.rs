//! Scans: all objects of a table, page by page behind the caller's back.

use crate::abi::{TH_BYTES, TH_DOUBLE, TH_INT64, th_call, th_error, th_object};
use crate::arguments;
use crate::client::{Shared, slice, th_client};
use crate::entry::entry;
use crate::failure::Failure;
use crate::sized;
use crate::status::{TH_END, TH_IN_USE, TH_OK, th_status};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;
use thunderhead_client::{Enumeration, Error, Object, TableId, ValueKind};

/// A scan of all objects of a table, for one thread at a time.
#[allow(non_camel_case_types, reason = "it is a name of C")]
pub struct th_scan {
    client: Arc<Shared>,
    state: Mutex<State>,
}

struct State {
    enumeration: Enumeration,
    deadline: Option<Duration>,
    page: std::vec::IntoIter<Object>,
    /// The object that the last call returned. It belongs to the caller until the next call.
    object: Option<Object>,
    /// The failure that ended the scan.
    failure: Option<Failure>,
}

impl th_scan {
    fn lock(&self) -> Result<MutexGuard<'_, State>, Failure> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::refusal(TH_IN_USE, "another thread uses the scan now"))
            }
            Err(TryLockError::Poisoned(_)) => Err(Failure::broken()),
        }
    }
}

impl State {
    /// Takes the next object; `None` at the end. Fetches a page if none is left.
    fn next(&mut self, client: &Shared) -> Result<Option<Object>, Failure> {
        loop {
            if let Some(object) = self.page.next() {
                return Ok(Some(object));
            }
            let Some(operation) = self.enumeration.next() else { return Ok(None) };
            let results = client.lock()?.begin(self.deadline)?.all(vec![operation]);
            let answer = results.into_iter().next().unwrap_or(Err(Error::Incomprehensible))?;
            let page = self.enumeration.answered(answer).ok_or(Error::Incomprehensible)?;
            self.page = page.into_iter();
        }
    }
}

/// Begins a scan of all objects of a table, in no particular order. Sends nothing yet.
///
/// An object that exists during the whole scan is returned exactly once. An object that is created
/// or deleted during the scan may be returned or not. The deadline in `call`, which may be `NULL`,
/// holds for each page. Other calls on the client are allowed during the scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_scan_open(
    client: *mut th_client,
    table: u64,
    call: *const th_call,
    scan: *mut *mut th_scan,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (place, client, deadline) = unsafe {
            let place = sized::place(scan, "scan")?;
            place.write(std::ptr::null_mut());
            (place, sized::handle(client, "client")?, arguments::call(call)?)
        };
        client.shared.lock()?.begin(None)?;
        let state = State {
            enumeration: Enumeration::new(TableId(table)),
            deadline,
            page: Vec::new().into_iter(),
            object: None,
            failure: None,
        };
        let scan = th_scan { client: Arc::clone(&client.shared), state: Mutex::new(state) };
        place.write(Box::into_raw(Box::new(scan)));
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Hands over the next object of a scan. Returns `TH_END`, which is not an error, after the last
/// one.
///
/// Any other status than `TH_OK` and `TH_END` means that the scan failed and that objects are
/// missing. Later calls return the same failure. The exceptions are `TH_IN_USE` and bad arguments:
/// then the scan goes on with the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_scan_next(
    scan: *mut th_scan,
    object: *mut th_object,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (scan, mut filled) = unsafe { (sized::handle(scan, "scan")?, sized::output(object)?) };
        // A page of the parent is of no use to a child: the rest of the scan would fail.
        if scan.client.is_forked() {
            return Err(Error::Forked.into());
        }
        let mut state = scan.lock()?;
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        state.object = None;
        match state.next(&scan.client) {
            Ok(None) => return Ok(TH_END),
            Ok(object) => state.object = object,
            Err(failure) => {
                if failure.status != TH_IN_USE {
                    state.failure = Some(failure.clone());
                }
                return Err(failure);
            }
        }
        if let Some(Object { version, key, kind, value }) = &state.object {
            filled.fill(&th_object {
                size: 0,
                version: version.0,
                key: slice(key),
                value: slice(value),
                kind: match kind {
                    ValueKind::Bytes => TH_BYTES,
                    ValueKind::Integer => TH_INT64,
                    ValueKind::Float => TH_DOUBLE,
                },
                reserved: 0,
            });
        }
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Ends a scan and releases it. `NULL` is allowed. Returns `TH_IN_USE`, and releases nothing, while
/// another thread uses the scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_scan_free(scan: *mut th_scan) -> th_status {
    let work = || {
        if scan.is_null() {
            return Ok(TH_OK);
        }
        {
            // SAFETY: the caller keeps the header's rules for pointers.
            let scan = unsafe { sized::handle(scan, "scan") }?;
            if let Err(failure) = scan.lock()
                && failure.status == TH_IN_USE
                && !scan.client.is_forked()
            {
                return Err(failure);
            }
        }
        // SAFETY: `th_scan_open` made it with `Box::into_raw`, and it has not been freed before.
        drop(unsafe { Box::from_raw(scan) });
        Ok(TH_OK)
    };
    // SAFETY: there is no error to fill.
    unsafe { entry(std::ptr::null_mut(), work) }
}
