//! The structs that C programs see. Their layouts are pinned by `clients/c/abi/layout.txt`.
//!
//! A struct grows only at its end, and has no padding that a later member could occupy. Its first
//! member is its size, so a program that was compiled with an older header goes on working: see
//! [`crate::sized`]. `th_slice`, `th_condition` and `th_pair` have no size and never change.

#![allow(non_camel_case_types, reason = "these are names of C")]

use crate::status::th_status;
use std::ffi::{c_char, c_void};

/// The most bytes of a key.
pub const TH_KEY_BYTES_MAX: usize = 65536;
/// The most bytes of a value.
pub const TH_VALUE_BYTES_MAX: usize = 1048576;
// The header needs numbers, not names.
const _: () = assert!(
    TH_KEY_BYTES_MAX == thunderhead_client::KEY_BYTES_MAX
        && TH_VALUE_BYTES_MAX == thunderhead_client::VALUE_BYTES_MAX
);
/// The most operations of one call.
pub const TH_OPS_MAX: usize = 1048576;
/// The bytes of the text of an error, with the terminating zero.
pub const TH_ERROR_TEXT_BYTES: usize = 256;

/// Some bytes. They belong to the caller or to the library; each function says to which.
///
/// `data` may be `NULL` if `size` is 0.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct th_slice {
    /// The first byte.
    pub data: *const c_void,
    /// The number of bytes.
    pub size: usize,
}

/// Do it in any case.
pub const TH_ALWAYS: u32 = 0;
/// Do it only if the object does not exist.
pub const TH_ABSENT: u32 = 1;
/// Do it only if the object exists.
pub const TH_PRESENT: u32 = 2;
/// Do it only if the object has this version. Version 0 means that it does not exist.
pub const TH_VERSION_IS: u32 = 3;
/// Do it only if the object's version is below this one, or the object does not exist.
pub const TH_VERSION_BELOW: u32 = 4;

/// The condition of an update. Make it with `th_always()`, `th_absent()`, `th_present()`,
/// `th_version_is()` or `th_version_below()`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct th_condition {
    /// `TH_ALWAYS`, `TH_ABSENT`, `TH_PRESENT`, `TH_VERSION_IS` or `TH_VERSION_BELOW`.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// The version that the condition compares, else 0.
    pub version: u64,
}

/// A key and a value to write.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct th_pair {
    /// The key.
    pub key: th_slice,
    /// The value.
    pub value: th_slice,
}

/// The reason why a call failed. The caller owns it and passes it to each call; the call fills it.
///
/// After a call that succeeded, `code` is `TH_OK` and `outcome` is `TH_DONE`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct th_error {
    /// `sizeof(th_error)`. The caller sets it once, for example with `th_error_init()`.
    pub size: usize,
    /// The status that the call returned.
    pub code: th_status,
    /// `TH_DONE`, `TH_NOT_DONE` or `TH_UNKNOWN`.
    pub outcome: i32,
    /// With `TH_CONDITION_FAILED` and `TH_NOT_A_NUMBER` the version that the object has, else 0.
    pub version: u64,
    /// A sentence for people in UTF-8, with a terminating zero.
    pub text: [c_char; TH_ERROR_TEXT_BYTES],
}

/// The settings of a new client or queue. Zeros mean the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct th_options {
    /// `sizeof(th_options)`.
    pub size: usize,
    /// The time limit of each operation in microseconds, retries included. 0: the limit in the
    /// URL, or 10 seconds. At most a year.
    pub deadline_us: u64,
    /// The client calls it now and then while an operation waits. Once it returns true, the
    /// operation ends with `TH_CANCELLED`, or with `TH_OUTCOME_UNKNOWN` if it may have been done.
    /// The thread that waits calls it. It must not use the client, and must not leave by an
    /// exception or `longjmp`. A queue ignores it.
    pub interrupt: Option<unsafe extern "C" fn(context: *mut c_void) -> bool>,
    /// The argument of `interrupt`.
    pub interrupt_context: *mut c_void,
    /// The time between two calls of `interrupt` in microseconds. 0: 50 milliseconds.
    pub interrupt_every_us: u64,
}

/// As a time to live: the object never expires.
pub const TH_NEVER: u64 = u64::MAX;

/// Objects of the table stay, and writes are refused when memory is full.
pub const TH_DURABLE: u32 = 0;
/// Objects of the table that were not used lately make room for new ones when memory is full.
pub const TH_CACHE: u32 = 1;

/// The options of a new table. Zeros mean the defaults. They never change afterwards.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct th_table_options {
    /// `sizeof(th_table_options)`.
    pub size: usize,
    /// How long an object lives if its write names no time, in milliseconds. 0 or `TH_NEVER`: for
    /// ever.
    pub ttl_ms: u64,
    /// `TH_DURABLE` or `TH_CACHE`.
    pub policy: u32,
    /// 0.
    pub reserved: u32,
    /// The most bytes of its objects, with their keys and headers. 0: there is no limit. A durable
    /// table refuses writes that would exceed it, with `TH_TABLE_FULL`; a cache evicts its own
    /// objects.
    pub max_bytes: u64,
    /// The bytes of a cache of which none are evicted for other tables.
    pub reserved_bytes: u64,
}

/// The settings of one call. A call takes `NULL` for the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct th_call {
    /// `sizeof(th_call)`.
    pub size: usize,
    /// The time limit of this call in microseconds. 0: that of the client. At most a year.
    pub deadline_us: u64,
    /// Only for writes of one object: how long it lives, in milliseconds, or `TH_NEVER`. The time
    /// begins when the server does the write. 0: the table's default.
    pub ttl_ms: u64,
}

/// The answer to a read.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct th_value {
    /// `sizeof(th_value)`. The caller sets it once.
    pub size: usize,
    /// The object's version; 0 if the object does not exist.
    pub version: u64,
    /// The value. The client owns the bytes. They are valid until the next call on this client.
    pub value: th_slice,
    /// Whether the object exists. A missing object is not an error.
    pub exists: bool,
    /// Zeros.
    pub reserved: [u8; 7],
}

/// The value is bytes.
pub const TH_BYTES: u32 = 0;
/// The value is a whole number: 8 bytes, little-endian.
pub const TH_INT64: u32 = 1;
/// The value is a floating-point number: 8 bytes, little-endian.
pub const TH_DOUBLE: u32 = 2;

/// An object that a scan returns.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct th_object {
    /// `sizeof(th_object)`. The caller sets it once.
    pub size: usize,
    /// The object's version.
    pub version: u64,
    /// The key. The scan owns the bytes. They are valid until the next call on this scan.
    pub key: th_slice,
    /// The value. The scan owns the bytes. They are valid until the next call on this scan.
    pub value: th_slice,
    /// `TH_BYTES`, `TH_INT64` or `TH_DOUBLE`.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
}

/// Read `key`.
pub const TH_OP_GET: u32 = 1;
/// Write `value`, if `condition` holds.
pub const TH_OP_PUT: u32 = 2;
/// Delete the object, if `condition` holds.
pub const TH_OP_DELETE: u32 = 3;
/// Add `integer` to a whole number.
pub const TH_OP_INCREMENT: u32 = 4;
/// Add `real` to a floating-point number.
pub const TH_OP_INCREMENT_DOUBLE: u32 = 5;
/// Write the whole number `integer`, if `condition` holds.
pub const TH_OP_PUT_INT64: u32 = 6;
/// Write the floating-point number `real`, if `condition` holds.
pub const TH_OP_PUT_DOUBLE: u32 = 7;
/// Create a table. `key` is its name, `integer` the number of shards. Only for queues.
pub const TH_OP_TABLE_CREATE: u32 = 8;
/// Drop a table with all its objects. `key` is its name. Only for queues.
pub const TH_OP_TABLE_DROP: u32 = 9;
/// Find a table. `key` is its name. Only for queues.
pub const TH_OP_TABLE_OPEN: u32 = 10;

/// Change when the object expires, if `condition` holds: it lives for `ttl_ms` from now on. The
/// result has its new version, or 0 if it does not exist.
pub const TH_OP_SET_EXPIRY: u32 = 11;
/// Read how long the object still lives: `ttl_ms` of the result.
pub const TH_OP_GET_TTL: u32 = 12;

/// An operation. All members that `kind` does not mention are 0.
///
/// An array of operations has elements of the same `size`. The library copies keys and values
/// before the call returns.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct th_op {
    /// `sizeof(th_op)`.
    pub size: usize,
    /// A number of the caller's own. The result has the same one.
    pub tag: u64,
    /// The id of the table.
    pub table: u64,
    /// The key. For operations on tables, the name of the table in UTF-8.
    pub key: th_slice,
    /// The value to write.
    pub value: th_slice,
    /// The condition of an update. Increments have none.
    pub condition: th_condition,
    /// The whole number to write or to add.
    pub integer: i64,
    /// The floating-point number to write or to add.
    pub real: f64,
    /// The time limit in microseconds; only for queues. 0: that of the queue. At most a year.
    pub deadline_us: u64,
    /// `TH_OP_GET` and so on. 0 is refused.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// For writes and `TH_OP_SET_EXPIRY`: how long the object lives, in milliseconds, or
    /// `TH_NEVER`. For writes 0 is the table's default.
    pub ttl_ms: u64,
    /// For `TH_OP_TABLE_CREATE`: the options of the table, or `NULL` for the defaults.
    pub table_options: *const th_table_options,
}

/// The result of an operation. The batch owns it, with all its bytes.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct th_result {
    /// The size of the struct in the library.
    pub size: usize,
    /// The tag of the operation.
    pub tag: u64,
    /// The status of the operation. The other members are for `TH_OK`, unless they say more.
    pub status: th_status,
    /// `TH_DONE`, `TH_NOT_DONE` or `TH_UNKNOWN`, also after an error.
    pub outcome: i32,
    /// The object's version after the operation. After a delete, the version that it had. With
    /// `TH_CONDITION_FAILED` and `TH_NOT_A_NUMBER` the version that it has. 0 if it does not
    /// exist.
    pub version: u64,
    /// The value that was read.
    pub value: th_slice,
    /// The sum of whole numbers.
    pub integer: i64,
    /// The sum of floating-point numbers.
    pub real: f64,
    /// The id of the table that was created or found.
    pub table: u64,
    /// The reason of a failure: a sentence for people in UTF-8. Empty after success, never `NULL`.
    pub text: *const c_char,
    /// Whether the object that was read exists, or the object that was deleted existed.
    pub exists: bool,
    /// Zeros.
    pub reserved: [u8; 7],
    /// How long the object still lives, in milliseconds, or `TH_NEVER`; only for `TH_OP_GET_TTL`.
    pub ttl_ms: u64,
}

/// The results of many operations. `th_batch_free` releases it with everything in it.
#[repr(C)]
pub struct th_batch {
    /// The size of the struct in the library.
    pub size: usize,
    /// The number of results.
    pub count: usize,
    /// How many of them have another status than `TH_OK`.
    pub failed: usize,
    /// The results. Those of a synchronous call have the order of the operations.
    pub results: *const *const th_result,
}

/// A tablet: a part of a table.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct th_tablet {
    /// The size of the struct in the library.
    pub size: usize,
    /// The first hash that belongs to it: see `th_key_hash`.
    pub first: u64,
    /// The last hash that belongs to it.
    pub last: u64,
    /// The id of the master that owns it.
    pub master: u64,
    /// The address of that master; `NULL` while the tablet is being recovered.
    pub address: *const c_char,
}

/// A table.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct th_table {
    /// The size of the struct in the library.
    pub size: usize,
    /// Its id, which operations on objects take.
    pub id: u64,
    /// Its name in UTF-8.
    pub name: *const c_char,
    /// The number of its tablets.
    pub tablet_count: usize,
    /// Its tablets, by their first hashes, without gaps.
    pub tablets: *const *const th_tablet,
    /// How long an object lives if its write names no time, in milliseconds, or `TH_NEVER`.
    pub ttl_ms: u64,
    /// `TH_DURABLE` or `TH_CACHE`.
    pub policy: u32,
    /// 0.
    pub reserved: u32,
    /// The most bytes of its objects; 0 if there is no limit.
    pub max_bytes: u64,
    /// The bytes of which none are evicted for other tables.
    pub reserved_bytes: u64,
}

/// Tables. `th_tables_free` releases it with everything in it.
#[repr(C)]
pub struct th_tables {
    /// The size of the struct in the library.
    pub size: usize,
    /// The number of tables.
    pub count: usize,
    /// The tables.
    pub tables: *const *const th_table,
}
