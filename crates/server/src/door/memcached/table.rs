//! The table behind a door, and its store for memcached's commands.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use thunderhead_doors::memcached::store::{Attributes, Object, Objects, Refusal};
use thunderhead_log::{Attributes as LogAttributes, Item, Timestamp};
use thunderhead_master::{DoorError, DoorTable};
use thunderhead_wire::{Status, TableId};

/// The table behind a door. A thread with a client makes the table, and makes it anew to remove all
/// objects at once.
#[derive(Debug, Default)]
pub struct TableBehind {
    /// The table's id; 0 while there is none.
    table: AtomicU64,
    flushes: Mutex<Flushes>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Flushes {
    wanted: u64,
    done: u64,
    is_over: bool,
}

impl TableBehind {
    /// The table, if there is one.
    #[must_use]
    pub fn table(&self) -> Option<TableId> {
        let table = TableId(self.table.load(Ordering::Acquire));
        (table.0 != 0).then_some(table)
    }

    /// Sets the table from which on the door reads and writes.
    pub fn set_table(&self, table: TableId) {
        self.table.store(table.0, Ordering::Release);
    }

    fn flushes(&self) -> std::sync::MutexGuard<'_, Flushes> {
        self.flushes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for an empty table; returns the number of this flush.
    pub(super) fn want_flush(&self) -> u64 {
        let mut flushes = self.flushes();
        flushes.wanted += 1;
        self.changed.notify_all();
        flushes.wanted
    }

    /// Whether a flush is done.
    pub(super) fn is_flushed(&self, number: u64) -> bool {
        self.flushes().done >= number
    }

    /// Waits for flushes, and calls `make_anew` for each, until [`TableBehind::end`] is called. If
    /// it returns `None`, it is called again.
    pub fn serve_flushes(&self, mut make_anew: impl FnMut() -> Option<TableId>) {
        while let Some(number) = self.wait_for_flush() {
            if let Some(table) = make_anew() {
                self.set_table(table);
                self.flushes().done = number;
            }
        }
    }

    /// Waits until an empty table is wanted; returns the number of the flush, or `None` at the end.
    fn wait_for_flush(&self) -> Option<u64> {
        let mut flushes = self.flushes();
        while !flushes.is_over {
            if flushes.wanted > flushes.done {
                return Some(flushes.wanted);
            }
            flushes = self.changed.wait(flushes).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Ends the wait for flushes.
    pub fn end(&self) {
        self.flushes().is_over = true;
        self.changed.notify_all();
    }
}

/// The store on which a request is executed.
pub(super) struct Store<'a> {
    pub(super) objects: DoorTable<'a>,
    /// Holds the value that was found last, or a new one.
    pub(super) buffer: &'a mut Vec<u8>,
    /// The reason why an operation could not be done now.
    pub(super) blocked: Option<Status>,
    /// An update was done.
    pub(super) has_updated: bool,
    /// Accesses that found an object, and others.
    pub(super) found: u64,
    pub(super) missed: u64,
}

fn attributes_of(attributes: &LogAttributes) -> Attributes {
    let expires = attributes.expires;
    Attributes {
        flags: attributes.client_flags,
        expires: (expires != Timestamp::ZERO).then_some(expires.0 / 1000),
        is_stale: attributes.is_stale,
        is_awaited: attributes.is_claimed,
    }
}

/// The version of an object that clients see: that of its last value.
fn shown_version(object: &Item<'_>) -> u64 {
    object.version().0 - u64::from(object.attributes().versions_behind)
}

impl<'a> Store<'a> {
    pub(super) fn new(objects: DoorTable<'a>, buffer: &'a mut Vec<u8>) -> Store<'a> {
        Store { objects, buffer, blocked: None, has_updated: false, found: 0, missed: 0 }
    }
}

impl Store<'_> {
    fn on_error(&mut self, error: DoorError) -> Refusal {
        match error {
            DoorError::NotNow(status) => {
                self.blocked.get_or_insert(status);
                Refusal::Full
            }
            DoorError::Log(thunderhead_log::Error::ValueTooLong { .. }) => Refusal::TooLarge,
            DoorError::Log(_) => Refusal::Full,
        }
    }

    fn write(
        &mut self,
        key: &[u8],
        attributes: Attributes,
        versions_behind: u32,
    ) -> Result<u64, Refusal> {
        let Attributes { flags, expires, is_stale, is_awaited } = attributes;
        let milliseconds = |second: u64| Timestamp(second.saturating_mul(1000).max(1));
        let attributes = LogAttributes {
            expires: expires.map_or(Timestamp::ZERO, milliseconds).min(Timestamp::LATEST),
            client_flags: flags,
            is_stale,
            is_claimed: is_awaited,
            versions_behind,
            is_cached: true,
        };
        match self.objects.put(key, self.buffer, attributes) {
            Ok(version) => {
                self.has_updated = true;
                Ok(version.0 - u64::from(versions_behind))
            }
            Err(error) => Err(self.on_error(error)),
        }
    }
}

impl Objects for Store<'_> {
    fn find(&mut self, key: &[u8], counts: bool) -> Option<Object<'_>> {
        let buffer = &mut *self.buffer;
        let found = self.objects.read(key, |object| {
            buffer.clear();
            object.value().copy_to(buffer);
            let was_read = object.uses() > 0;
            if counts {
                object.count_use();
            }
            (attributes_of(object.attributes()), shown_version(object), was_read)
        });
        match found {
            Ok(Some((attributes, cas, was_read))) => {
                self.found += 1;
                Some(Object { value: self.buffer, attributes, cas, idle: 0, was_read })
            }
            Ok(None) => {
                self.missed += 1;
                None
            }
            Err(error) => {
                self.on_error(error);
                None
            }
        }
    }

    fn find_each(
        &mut self,
        keys: &[&[u8]],
        counts: bool,
        show: &mut dyn FnMut(Option<Object<'_>>) -> bool,
    ) {
        let (buffer, mut found, mut missed) = (&mut *self.buffer, 0, 0);
        let read = self.objects.read_each(keys.iter().copied(), |object| {
            let Some(object) = object else {
                missed += 1;
                return show(None);
            };
            let value = object.value();
            let value = value.as_slice().unwrap_or_else(|| {
                buffer.clear();
                value.copy_to(buffer);
                buffer
            });
            let attributes = attributes_of(object.attributes());
            let (cas, was_read) = (shown_version(object), object.uses() > 0);
            let goes_on = show(Some(Object { value, attributes, cas, idle: 0, was_read }));
            if goes_on {
                found += 1;
                if counts {
                    object.count_use();
                }
            }
            goes_on
        });
        self.found += found;
        self.missed += missed;
        if let Err(error) = read {
            self.on_error(error);
        }
    }

    fn put(
        &mut self,
        key: &[u8],
        value: [&[u8]; 2],
        attributes: Attributes,
    ) -> Result<u64, Refusal> {
        self.buffer.clear();
        self.buffer.extend_from_slice(value[0]);
        self.buffer.extend_from_slice(value[1]);
        self.write(key, attributes, 0)
    }

    fn set_attributes(&mut self, key: &[u8], attributes: Attributes, is_new_version: bool) {
        let buffer = &mut *self.buffer;
        let found = self.objects.read(key, |object| {
            buffer.clear();
            object.value().copy_to(buffer);
            (object.version(), shown_version(object), object.uses())
        });
        let Ok(Some((version, shown, uses))) = found else { return };
        // If too many versions lie between, clients see a new one.
        let behind = self.objects.next_version(version).0 - shown;
        let behind = u32::try_from(behind).unwrap_or(u32::MAX);
        let is_shown = is_new_version || behind > LogAttributes::BEHIND_MAX;
        if self.write(key, attributes, if is_shown { 0 } else { behind }).is_ok() {
            let keep_uses = |object: &Item<'_>| (0..uses).for_each(|_| object.count_use());
            let _ = self.objects.read(key, keep_uses);
        }
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        match self.objects.delete(key) {
            Ok(was_there) => {
                self.has_updated |= was_there;
                *(if was_there { &mut self.found } else { &mut self.missed }) += 1;
                was_there
            }
            Err(error) => {
                self.on_error(error);
                false
            }
        }
    }

    fn remove_all(&mut self, _: u64) {
        // The door does this itself: it concerns the whole table.
    }

    fn now(&self) -> u64 {
        self.objects.time().0 / 1000
    }
}
