//! Handles and buffers that Java passes as numbers.

use jni::sys::{jint, jlong};
use std::ops::{Deref, DerefMut};

/// Moves a value to the heap and returns its handle.
pub(crate) fn handle<T>(value: T) -> jlong {
    Box::into_raw(Box::new(value)).expose_provenance() as jlong
}

/// Returns the value behind a handle.
///
/// # Safety
/// The handle comes from [`handle`] with the same type, and is not freed before `'a` ends.
pub(crate) unsafe fn borrow<'a, T>(handle: jlong) -> &'a T {
    // SAFETY: the caller promises that the value is alive and of this type.
    unsafe { &*std::ptr::with_exposed_provenance::<T>(handle as usize) }
}

/// Takes the value back from its handle.
///
/// # Safety
/// The handle comes from [`handle`] with the same type, and is not used any more.
pub(crate) unsafe fn free<T>(handle: jlong) -> Box<T> {
    // SAFETY: the caller promises that the value is alive, of this type, and not borrowed.
    unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<T>(handle as usize)) }
}

/// The bytes of a direct buffer.
pub(crate) struct Region<'a>(&'a mut [u8]);

impl Region<'_> {
    /// Makes a region of some bytes at an address.
    ///
    /// # Safety
    /// The address is that of a direct buffer with at least this many bytes. It lives as long as
    /// the region, and nothing else uses its bytes meanwhile.
    pub(crate) unsafe fn new<'a>(address: jlong, bytes: jint) -> Region<'a> {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        let bytes = usize::try_from(bytes).unwrap_or(0);
        // SAFETY: the caller promises that these bytes exist and are not used otherwise. Java fills
        // a direct buffer with zeroes when it allocates it, so they are initialized.
        Region(unsafe { std::slice::from_raw_parts_mut(start, bytes) })
    }
}

impl Deref for Region<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl DerefMut for Region<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0
    }
}
