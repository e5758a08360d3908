//! Atomics and fences: the standard library's, or loom's when a model is being checked.
//! [`lock`] is for the few values that threads replace under a lock of the standard library.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(not(loom))]
pub(crate) use std::hint::spin_loop;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(loom)]
pub(crate) use loom::hint::spin_loop;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
/// Flags of entries are accessed through [`AtomicU8::from_ptr`], which loom does not have; no model
/// accesses them.
#[cfg(loom)]
pub(crate) use std::sync::atomic::AtomicU8;

/// Locks a mutex whose value is replaced whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A cleaner that panicked has not left these values half-changed: each is replaced whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
