//! The synchronous client: the calling thread does the I/O.
//!
//! A client is for one thread at a time. A second thread that comes meanwhile is refused instead
//! of waiting, because it would wait for as long as a call of the first thread takes.

use crate::abi::{
    th_batch, th_call, th_condition, th_error, th_op, th_options, th_pair, th_slice, th_value,
};
use crate::arguments;
use crate::batch::{OwnedBatch, outcome};
use crate::entry::entry;
use crate::failure::Failure;
use crate::sized;
use crate::status::{TH_BAD_ARGUMENT, TH_BAD_URL, TH_IN_USE, TH_OK, th_status};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;
use thunderhead_client::{
    Action, Answer, Client, Condition, Error, ForkCount, Number, Operation, Options, TableId,
    TimeToLive,
};

/// The usual time between two calls of the interrupt callback.
const INTERRUPT_EVERY: Duration = Duration::from_millis(50);

/// The deadline of clients whose options have none.
const DEADLINE: Duration = Duration::from_secs(10);

/// A client of a cluster, for one thread at a time. The calling thread does the I/O.
#[allow(non_camel_case_types, reason = "it is a name of C")]
pub struct th_client {
    pub(crate) shared: Arc<Shared>,
}

/// The part of a client that its scans share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// The process that made the client.
    forks: ForkCount,
}

/// The part of a client that one thread uses at a time.
pub(crate) struct State {
    /// `None` once it is closed.
    client: Option<Client>,
    /// The time limit of calls that name none.
    deadline: Duration,
    /// The value that the last read returned. It belongs to the caller until the next call.
    value: Vec<u8>,
}

impl Shared {
    /// Whether the process is a child of the process that made the client.
    pub(crate) fn is_forked(&self) -> bool {
        self.forks.is_past()
    }

    /// Takes the client for a call of this thread.
    #[inline]
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State>, Failure> {
        // In the child of a fork, another thread of the parent may hold the lock for ever.
        if self.forks.is_past() {
            return Err(Error::Forked.into());
        }
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::WouldBlock) => {
                let why =
                    "another thread uses the handle now; give each thread its own, or a queue";
                Err(Failure::refusal(TH_IN_USE, why))
            }
            Err(TryLockError::Poisoned(_)) => Err(Failure::broken()),
        }
    }
}

impl State {
    /// Returns the client, with the time limit of this call.
    #[inline]
    pub(crate) fn begin(&mut self, deadline: Option<Duration>) -> Result<&mut Client, Failure> {
        let client = self.client.as_mut().ok_or_else(Failure::closed)?;
        client.set_deadline(Some(deadline.unwrap_or(self.deadline)));
        Ok(client)
    }

    /// Does one operation.
    fn operate(
        &mut self,
        deadline: Option<Duration>,
        operation: Operation,
    ) -> Result<Answer, Failure> {
        let mut results = self.begin(deadline)?.all(vec![operation]);
        Ok(results.pop().unwrap_or(Err(Error::Incomprehensible))?)
    }
}

/// The callback of the user and its argument.
struct Interrupt(unsafe extern "C" fn(*mut c_void) -> bool, *mut c_void);

// SAFETY: only the thread that uses the client calls it. The header says that any such thread may.
unsafe impl Send for Interrupt {}

impl Interrupt {
    fn is_wanted(&self) -> bool {
        // SAFETY: the callback is the user's own, and so is its argument.
        unsafe { (self.0)(self.1) }
    }
}

/// The settings of a client or queue.
pub(crate) struct Settings {
    options: Options,
    pub(crate) deadline: Duration,
    interrupt: Option<(Interrupt, Duration)>,
}

impl Settings {
    /// Reads the URL and the options.
    ///
    /// # Safety
    /// Both keep the header's rules for pointers.
    pub(crate) unsafe fn of(
        url: *const c_char,
        options: *const th_options,
    ) -> Result<Settings, Failure> {
        // SAFETY: as the caller vouches.
        let (url, given) = unsafe { (sized::text(url, "url")?, sized::optional(options)?) };
        let mut settings = Options::of_url(url)
            .map(|options| {
                let deadline = options.deadline.unwrap_or(DEADLINE);
                Settings { options, deadline, interrupt: None }
            })
            .map_err(|error| Failure::refusal(TH_BAD_URL, error.to_string()))?;
        if let Some(given) = given {
            if let Some(deadline) = arguments::deadline(given.deadline_us)? {
                settings.deadline = deadline;
            }
            let every = arguments::deadline(given.interrupt_every_us)?.unwrap_or(INTERRUPT_EVERY);
            settings.interrupt =
                given.interrupt.map(|it| (Interrupt(it, given.interrupt_context), every));
        }
        settings.options.deadline = Some(settings.deadline);
        Ok(settings)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    fn connect(self) -> Result<Client, Error> {
        match self.interrupt {
            None => Client::connect(&self.options),
            Some((interrupt, every)) => {
                Client::connect_interruptibly(&self.options, every, move || interrupt.is_wanted())
            }
        }
    }
}

/// Opens a client: connects to the cluster that a URL names, such as
/// `thunderhead://host1:7070,host2/?deadline=2s`. Waits until a coordinator answers.
///
/// `options` may be `NULL`. After a failure `*client` is `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_client_open(
    url: *const c_char,
    options: *const th_options,
    client: *mut *mut th_client,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let place = unsafe { sized::place(client, "client") }?;
        place.write(std::ptr::null_mut());
        // SAFETY: as above.
        let settings = unsafe { Settings::of(url, options) }?;
        let forks = ForkCount::now().map_err(|error| Error::System(error.kind()))?;
        let deadline = settings.deadline;
        let client = Some(settings.connect()?);
        let state = Mutex::new(State { client, deadline, value: Vec::new() });
        let shared = Arc::new(Shared { state, forks });
        place.write(Box::into_raw(Box::new(th_client { shared })));
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Closes a client and ends its lease, so that servers can forget its completion records. Waits for
/// a second at most. Later calls return `TH_CLOSED`; closing again does nothing. The handle stays
/// valid until `th_client_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_client_close(
    client: *mut th_client,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let handle = unsafe { sized::handle(client, "client") }?;
        close(handle)?;
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

fn close(client: &th_client) -> Result<(), Failure> {
    let mut state = client.shared.lock()?;
    state.value = Vec::new();
    if let Some(client) = state.client.take() {
        client.close();
    }
    Ok(())
}

/// Closes a client if it is open, and releases it. Its scans stay valid, but return `TH_CLOSED`.
/// `NULL` is allowed. In the child of a fork, it releases the child's copy only. Returns
/// `TH_IN_USE`, and releases nothing, while another thread uses the client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_client_free(client: *mut th_client) -> th_status {
    let work = || {
        if client.is_null() {
            return Ok(TH_OK);
        }
        // SAFETY: the caller keeps the header's rules for pointers.
        match close(unsafe { sized::handle(client, "client") }?) {
            Err(failure) if failure.status == TH_IN_USE => return Err(failure),
            // A client that forked or failed is released all the same.
            _ => {}
        }
        // SAFETY: `th_client_open` made it with `Box::into_raw`, and it has not been freed before.
        drop(unsafe { Box::from_raw(client) });
        Ok(TH_OK)
    };
    // SAFETY: there is no error to fill.
    unsafe { entry(std::ptr::null_mut(), work) }
}

/// Sets the time limit of all further calls of a client, in microseconds. At most a year; 0 is
/// refused, because no call may wait for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_client_set_deadline(
    client: *mut th_client,
    deadline_us: u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let handle = unsafe { sized::handle(client, "client") }?;
        let deadline = arguments::deadline(deadline_us)?.ok_or_else(|| {
            Failure::refusal(TH_BAD_ARGUMENT, "a deadline of 0 would leave no time for an answer")
        })?;
        let mut state = handle.shared.lock()?;
        state.begin(None)?;
        state.deadline = deadline;
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Reads an object. A missing object is not an error: `value->exists` is false then.
///
/// The bytes in `value` belong to the client and are valid until the next call on it. `call` may be
/// `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_get(
    client: *mut th_client,
    table: u64,
    key: th_slice,
    call: *const th_call,
    value: *mut th_value,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (client, key, deadline, mut filled) = unsafe {
            let client = sized::handle(client, "client")?;
            let key = sized::bytes(key, "key")?;
            (client, key, arguments::call(call)?, sized::output(value)?)
        };
        let key = arguments::key(key)?;
        let mut state = client.shared.lock()?;
        // The buffer is taken out of the state, because the client is borrowed from it too.
        let mut value = std::mem::take(&mut state.value);
        value.clear();
        let version = state.begin(deadline)?.get_with(TableId(table), key, |found| {
            found.map(|(version, bytes)| {
                value.extend_from_slice(bytes);
                version.0
            })
        });
        state.value = value;
        let version = version?;
        filled.fill(&th_value {
            size: 0,
            version: version.unwrap_or(0),
            value: slice(&state.value),
            exists: version.is_some(),
            reserved: [0; 7],
        });
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Returns a slice for the caller. It is never `NULL`, because many functions of C refuse `NULL`
/// even with a size of 0.
pub(crate) fn slice(bytes: &[u8]) -> th_slice {
    let bytes = if bytes.is_empty() { &b"\0"[..0] } else { bytes };
    th_slice { data: bytes.as_ptr().cast(), size: bytes.len() }
}

/// Changes or deletes an object, and hands over its version, or 0 if it does not exist.
///
/// # Safety
/// All pointers keep the header's rules.
pub(crate) unsafe fn change(
    client: *mut th_client,
    place: (u64, th_slice, th_condition),
    call: *const th_call,
    action: impl FnOnce() -> Result<Action, Failure>,
    version: *mut u64,
) -> Result<th_status, Failure> {
    // SAFETY: as the caller vouches.
    let to = unsafe { sized::optional_place(version, "version") }?;
    // SAFETY: as the caller vouches.
    match unsafe { update(client, place, call, action) }? {
        Answer::Written(version) | Answer::Deleted(version) => hand_over(to, version.0),
        Answer::Absent => hand_over(to, 0),
        _ => return Err(Error::Incomprehensible.into()),
    }
    Ok(TH_OK)
}

/// Does an update; returns the answer.
///
/// # Safety
/// All pointers keep the header's rules.
pub(crate) unsafe fn update(
    client: *mut th_client,
    (table, key, condition): (u64, th_slice, th_condition),
    call: *const th_call,
    action: impl FnOnce() -> Result<Action, Failure>,
) -> Result<Answer, Failure> {
    // SAFETY: as the caller vouches.
    let deadline = unsafe { arguments::call(call) }?;
    // SAFETY: as the caller vouches.
    unsafe { update_within(client, (table, key, condition), deadline, action) }
}

/// Does a write, whose object may have a time to live.
///
/// # Safety
/// All pointers keep the header's rules.
unsafe fn write(
    client: *mut th_client,
    place: (u64, th_slice, th_condition),
    call: *const th_call,
    action: impl FnOnce(Option<TimeToLive>) -> Result<Action, Failure>,
) -> Result<Answer, Failure> {
    // SAFETY: as the caller vouches.
    let (deadline, time_to_live) = unsafe { arguments::call_of_write(call) }?;
    // SAFETY: as the caller vouches.
    unsafe { update_within(client, place, deadline, || action(time_to_live)) }
}

/// Does an update within a time limit.
///
/// # Safety
/// All pointers keep the header's rules.
unsafe fn update_within(
    client: *mut th_client,
    (table, key, condition): (u64, th_slice, th_condition),
    deadline: Option<Duration>,
    action: impl FnOnce() -> Result<Action, Failure>,
) -> Result<Answer, Failure> {
    // SAFETY: as the caller vouches.
    let (client, key) = unsafe { (sized::handle(client, "client")?, sized::bytes(key, "key")?) };
    let key = arguments::key(key)?.to_vec();
    let condition = arguments::condition(condition)?;
    let operation = Operation { table: TableId(table), key, condition, action: action()? };
    client.shared.lock()?.operate(deadline, operation)
}

pub(crate) fn hand_over<T>(to: Option<&mut MaybeUninit<T>>, value: T) {
    if let Some(to) = to {
        to.write(value);
    }
}

/// The condition of updates that have none.
pub(crate) const ALWAYS: th_condition = th_condition { kind: 0, reserved: 0, version: 0 };

/// Writes an object. Hands over its new version, unless `version` is `NULL`. `call` may be `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_put(
    client: *mut th_client,
    table: u64,
    key: th_slice,
    value: th_slice,
    call: *const th_call,
    version: *mut u64,
    error: *mut th_error,
) -> th_status {
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { th_put_if(client, table, key, value, ALWAYS, call, version, error) }
}

/// Writes an object if a condition holds. Hands over its new version, unless `version` is `NULL`.
/// `call` may be `NULL`.
///
/// Returns `TH_CONDITION_FAILED` if the condition does not hold; `error->version` is the version
/// that the object has.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "C has no other way to leave arguments out")]
pub unsafe extern "C" fn th_put_if(
    client: *mut th_client,
    table: u64,
    key: th_slice,
    value: th_slice,
    condition: th_condition,
    call: *const th_call,
    version: *mut u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (place, value) =
            unsafe { (sized::optional_place(version, "version")?, sized::bytes(value, "value")?) };
        let action = |ttl| Ok(arguments::write(arguments::value(value)?, ttl));
        // SAFETY: as above.
        match unsafe { write(client, (table, key, condition), call, action) }? {
            Answer::Written(version) => hand_over(place, version.0),
            _ => return Err(Error::Incomprehensible.into()),
        }
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Deletes an object. Hands over the version that it had, or 0 if it did not exist, unless
/// `version` is `NULL`. `call` may be `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_delete(
    client: *mut th_client,
    table: u64,
    key: th_slice,
    call: *const th_call,
    version: *mut u64,
    error: *mut th_error,
) -> th_status {
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { th_delete_if(client, table, key, ALWAYS, call, version, error) }
}

/// Deletes an object if a condition holds. Hands over the version that it had, or 0 if it did not
/// exist, unless `version` is `NULL`. `call` may be `NULL`.
///
/// Returns `TH_CONDITION_FAILED` if the condition does not hold; `error->version` is the version
/// that the object has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_delete_if(
    client: *mut th_client,
    table: u64,
    key: th_slice,
    condition: th_condition,
    call: *const th_call,
    version: *mut u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        unsafe { change(client, (table, key, condition), call, || Ok(Action::Delete), version) }
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Adds to a whole number. An object that does not exist counts as 0. Hands over the sum and the
/// object's new version, unless they are `NULL`. `call` may be `NULL`.
///
/// Returns `TH_NOT_A_NUMBER` if the object was written as bytes or as a floating-point number, and
/// `TH_OVERFLOW` if the sum is too large.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "C has no other way to leave arguments out")]
pub unsafe extern "C" fn th_increment(
    client: *mut th_client,
    table: u64,
    key: th_slice,
    by: i64,
    call: *const th_call,
    sum: *mut i64,
    version: *mut u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (sum, version, answer) = unsafe {
            let sum = sized::optional_place(sum, "sum")?;
            let version = sized::optional_place(version, "version")?;
            let action = || Ok(Action::Increment(Number::Integer(by)));
            (sum, version, update(client, (table, key, ALWAYS), call, action)?)
        };
        match answer {
            Answer::Sum { version: its_version, number: Number::Integer(number) } => {
                hand_over(sum, number);
                hand_over(version, its_version.0);
            }
            _ => return Err(Error::Incomprehensible.into()),
        }
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Adds to a floating-point number. An object that does not exist counts as 0. Hands over the sum
/// and the object's new version, unless they are `NULL`. `call` may be `NULL`.
///
/// Returns `TH_NOT_A_NUMBER` if the object was written as bytes or as a whole number.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "C has no other way to leave arguments out")]
pub unsafe extern "C" fn th_increment_double(
    client: *mut th_client,
    table: u64,
    key: th_slice,
    by: f64,
    call: *const th_call,
    sum: *mut f64,
    version: *mut u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (sum, version, answer) = unsafe {
            let sum = sized::optional_place(sum, "sum")?;
            let version = sized::optional_place(version, "version")?;
            let action = || Ok(Action::Increment(Number::Float(by)));
            (sum, version, update(client, (table, key, ALWAYS), call, action)?)
        };
        match answer {
            Answer::Sum { version: its_version, number: Number::Float(number) } => {
                hand_over(sum, number);
                hand_over(version, its_version.0);
            }
            _ => return Err(Error::Incomprehensible.into()),
        }
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Writes a whole number, to which `th_increment` can add. Reads return its 8 bytes: see
/// `th_int64_of`. Hands over its new version, unless `version` is `NULL`. `call` may be `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_put_int64(
    client: *mut th_client,
    table: u64,
    key: th_slice,
    number: i64,
    call: *const th_call,
    version: *mut u64,
    error: *mut th_error,
) -> th_status {
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { put_number((client, table, key, call), Number::Integer(number), version, error) }
}

/// Writes a floating-point number, to which `th_increment_double` can add. Reads return its 8
/// bytes: see `th_double_of`. Hands over its new version, unless `version` is `NULL`. `call` may
/// be `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_put_double(
    client: *mut th_client,
    table: u64,
    key: th_slice,
    number: f64,
    call: *const th_call,
    version: *mut u64,
    error: *mut th_error,
) -> th_status {
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { put_number((client, table, key, call), Number::Float(number), version, error) }
}

/// Writes a number.
///
/// # Safety
/// All pointers keep the header's rules.
unsafe fn put_number(
    (client, table, key, call): (*mut th_client, u64, th_slice, *const th_call),
    number: Number,
    version: *mut u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: as the caller vouches.
        let (place, answer) = unsafe {
            let place = sized::optional_place(version, "version")?;
            let action = |ttl| Ok(arguments::write_number(number, ttl));
            (place, write(client, (table, key, ALWAYS), call, action)?)
        };
        match answer {
            Answer::Written(version) => hand_over(place, version.0),
            _ => return Err(Error::Incomprehensible.into()),
        }
        Ok(TH_OK)
    };
    // SAFETY: as the caller vouches.
    unsafe { entry(error, work) }
}

/// Does many operations at once, on any tables, in no particular order. Hands over their results in
/// the order of the operations; free them with `th_batch_free`. `call` may be `NULL`.
///
/// `TH_OK` says that each operation has a result, and no more: each result has a status of its own.
/// With every other status there is no batch, and nothing was done, except with `TH_INTERNAL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_execute(
    client: *mut th_client,
    ops: *const th_op,
    count: usize,
    call: *const th_call,
    batch: *mut *mut th_batch,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (place, ops, operations) = unsafe {
            let place = batch_place(batch)?;
            let ops = sized::inputs(ops, count)?;
            let operations = ops.iter().enumerate().map(|(index, op)| {
                arguments::operation(op).map_err(|it| arguments::at_index(index, it))
            });
            let operations: Result<Vec<_>, _> = operations.collect();
            (place, ops, operations)
        };
        let tags = ops.iter().map(|op| op.tag);
        // SAFETY: as above.
        unsafe { many(client, operations?, tags, call, place) }
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Reads many objects of a table at once: see `th_execute`. The tags of the results are the indices
/// of the keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_get_many(
    client: *mut th_client,
    table: u64,
    keys: *const th_slice,
    count: usize,
    call: *const th_call,
    batch: *mut *mut th_batch,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        unsafe {
            let place = batch_place(batch)?;
            let keys = sized::array(keys, count, "keys")?;
            let operations = same(table, keys.iter().map(|key| (*key, Ok(Action::Read))))?;
            many(client, operations, 0.., call, place)
        }
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Writes many objects of a table at once, each by itself: see `th_execute`. The tags of the
/// results are the indices of the pairs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_put_many(
    client: *mut th_client,
    table: u64,
    pairs: *const th_pair,
    count: usize,
    call: *const th_call,
    batch: *mut *mut th_batch,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        unsafe {
            let place = batch_place(batch)?;
            let pairs = sized::array(pairs, count, "pairs")?;
            let write = |value| {
                let value = arguments::value(sized::bytes(value, "value")?)?;
                Ok(Action::Write(value.to_vec()))
            };
            let operations = same(table, pairs.iter().map(|pair| (pair.key, write(pair.value))))?;
            many(client, operations, 0.., call, place)
        }
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Deletes many objects of a table at once, each by itself: see `th_execute`. The tags of the
/// results are the indices of the keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_delete_many(
    client: *mut th_client,
    table: u64,
    keys: *const th_slice,
    count: usize,
    call: *const th_call,
    batch: *mut *mut th_batch,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        unsafe {
            let place = batch_place(batch)?;
            let keys = sized::array(keys, count, "keys")?;
            let operations = same(table, keys.iter().map(|key| (*key, Ok(Action::Delete))))?;
            many(client, operations, 0.., call, place)
        }
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Makes operations on one table.
///
/// # Safety
/// The keys are valid: see [`sized::bytes`].
unsafe fn same(
    table: u64,
    all: impl Iterator<Item = (th_slice, Result<Action, Failure>)>,
) -> Result<Vec<Operation>, Failure> {
    let operation = |(key, action): (th_slice, Result<Action, Failure>)| {
        // SAFETY: as the caller vouches.
        let key = arguments::key(unsafe { sized::bytes(key, "key") }?)?.to_vec();
        let (table, condition) = (TableId(table), Condition::Always);
        Ok(Operation { table, key, condition, action: action? })
    };
    all.enumerate()
        .map(|(index, one)| operation(one).map_err(|it| arguments::at_index(index, it)))
        .collect()
}

/// Checks the place for a batch, and clears it in case the call fails.
///
/// # Safety
/// The pointer keeps the header's rules.
pub(crate) unsafe fn batch_place<'a>(
    batch: *mut *mut th_batch,
) -> Result<&'a mut MaybeUninit<*mut th_batch>, Failure> {
    // SAFETY: as the caller vouches.
    let place = unsafe { sized::place(batch, "batch") }?;
    place.write(std::ptr::null_mut());
    Ok(place)
}

/// Does many operations and hands over their results.
///
/// # Safety
/// All pointers keep the header's rules.
unsafe fn many(
    client: *mut th_client,
    operations: Vec<Operation>,
    tags: impl Iterator<Item = u64>,
    call: *const th_call,
    place: &mut MaybeUninit<*mut th_batch>,
) -> Result<th_status, Failure> {
    // SAFETY: as the caller vouches.
    let (client, deadline) = unsafe { (sized::handle(client, "client")?, arguments::call(call)?) };
    let mut state = client.shared.lock()?;
    let client = state.begin(deadline)?;
    let results = if operations.is_empty() { Vec::new() } else { client.all(operations) };
    let results = tags.zip(results.into_iter().map(outcome)).collect();
    place.write(OwnedBatch::of(results).into_raw());
    Ok(TH_OK)
}
