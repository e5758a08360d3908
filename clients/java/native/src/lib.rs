//! The native half of the Java client.
//!
//! `dev.thunderhead.Native` declares these functions, and only the classes of that package call
//! them. They put requests into bytes and take results out of bytes, as
//! [`thunderhead_bindings`] describes. So a call passes numbers, and no function of the virtual
//! machine is called on the way, except for results that do not fit into the caller's buffer.
//!
//! # Promises
//!
//! - A panic becomes an `InternalException` of Java. Nothing is printed.
//! - A thread that waits in [`call`](Java_dev_thunderhead_Native_call) looks every
//!   `interrupt::EVERY` whether it was interrupted.
//! - No function keeps a reference to a Java object after it has returned.
//!
//! # Duties of the callers
//!
//! A handle is a number that an `open` function returned and that has not been freed. An address is
//! that of a direct buffer which lives during the call, with as many bytes as the call says, and
//! which no other thread uses. The Java classes keep both promises by themselves, so nothing that a
//! program passes to them breaks the promises.
//!
//! `unsafe` code is in this file and in `memory`: JNI passes raw numbers.

mod interrupt;
mod memory;
mod outcome;
mod panics;
mod queue;

use jni::EnvUnowned;
use jni::objects::{JByteArray, JByteBuffer, JClass, JLongArray};
use jni::sys::{jbyteArray, jint, jlong};
use memory::Region;
use outcome::{Failure, Nothing, deliver, deliver_array, or_throw};
use queue::Queue;
use std::cell::RefCell;
use std::time::Duration;
use thunderhead_bindings::{BytePool, ByteQueue, SubmitError, result};
use thunderhead_client::{ClusterUrl, Error, Options};

/// The most clients of a pool. `Pool` in Java admits as many threads, so that no thread waits here
/// for a client.
const CLIENTS_MAX: usize = 64;

/// The code of a URL whose hosts have no address.
const NO_ADDRESS: u16 = 2005;

/// The code of a malformed URL. Java makes an `IllegalArgumentException` of it.
const BAD_URL: u16 = 0;

/// A result that is longer is not kept in memory after the call.
const KEPT_BYTES_MAX: usize = 256 << 10;

thread_local! {
    /// The memory for results of this thread's calls.
    static RESULT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends this thread's memory for results.
fn with_result<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut bytes = RESULT.take();
    bytes.clear();
    let done = work(&mut bytes);
    if bytes.capacity() <= KEPT_BYTES_MAX {
        RESULT.set(bytes);
    }
    done
}

/// Does work on the pool or the queue of a handle.
fn on<'l, T, R: Nothing>(
    env: &mut EnvUnowned<'l>,
    handle: jlong,
    work: impl FnOnce(&mut outcome::Thread<'_, 'l>, &T) -> Result<R, Failure>,
) -> R {
    or_throw(env, |env| {
        // SAFETY: Java passes the handle of a `T` that it does not free during the call.
        let object = unsafe { memory::borrow::<T>(handle) };
        work(env, object)
    })
}

/// Returns the address of a direct buffer, or 0.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_address<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    buffer: JByteBuffer<'l>,
) -> jlong {
    or_throw(&mut env, |env| {
        let address = env.with(|env| env.get_direct_buffer_address(&buffer))?;
        Ok(address.expose_provenance() as jlong)
    })
}

/// Panics. For the test that a panic becomes an exception.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_panic<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
) {
    or_throw(&mut env, |_| -> Result<(), Failure> { panic!("a test asked for it") });
}

/// Takes the options out of a URL. On an error it appends the error to `into`.
fn options(url: &[u8], deadline: jlong, into: &mut Vec<u8>) -> Option<Options> {
    let text = String::from_utf8_lossy(url);
    let wrong = |code, error: &dyn std::fmt::Display, into: &mut Vec<u8>| {
        result::put_failure((code, false), &error.to_string(), into);
    };
    let parsed = text.parse::<ClusterUrl>().map_err(|error| wrong(BAD_URL, &error, into)).ok()?;
    let mut options = parsed.resolve().map_err(|error| wrong(NO_ADDRESS, &error, into)).ok()?;
    if let Some(nanoseconds) = u64::try_from(deadline).ok().filter(|it| *it > 0) {
        options.deadline = Some(Duration::from_nanos(nanoseconds));
    }
    Some(options)
}

/// Opens a client for a URL (UTF-8). Puts its handle and its deadline in nanoseconds into `opened`,
/// or returns an error as [`result`] describes it.
fn open<T>(
    env: &mut outcome::Thread<'_, '_>,
    (url, deadline, opened): (&JByteArray<'_>, jlong, &JLongArray<'_>),
    connect: impl FnOnce(&Options) -> Result<T, Error>,
) -> Result<jbyteArray, Failure> {
    let url = env.with(|env| env.convert_byte_array(url))?;
    let mut failed = Vec::new();
    let Some(options) = options(&url, deadline, &mut failed) else {
        return deliver_array(env, &failed);
    };
    match connect(&options) {
        Ok(made) => {
            let deadline = options.deadline.map_or(0, |it| it.as_nanos() as jlong);
            let handle = memory::handle(made);
            let written = env.with(|env| opened.set_region(env, 0, &[handle, deadline]));
            if let Err(failure) = written {
                // SAFETY: Java never saw the handle.
                drop(unsafe { memory::free::<T>(handle) });
                return Err(failure);
            }
            Ok(std::ptr::null_mut())
        }
        Err(error) => {
            result::put_error(&error, &mut failed);
            deliver_array(env, &failed)
        }
    }
}

/// Opens a pool: see `open`.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_openPool<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    url: JByteArray<'l>,
    deadline: jlong,
    opened: JLongArray<'l>,
) -> jbyteArray {
    or_throw(&mut env, |env| {
        open(env, (&url, deadline, &opened), |options| {
            BytePool::connect(options, CLIENTS_MAX, (interrupt::EVERY, interrupt::is_wanted))
        })
    })
}

/// Does the request of `length` bytes at an address. Puts the result there, or returns it as an
/// array if it has more than `capacity` bytes.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_call<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    pool: jlong,
    address: jlong,
    length: jint,
    capacity: jint,
) -> jbyteArray {
    on(&mut env, pool, |env, pool: &BytePool| {
        // SAFETY: the caller passes the address of a direct buffer of this many bytes, which lives
        // during the call and which no other thread uses.
        let mut region = unsafe { Region::new(address, capacity) };
        with_result(|bytes| {
            let request = region.get(..length as usize).ok_or(Failure::TooShort)?;
            pool.call(request, bytes)?;
            deliver(env, bytes, &mut region)
        })
    })
}

/// Does the request in the first `length` bytes of an array, and returns its result.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_callArray<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    pool: jlong,
    request: JByteArray<'l>,
    length: jint,
) -> jbyteArray {
    on(&mut env, pool, |env, pool: &BytePool| {
        let request = outcome::copy(env, &request, length)?;
        with_result(|bytes| {
            pool.call(&request, bytes)?;
            deliver_array(env, bytes)
        })
    })
}

/// Begins a scan of a pool.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_openScan<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    pool: jlong,
    table: jlong,
) -> jlong {
    on(&mut env, pool, |_, pool: &BytePool| Ok(pool.open_scan(table as u64) as jlong))
}

/// Ends a scan of a pool.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_closeScan<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    pool: jlong,
    scan: jlong,
) {
    on(&mut env, pool, |_, pool: &BytePool| {
        pool.close_scan(scan as u64);
        Ok(())
    });
}

/// Closes a pool. Calls in progress go on.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_closePool<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    pool: jlong,
) {
    on(&mut env, pool, |_, pool: &BytePool| {
        pool.close();
        Ok(())
    });
}

/// Frees a pool.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_freePool<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    pool: jlong,
) {
    or_throw(&mut env, |_| {
        // SAFETY: the caller passes a handle of a pool, which no call uses now or later.
        drop(unsafe { memory::free::<BytePool>(pool) });
        Ok(())
    });
}

/// Opens a queue: see `open`.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_openQueue<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    url: JByteArray<'l>,
    deadline: jlong,
    opened: JLongArray<'l>,
) -> jbyteArray {
    or_throw(&mut env, |env| {
        open(env, (&url, deadline, &opened), |options| Queue::of(ByteQueue::connect(options)?))
    })
}

/// Begins the submissions in `length` bytes at an address. Returns the number of the first one, or
/// -1 if the queue is closed.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_submit<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    queue: jlong,
    address: jlong,
    length: jint,
) -> jlong {
    on(&mut env, queue, |_, queue: &Queue| {
        // SAFETY: the caller passes the address of a direct buffer with at least this many bytes,
        // which lives during the call and which no other thread uses.
        let region = unsafe { Region::new(address, length) };
        submit(queue, &region)
    })
}

/// Begins the submissions in the first `length` bytes of an array: see
/// [`submit`](Java_dev_thunderhead_Native_submit).
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_submitArray<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    queue: jlong,
    request: JByteArray<'l>,
    length: jint,
) -> jlong {
    on(&mut env, queue, |env, queue: &Queue| submit(queue, &outcome::copy(env, &request, length)?))
}

fn submit(queue: &Queue, request: &[u8]) -> Result<jlong, Failure> {
    match queue.bytes.submit(request) {
        Ok(first) => Ok(first as jlong),
        Err(SubmitError::Client(_)) => Ok(-1),
        Err(SubmitError::Malformed(malformed)) => Err(malformed.into()),
    }
}

/// Cancels the submission with a number.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_cancel<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    queue: jlong,
    number: jlong,
) {
    on(&mut env, queue, |_, queue: &Queue| {
        queue.bytes.cancel(number as u64);
        Ok(())
    });
}

/// Waits for completions and puts them to an address: 4 bytes with their number, then the
/// completions. Returns them as an array if they have more than `capacity` bytes. There are none if
/// the queue was woken.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_take<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    queue: jlong,
    address: jlong,
    capacity: jint,
) -> jbyteArray {
    on(&mut env, queue, |env, queue: &Queue| {
        // SAFETY: the caller passes the address of a direct buffer of this many bytes, which lives
        // during the call and which no other thread uses.
        let mut region = unsafe { Region::new(address, capacity) };
        with_result(|bytes| {
            queue.take(region.len() / 4 * 3, bytes)?;
            deliver(env, bytes, &mut region)
        })
    })
}

/// Makes the thread that waits in [`take`](Java_dev_thunderhead_Native_take) return.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_wake<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    queue: jlong,
) {
    on(&mut env, queue, |_, queue: &Queue| {
        queue.wake();
        Ok(())
    });
}

/// Begins a scan of a queue.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_openQueueScan<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    queue: jlong,
    table: jlong,
) -> jlong {
    on(&mut env, queue, |_, queue: &Queue| Ok(queue.bytes.open_scan(table as u64) as jlong))
}

/// Ends a scan of a queue.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_closeQueueScan<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    queue: jlong,
    scan: jlong,
) {
    on(&mut env, queue, |_, queue: &Queue| {
        queue.bytes.close_scan(scan as u64);
        Ok(())
    });
}

/// Closes a queue and ends its lease.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_closeQueue<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    queue: jlong,
) {
    on(&mut env, queue, |_, queue: &Queue| {
        queue.bytes.close();
        Ok(())
    });
}

/// Frees a queue.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_thunderhead_Native_freeQueue<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    queue: jlong,
) {
    or_throw(&mut env, |_| {
        // SAFETY: the caller passes a handle of a queue, which no call uses now or later.
        drop(unsafe { memory::free::<Queue>(queue) });
        Ok(())
    });
}

/// Prepares the library when the virtual machine loads it.
#[unsafe(no_mangle)]
pub extern "system" fn JNI_OnLoad(
    _machine: *mut jni::sys::JavaVM,
    _: *mut std::ffi::c_void,
) -> jint {
    panics::silence();
    jni::sys::JNI_VERSION_1_8
}
