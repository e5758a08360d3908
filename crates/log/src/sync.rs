//! Atomics and fences: the standard library's, or loom's when a model is being checked.

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
