//! Structs whose first member is their size, and the other checks of pointers.
//!
//! A program and the library may come from different releases. So each side looks at no more of a
//! struct than both know:
//!
//! - A struct that the library reads may be shorter than the library's: the missing members are 0,
//!   which is always the default. It may also be longer, if the members that the library does not
//!   know are 0. Otherwise the program wants something that this library cannot do.
//! - A struct that the library fills is filled up to the shorter of both sizes. Members that only
//!   the program knows become 0.
//! - Structs that the library owns have the library's size.
//!
//! Only the functions here look behind a pointer of the caller. They check everything that can be
//! checked. The rest are the rules of the header: a pointer that is not `NULL` is valid for the
//! size in front of it.

use crate::abi::{
    th_call, th_error, th_object, th_op, th_options, th_slice, th_table_options, th_value,
};
use crate::failure::Failure;
use crate::status::{TH_BAD_ARGUMENT, TH_BAD_SIZE};
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::mem::{MaybeUninit, align_of, offset_of, size_of};

/// The largest size of a struct that is believed. Larger ones are more likely not initialized.
const SIZE_MAX: usize = 4096;

/// A struct whose first member is its size.
///
/// # Safety
/// It is plain data of C: it begins with a `usize`, and zeros are valid for every member.
pub(crate) unsafe trait SizedStruct: Copy {
    /// The smallest size that is accepted: that of the first release, or less if the program may
    /// leave members out.
    const FIRST_SIZE: usize;
    /// Its name for messages.
    const NAME: &'static str;
}

macro_rules! sized {
    ($($name:ident: $first:expr;)*) => {
        $(
            // SAFETY: it is a `repr(C)` struct of integers, floats, pointers and such structs, and
            // begins with its size.
            unsafe impl SizedStruct for $name {
                const FIRST_SIZE: usize = $first;
                const NAME: &'static str = stringify!($name);
            }
        )*
    };
}

sized! {
    // A program that wants no long text may have a shorter one.
    th_error: offset_of!(th_error, text) + 1;
    th_options: 8;
    th_call: 8;
    th_table_options: 8;
    th_value: 40;
    th_object: 56;
    th_op: 104;
}

fn bad_size<T: SizedStruct>(size: usize) -> Failure {
    let name = T::NAME;
    Failure::refusal(
        TH_BAD_SIZE,
        format!("the size of a {name} is {size}; set it to sizeof({name})"),
    )
}

/// Checks the pointer and the size of a struct. Returns the size.
///
/// # Safety
/// The pointer is `NULL` or points to a size that can be read.
#[inline]
unsafe fn size_at<T: SizedStruct>(at: *const T) -> Result<usize, Failure> {
    if at.is_null() || !at.is_aligned() {
        return Err(Failure::pointer(T::NAME));
    }
    // SAFETY: it is neither null nor misaligned, and the caller vouches for the rest.
    let size = unsafe { at.cast::<usize>().read() };
    if size < T::FIRST_SIZE || size > SIZE_MAX { Err(bad_size::<T>(size)) } else { Ok(size) }
}

/// Reads a struct of the caller.
///
/// # Safety
/// The pointer is `NULL` or valid for reads of the size at its beginning.
#[inline]
pub(crate) unsafe fn input<T: SizedStruct>(from: *const T) -> Result<T, Failure> {
    // SAFETY: as the caller vouches.
    let size = unsafe { size_at(from) }?;
    let known = size.min(size_of::<T>());
    let mut read = MaybeUninit::<T>::zeroed();
    // SAFETY: both are valid for `known` bytes, and a fresh local cannot overlap. Zeros and the
    // caller's bytes are valid values of such a struct. The only type with invalid values is
    // `bool`, and structs that are read have none.
    let read = unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), read.as_mut_ptr().cast::<u8>(), known);
        read.assume_init()
    };
    // SAFETY: the caller's struct has `size` bytes.
    let rest = unsafe { std::slice::from_raw_parts(from.cast::<u8>().add(known), size - known) };
    if rest.iter().any(|byte| *byte != 0) {
        return Err(bad_size::<T>(size));
    }
    Ok(read)
}

/// Reads a struct that may be left out.
///
/// # Safety
/// As for [`input`].
#[inline]
pub(crate) unsafe fn optional<T: SizedStruct>(from: *const T) -> Result<Option<T>, Failure> {
    // SAFETY: as the caller vouches.
    if from.is_null() { Ok(None) } else { unsafe { input(from) }.map(Some) }
}

/// A struct of the caller that the library will fill.
pub(crate) struct Output<'a, T> {
    to: *mut T,
    size: usize,
    caller: PhantomData<&'a mut T>,
}

/// Checks a struct that the library will fill.
///
/// # Safety
/// The pointer is `NULL`, or valid for reads and writes of the size at its beginning, during the
/// lifetime of the result.
#[inline]
pub(crate) unsafe fn output<'a, T: SizedStruct>(to: *mut T) -> Result<Output<'a, T>, Failure> {
    // SAFETY: as the caller vouches.
    let size = unsafe { size_at(to) }?;
    Ok(Output { to, size, caller: PhantomData })
}

impl<T: SizedStruct> Output<'_, T> {
    /// Fills the struct. Its size stays that of the caller.
    #[inline]
    pub(crate) fn fill(&mut self, with: &T) {
        let from = std::ptr::from_ref(with).cast::<u8>();
        let (to, head) = (self.to.cast::<u8>(), size_of::<usize>());
        if self.size == size_of::<T>() {
            // A length that the compiler knows needs no calls.
            // SAFETY: both are valid for this size, and do not overlap, as below.
            return unsafe {
                std::ptr::copy_nonoverlapping(from.add(head), to.add(head), size_of::<T>() - head);
            };
        }
        let known = self.size.min(size_of::<T>());
        // SAFETY: the struct is valid for `size` bytes, as was vouched for when this was made, and
        // `with` for its own size. They do not overlap, because `with` is a Rust reference.
        unsafe {
            std::ptr::copy_nonoverlapping(from.add(head), to.add(head), known - head);
            to.add(known).write_bytes(0, self.size - known);
        }
    }

    /// The number of its bytes that both sides know.
    pub(crate) fn known(&self) -> usize {
        self.size.min(size_of::<T>())
    }

    /// Writes zeros into its bytes from `from` up to `to`.
    #[inline]
    pub(crate) fn clear(&mut self, from: usize, to: usize) {
        assert!(size_of::<usize>() <= from && from <= to && to <= self.size, "inside");
        // SAFETY: the struct is valid for `size` bytes, and both ends are inside.
        unsafe { self.to.cast::<u8>().add(from).write_bytes(0, to - from) }
    }
}

/// Checks a place for a plain result: a number or a pointer.
///
/// # Safety
/// The pointer is `NULL` or valid for writes during the lifetime of the result.
#[inline]
pub(crate) unsafe fn place<'a, T>(
    to: *mut T,
    name: &'static str,
) -> Result<&'a mut MaybeUninit<T>, Failure> {
    if to.is_null() || !to.is_aligned() {
        return Err(Failure::pointer(name));
    }
    // SAFETY: it is neither null nor misaligned, and the caller vouches for the rest.
    Ok(unsafe { &mut *to.cast::<MaybeUninit<T>>() })
}

/// A place for a plain result that the caller may leave out.
///
/// # Safety
/// As for [`place`].
#[inline]
pub(crate) unsafe fn optional_place<'a, T>(
    to: *mut T,
    name: &'static str,
) -> Result<Option<&'a mut MaybeUninit<T>>, Failure> {
    // SAFETY: as the caller vouches.
    if to.is_null() { Ok(None) } else { unsafe { place(to, name) }.map(Some) }
}

/// Returns a handle or another struct that the library made.
///
/// # Safety
/// The pointer is `NULL` or was returned by the library and has not been freed.
#[inline]
pub(crate) unsafe fn handle<'a, T>(at: *const T, name: &'static str) -> Result<&'a T, Failure> {
    if at.is_null() || !at.is_aligned() {
        return Err(Failure::pointer(name));
    }
    // SAFETY: it is neither null nor misaligned, and the caller vouches for the rest.
    Ok(unsafe { &*at })
}

/// Returns the bytes of a slice.
///
/// # Safety
/// The slice's pointer is `NULL`, or valid for reads of its size during the lifetime of the
/// result.
#[inline]
pub(crate) unsafe fn bytes<'a>(of: th_slice, name: &'static str) -> Result<&'a [u8], Failure> {
    if of.size == 0 {
        return Ok(&[]);
    }
    if of.data.is_null() || of.size > isize::MAX as usize {
        return Err(Failure::pointer(name));
    }
    // SAFETY: it is not null and no longer than a slice may be; bytes need no alignment. The
    // caller vouches for the rest.
    Ok(unsafe { std::slice::from_raw_parts(of.data.cast::<u8>(), of.size) })
}

/// Returns a text that ends with a zero.
///
/// # Safety
/// The pointer is `NULL` or points to bytes that end with a zero.
pub(crate) unsafe fn text<'a>(at: *const c_char, name: &'static str) -> Result<&'a str, Failure> {
    if at.is_null() {
        return Err(Failure::pointer(name));
    }
    // SAFETY: it is not null, and the caller vouches for the zero at the end.
    let text = unsafe { CStr::from_ptr(at) };
    crate::arguments::utf8(text.to_bytes(), name)
}

/// Returns the plain elements of an array.
///
/// # Safety
/// The pointer is `NULL` or valid for reads of `count` elements during the lifetime of the result.
pub(crate) unsafe fn array<'a, T: Copy>(
    at: *const T,
    count: usize,
    name: &'static str,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() || !at.is_aligned() {
        return Err(Failure::pointer(name));
    }
    crate::arguments::check_count(count)?;
    // SAFETY: it is neither null nor misaligned, a million elements are shorter than a slice may
    // be, and the caller vouches for the rest.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

/// Reads an array of structs that all have the size of the first.
///
/// # Safety
/// The pointer is `NULL`, or valid for reads of `count` structs of that size.
pub(crate) unsafe fn inputs<T: SizedStruct>(at: *const T, count: usize) -> Result<Vec<T>, Failure> {
    if count == 0 {
        return Ok(Vec::new());
    }
    crate::arguments::check_count(count)?;
    // SAFETY: there is a first struct.
    let size = unsafe { size_at(at) }?;
    if !size.is_multiple_of(align_of::<T>()) {
        return Err(bad_size::<T>(size));
    }
    let mut read = Vec::with_capacity(count);
    for index in 0..count {
        // SAFETY: the struct with this index begins there, because all have one size.
        let (its_size, one) = unsafe {
            let one = at.cast::<u8>().add(index * size).cast::<T>();
            (size_at(one)?, input(one)?)
        };
        if its_size != size {
            let why = format!("element {index} of an array has another size than element 0");
            return Err(Failure::refusal(TH_BAD_SIZE, why));
        }
        read.push(one);
    }
    Ok(read)
}

impl Failure {
    /// The failure for a pointer that cannot be used.
    #[cold]
    fn pointer(name: &'static str) -> Failure {
        Failure::refusal(TH_BAD_ARGUMENT, format!("the argument {name} is NULL or misaligned"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A struct as three releases know it: the library is from the second.
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct First {
        size: usize,
        one: u64,
    }

    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Second {
        size: usize,
        one: u64,
        two: u64,
    }

    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Third {
        size: usize,
        one: u64,
        two: u64,
        three: u64,
    }

    // SAFETY: it is plain data and begins with its size.
    unsafe impl SizedStruct for Second {
        const FIRST_SIZE: usize = size_of::<First>();
        const NAME: &'static str = "second";
    }

    #[test]
    fn members_that_a_program_does_not_know_have_their_defaults() {
        let first = First { size: size_of::<First>(), one: 1 };
        // SAFETY: the struct is as long as it says.
        let read = unsafe { input((&raw const first).cast::<Second>()) }.unwrap();
        assert_eq!((read.one, read.two), (1, 0));
        let mut first = First { size: size_of::<First>(), one: 0 };
        // SAFETY: as above.
        let mut filled = unsafe { output((&raw mut first).cast::<Second>()) }.unwrap();
        filled.fill(&Second { size: 0, one: 5, two: 6 });
        assert_eq!((first.size, first.one), (size_of::<First>(), 5));
    }

    #[test]
    fn members_that_the_library_does_not_know_must_not_be_used() {
        let third = |three| Third { size: size_of::<Third>(), one: 1, two: 2, three };
        let unused = third(0);
        // SAFETY: the struct is as long as it says.
        let read = unsafe { input((&raw const unused).cast::<Second>()) }.unwrap();
        assert_eq!((read.one, read.two), (1, 2));
        let used = third(1 << 60);
        // SAFETY: as above.
        let refused = unsafe { input((&raw const used).cast::<Second>()) }.err().unwrap();
        assert_eq!(refused.status, TH_BAD_SIZE);
        let mut filled = third(9);
        // SAFETY: as above.
        let mut output = unsafe { output((&raw mut filled).cast::<Second>()) }.unwrap();
        output.fill(&Second { size: 0, one: 5, two: 6 });
        assert_eq!((filled.one, filled.two, filled.three), (5, 6, 0));
    }

    #[test]
    fn pointers_that_cannot_be_right_are_refused() {
        let call = th_call { size: 24, deadline_us: 0, ttl_ms: 0 };
        let misaligned = (&raw const call).cast::<u8>().wrapping_add(1).cast::<th_call>();
        for pointer in [std::ptr::null(), misaligned] {
            // SAFETY: pointers that are null or misaligned are never used.
            let refused = unsafe { input(pointer) }.err().unwrap();
            assert_eq!(refused.status, TH_BAD_ARGUMENT);
        }
        let huge = th_slice { data: (&raw const call).cast(), size: usize::MAX };
        // SAFETY: a slice that is longer than any memory is never used.
        assert_eq!(unsafe { bytes(huge, "key") }.err().unwrap().status, TH_BAD_ARGUMENT);
        // SAFETY: it is empty.
        let empty = unsafe { bytes(th_slice { data: std::ptr::null(), size: 0 }, "key") };
        assert_eq!(empty.ok(), Some(&[][..]));
    }
}
