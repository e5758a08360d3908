//! Tables: they are found by name, and operations on objects take their ids.

use crate::abi::{
    TH_CACHE, TH_DURABLE, TH_NEVER, th_call, th_error, th_slice, th_table, th_table_options,
    th_tables, th_tablet,
};
use crate::arguments;
use crate::client::{Shared, th_client};
use crate::entry::entry;
use crate::failure::Failure;
use crate::sized;
use crate::status::{TH_OK, th_status};
use std::ffi::{CString, c_char};
use std::mem::size_of;
use std::time::Duration;
use thunderhead_client::control::{Policy, TableInfo};
use thunderhead_client::{KeyHash, MasterId};

/// Returns the client, the name of a table and the time limit of a call.
///
/// # Safety
/// All pointers keep the header's rules.
unsafe fn named<'a>(
    client: *mut th_client,
    name: *const c_char,
    call: *const th_call,
) -> Result<(&'a Shared, &'a str, Option<Duration>), Failure> {
    // SAFETY: as the caller vouches.
    let (client, name, deadline) = unsafe {
        let client = sized::handle(client, "client")?;
        (client, sized::text(name, "name")?, arguments::call(call)?)
    };
    Ok((&client.shared, arguments::table_name(name)?, deadline))
}

/// Creates a table, spread over `span` shards, and hands over its id. A name has 1 to 255 bytes of
/// UTF-8. `call` may be `NULL`.
///
/// Returns `TH_TABLE_EXISTS` if there is a table of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_table_create(
    client: *mut th_client,
    name: *const c_char,
    span: u32,
    call: *const th_call,
    table: *mut u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (place, (client, name, deadline)) =
            unsafe { (sized::place(table, "table")?, named(client, name, call)?) };
        let span = arguments::span(span)?;
        let id = client.lock()?.begin(deadline)?.create_table(name, span)?;
        place.write(id.0);
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Creates a table with options, spread over `span` shards, and hands over its id: see
/// `th_table_create`. `options` may be `NULL`.
///
/// Returns `TH_OLD_FORMAT` if an earlier release made the cluster, and its format is still 1, and
/// `TH_BAD_OPTIONS` if the table cannot have these options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_table_create_with(
    client: *mut th_client,
    name: *const c_char,
    span: u32,
    options: *const th_table_options,
    call: *const th_call,
    table: *mut u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (place, (client, name, deadline), options) = unsafe {
            let place = sized::place(table, "table")?;
            (place, named(client, name, call)?, arguments::table_options(options)?)
        };
        let span = arguments::span(span)?;
        let id = client.lock()?.begin(deadline)?.create_table_with(name, span, options)?;
        place.write(id.0);
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Finds a table and hands over its id. The id does not change as long as the table exists, and is
/// never reused. `call` may be `NULL`.
///
/// Returns `TH_NO_SUCH_TABLE` if no table has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_table_open(
    client: *mut th_client,
    name: *const c_char,
    call: *const th_call,
    table: *mut u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (place, (client, name, deadline)) =
            unsafe { (sized::place(table, "table")?, named(client, name, call)?) };
        let id = client.lock()?.begin(deadline)?.table(name)?;
        place.write(id.0);
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Drops a table with all its objects. `call` may be `NULL`.
///
/// Returns `TH_NO_SUCH_TABLE` if no table has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_table_drop(
    client: *mut th_client,
    name: *const c_char,
    call: *const th_call,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (client, name, deadline) = unsafe { named(client, name, call) }?;
        client.lock()?.begin(deadline)?.drop_table(name)?;
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Hands over all tables, with the location of each tablet. Free them with `th_tables_free`. `call`
/// may be `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_table_list(
    client: *mut th_client,
    call: *const th_call,
    tables: *mut *mut th_tables,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (place, client, deadline) = unsafe {
            let place = sized::place(tables, "tables")?;
            place.write(std::ptr::null_mut());
            (place, sized::handle(client, "client")?, arguments::call(call)?)
        };
        let tables = client.shared.lock()?.begin(deadline)?.tables()?;
        place.write(OwnedTables::of(&tables).into_raw());
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Hands over one table, with the location of each tablet. Free it with `th_tables_free`. `call`
/// may be `NULL`.
///
/// Returns `TH_NO_SUCH_TABLE` if no table has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_table_describe(
    client: *mut th_client,
    name: *const c_char,
    call: *const th_call,
    tables: *mut *mut th_tables,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (place, (client, name, deadline)) = unsafe {
            let place = sized::place(tables, "tables")?;
            place.write(std::ptr::null_mut());
            (place, named(client, name, call)?)
        };
        let table = client.lock()?.begin(deadline)?.table_info(name)?;
        place.write(OwnedTables::of(&[table]).into_raw());
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Splits the tablet that holds the hash `at` into two. `at` is the first hash of the second one.
/// `call` may be `NULL`.
///
/// Returns `TH_BAD_RANGE` if no tablet can be split there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_table_split(
    client: *mut th_client,
    name: *const c_char,
    at: u64,
    call: *const th_call,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (client, name, deadline) = unsafe { named(client, name, call) }?;
        client.lock()?.begin(deadline)?.split(name, KeyHash(at))?;
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Moves the tablet that begins with the hash `first` to another master, and waits until the move
/// is complete. The move of a large tablet takes longer than the default deadline. `call` may be
/// `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_table_migrate(
    client: *mut th_client,
    name: *const c_char,
    first: u64,
    master: u64,
    call: *const th_call,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (client, name, deadline) = unsafe { named(client, name, call) }?;
        client.lock()?.begin(deadline)?.migrate(name, KeyHash(first), MasterId(master))?;
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Hands over the hash that places a key: it decides the tablet of its table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_key_hash(
    key: th_slice,
    hash: *mut u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (place, key) = unsafe { (sized::place(hash, "hash")?, sized::bytes(key, "key")?) };
        place.write(KeyHash::of(arguments::key(key)?).0);
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Tables with everything that they point to. The vectors never change, so their elements stay
/// where they are.
#[repr(C)]
struct OwnedTables {
    /// The part that the caller sees. It comes first, so a pointer to it is one to the whole.
    public: th_tables,
    tables: Vec<th_table>,
    table_pointers: Vec<*const th_table>,
    tablets: Vec<Vec<th_tablet>>,
    tablet_pointers: Vec<Vec<*const th_tablet>>,
    texts: Vec<CString>,
}

impl OwnedTables {
    fn of(infos: &[TableInfo]) -> Box<OwnedTables> {
        let mut owned = Box::new(OwnedTables {
            public: th_tables { size: size_of::<th_tables>(), count: 0, tables: std::ptr::null() },
            tables: Vec::new(),
            table_pointers: Vec::new(),
            tablets: Vec::new(),
            tablet_pointers: Vec::new(),
            texts: Vec::new(),
        });
        for info in infos {
            let tablets: Vec<th_tablet> = info
                .tablets
                .iter()
                .map(|it| th_tablet {
                    size: size_of::<th_tablet>(),
                    first: it.first.0,
                    last: it.last.0,
                    master: it.master.0,
                    address: it
                        .address
                        .map_or(std::ptr::null(), |address| owned.text(address.to_string())),
                })
                .collect();
            let pointers: Vec<_> = tablets.iter().map(std::ptr::from_ref).collect();
            let table = th_table {
                size: size_of::<th_table>(),
                id: info.id.0,
                name: owned.text(info.name.clone()),
                tablet_count: pointers.len(),
                tablets: pointers.as_ptr(),
                ttl_ms: if info.options.ttl_ms == 0 { TH_NEVER } else { info.options.ttl_ms },
                policy: match info.options.policy {
                    Policy::Durable => TH_DURABLE,
                    Policy::Cache => TH_CACHE,
                },
                reserved: 0,
                max_bytes: info.options.max_bytes,
                reserved_bytes: info.options.reserved_bytes,
            };
            owned.tables.push(table);
            owned.tablets.push(tablets);
            owned.tablet_pointers.push(pointers);
        }
        owned.table_pointers = owned.tables.iter().map(std::ptr::from_ref).collect();
        owned.public.count = owned.tables.len();
        owned.public.tables = owned.table_pointers.as_ptr();
        owned
    }

    fn text(&mut self, text: String) -> *const c_char {
        // A name has no zeros, because it has no control characters.
        let text = CString::new(text).unwrap_or_default();
        let at = text.as_ptr();
        self.texts.push(text);
        at
    }

    fn into_raw(self: Box<OwnedTables>) -> *mut th_tables {
        Box::into_raw(self).cast()
    }
}

/// Releases tables with everything in them. `NULL` is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_tables_free(tables: *mut th_tables) -> th_status {
    let work = || {
        if !tables.is_null() {
            // SAFETY: the library made it with `OwnedTables::into_raw`, and it has not been freed
            // before: that is a rule of the header.
            drop(unsafe { Box::from_raw(tables.cast::<OwnedTables>()) });
        }
        Ok(TH_OK)
    };
    // SAFETY: there is no error to fill.
    unsafe { entry(std::ptr::null_mut(), work) }
}
