//! Returns memory to the kernel that only the program's start needed.
//!
//! The kernel maps a program's code and constants at their first use, together with the sixteen
//! pages around each, or with a whole larger piece if the page cache holds one. A server that has
//! read its arguments, made its storage and found its cluster has used much code that it never uses
//! again. All of it counts as the server's memory: most of 7 to 10 MB in a server without data. A
//! page that is given back returns from the page cache at its next use. Freed heap memory goes too,
//! half a megabyte for the arguments alone.

#![allow(
    unsafe_code,
    reason = "the linker lists the program's segments, and the kernel takes pages back"
)]

use crate::optimizations::Optimization;
use rustix::mm::{Advice, madvise};
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::mem::size_of;
use std::os::unix::fs::FileExt;

/// In a library's dynamic section: the linker has changed its code. (`elf.h`)
const DT_TEXTREL: u64 = 22;
const DT_FLAGS: u64 = 30;
const DF_TEXTREL: u64 = 4;

/// Gives back memory that only the start of the program used: pages of code and constants of the
/// program and its libraries, and free pages of the heap. A page that is used again returns at the
/// price of a page fault. Returns how many bytes of code and constants may have gone.
///
/// Pages that differ from their file stay: code that a debugger, a library or the linker has
/// changed, or that was moved to other pages.
pub fn give_start_back() -> usize {
    if !Optimization::StartMemory.is_on() {
        return 0;
    }
    // SAFETY: it releases free memory only, under the allocator's own locks.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0);
    }
    // If the contents of pages are unknown, none is given back.
    #[allow(clippy::disallowed_methods, reason = "the kernel's view of this process")]
    let Ok(pages) = File::open("/proc/self/pagemap") else { return 0 };
    let mut walk = PageWalk { pages, bytes: 0 };
    // SAFETY: `each` takes the linker's arguments and our state, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut walk).cast()) };
    walk.bytes
}

/// The state of the walk through all objects.
struct PageWalk {
    /// The kernel's view of this process's pages, one word for each.
    pages: File,
    bytes: usize,
}

/// Bits of such a word: the page belongs to a file, it is swapped, it is present.
const OF_FILE: u64 = 1 << 61;
const SWAPPED: u64 = 1 << 62;
const PRESENT: u64 = 1 << 63;

/// Whether all present pages of a range still have their file's contents: no write has changed
/// them.
fn is_as_its_file(pages: &File, begins: usize, length: usize) -> bool {
    let page = rustix::param::page_size();
    let mut words = vec![0; length / page * size_of::<u64>()];
    let at = (begins / page * size_of::<u64>()) as u64;
    let is_known = pages.read_exact_at(&mut words, at).is_ok();
    let (words, _) = words.as_chunks::<{ size_of::<u64>() }>();
    let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
    is_known && words.all(|word| word & (PRESENT | SWAPPED) == 0 || word & OF_FILE != 0)
}

/// Gives back an object's segments that are not writable. An object is the program or a library.
unsafe extern "C" fn each(
    info: *mut libc::dl_phdr_info,
    size: libc::size_t,
    walk: *mut c_void,
) -> c_int {
    if info.is_null() || size < size_of::<libc::dl_phdr_info>() {
        return 1;
    }
    // SAFETY: `info` is the linker's and lives during this call. It has as many headers as it says.
    // The state is that of `give_start_back`.
    let (info, headers, walk) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (info, headers, &mut *walk.cast::<PageWalk>())
    };
    let at = |header: &libc::Elf64_Phdr| info.dlpi_addr.wrapping_add(header.p_vaddr);
    let mut dynamic = headers.iter().filter(|it| it.p_type == libc::PT_DYNAMIC);
    // SAFETY: the linker has read this section of the object, which exists as long as the object.
    if dynamic.any(|it| unsafe { has_changed_code(at(it), it.p_memsz) }) {
        return 0;
    }
    let page = rustix::param::page_size() as u64;
    for header in headers.iter().filter(|it| it.p_type == libc::PT_LOAD) {
        if header.p_flags & libc::PF_W != 0 {
            continue;
        }
        let begins = at(header).wrapping_add(page - 1) / page * page;
        let ends = at(header).wrapping_add(header.p_memsz) / page * page;
        let Some(length) = ends.checked_sub(begins).filter(|length| *length > 0) else { continue };
        let (begins, length) = (begins as usize, length as usize);
        if !is_as_its_file(&walk.pages, begins, length) {
            continue;
        }
        // SAFETY: these are pages of a file that this process must not write to, and has not
        // written to: a page that is given back returns unchanged. The object cannot be unloaded
        // meanwhile, because the linker holds its lock.
        let given = unsafe { madvise(begins as *mut c_void, length, Advice::LinuxDontNeed) };
        if given.is_ok() {
            walk.bytes += length;
        }
    }
    0
}

/// Whether the linker had to change an object's code. The change would be lost with its pages.
///
/// # Safety
/// The object's dynamic section has so many bytes at this address.
unsafe fn has_changed_code(address: u64, bytes: u64) -> bool {
    let entries = bytes as usize / size_of::<[u64; 2]>();
    // SAFETY: the section consists of pairs of words, as the caller says.
    let all = unsafe { std::slice::from_raw_parts(address as usize as *const [u64; 2], entries) };
    let mut used = all.iter().take_while(|[tag, _]| *tag != 0);
    used.any(|[tag, value]| *tag == DT_TEXTREL || *tag == DT_FLAGS && value & DF_TEXTREL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how much of the program's code is mapped.
    fn mapped_kilobytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssFile:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn pages_that_were_given_back_return() {
        let text = "all of this goes on".repeat(3);
        let bytes = give_start_back();
        assert!(bytes > 1 << 16, "{bytes}");
        assert!(mapped_kilobytes() > 0);
        assert_eq!(text.to_uppercase(), "ALL OF THIS GOES ON".repeat(3));
        assert!((0.5f64.sin() - 0.479_425_538).abs() < 1e-9, "the code of libraries returns too");
        assert_eq!(give_start_back(), bytes);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a file of the test's own")]
    fn written_pages_differ_from_their_file() {
        use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
        let pages = File::open("/proc/self/pagemap").unwrap();
        let length = 2 * rustix::param::page_size();
        let path = std::env::temp_dir().join(format!("thunderhead-code-{}", std::process::id()));
        std::fs::write(&path, vec![7; length]).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let how = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: mappings of this test alone, which are removed at its end.
        unsafe {
            let null = std::ptr::null_mut();
            let of_file =
                mmap(null, length, how, MapFlags::PRIVATE, &file, 0).unwrap().cast::<u8>();
            assert!(is_as_its_file(&pages, of_file as usize, length), "no page is present");
            assert_eq!(of_file.read_volatile(), 7);
            assert!(is_as_its_file(&pages, of_file as usize, length));
            of_file.add(length - 1).write_volatile(8);
            assert!(
                !is_as_its_file(&pages, of_file as usize, length),
                "one of two pages was written"
            );
            assert!(is_as_its_file(&pages, of_file as usize, length / 2), "the other page was not");
            let moved = mmap_anonymous(null, length, how, MapFlags::PRIVATE).unwrap().cast::<u8>();
            moved.write_volatile(7);
            assert!(!is_as_its_file(&pages, moved as usize, length), "the page belongs to no file");
            munmap(of_file.cast(), length).unwrap();
            munmap(moved.cast(), length).unwrap();
        }
    }

    #[test]
    fn an_object_with_changed_code_is_detected() {
        let changed = |entries: &[[u64; 2]]| {
            // SAFETY: all of the slice.
            unsafe { has_changed_code(entries.as_ptr() as u64, size_of_val(entries) as u64) }
        };
        assert!(changed(&[[1, 7], [DT_TEXTREL, 0]]));
        assert!(changed(&[[DT_FLAGS, DF_TEXTREL | 8]]));
        assert!(!changed(&[[DT_FLAGS, 8], [0, 0], [DT_TEXTREL, 0]]));
        assert!(!changed(&[]));
    }
}
