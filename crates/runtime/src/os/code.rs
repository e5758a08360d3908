//! Memory of the program itself that only its start needed.
//!
//! The kernel maps the code and the constants of a program when they are first used, and sixteen pages around
//! each with it, or all of a larger piece where the file's memory has it in one. A server that has read its arguments,
//! made its storage and found its cluster has used much that it never uses again, and all of it counts as its memory:
//! most of some 7 to 10 MB in a server without data. Given back, pages come again when they are used, from the file's in
//! memory. What was allocated meanwhile and is free again, half a megabyte for the arguments alone, goes too.

#![allow(
    unsafe_code,
    reason = "the linker tells of the program's segments, and the kernel takes pages back"
)]

use rustix::mm::{Advice, madvise};
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::mem::size_of;
use std::os::unix::fs::FileExt;

/// In a library's dynamic section: the linker has changed code of it. (`elf.h`)
const DT_TEXTREL: u64 = 22;
const DT_FLAGS: u64 = 30;
const DF_TEXTREL: u64 = 4;

/// Gives back what the start of a program took and what nobody needs now: pages of code and constants, of the program
/// and its libraries, and free pages of the heap. What is used all the same comes again, each for the price of a fault.
/// Returns how many bytes of code and constants may have gone.
///
/// What is not as its file has it is left alone: code that a debugger, a library or the linker has written over, or
/// that was moved to other pages.
pub fn give_start_back() -> usize {
    // SAFETY: it takes what is free, under the locks of its own.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0);
    }
    // Where it cannot be known what is in a page, none is given back.
    #[allow(clippy::disallowed_methods, reason = "what the kernel says of this process")]
    let Ok(pages) = File::open("/proc/self/pagemap") else { return 0 };
    let mut giving = Giving { pages, bytes: 0 };
    // SAFETY: `each` takes what the linker gives it, and gets our state, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut giving).cast()) };
    giving.bytes
}

/// What the walk through all objects needs, and what it has given back.
struct Giving {
    /// What the kernel says of each page of ours, in a word.
    pages: File,
    bytes: usize,
}

/// Bits of such a word: the page is of a file, it is swapped, it is there.
const OF_FILE: u64 = 1 << 61;
const SWAPPED: u64 = 1 << 62;
const PRESENT: u64 = 1 << 63;

/// Whether those pages of a range that hold anything hold what a file has there: nobody has written to them.
fn is_as_its_file(pages: &File, begins: usize, length: usize) -> bool {
    let page = rustix::param::page_size();
    let mut words = vec![0; length / page * size_of::<u64>()];
    let at = (begins / page * size_of::<u64>()) as u64;
    let is_known = pages.read_exact_at(&mut words, at).is_ok();
    let (words, _) = words.as_chunks::<{ size_of::<u64>() }>();
    let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
    is_known && words.all(|word| word & (PRESENT | SWAPPED) == 0 || word & OF_FILE != 0)
}

/// Gives back those segments of an object, which is the program or a library, that nobody may write to.
unsafe extern "C" fn each(
    info: *mut libc::dl_phdr_info,
    size: libc::size_t,
    giving: *mut c_void,
) -> c_int {
    if info.is_null() || size < size_of::<libc::dl_phdr_info>() {
        return 1;
    }
    // SAFETY: the linker's, for the time of this call; its headers are as many as it says; and the state is that
    // of `give_start_back`.
    let (info, headers, giving) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (info, headers, &mut *giving.cast::<Giving>())
    };
    let at = |header: &libc::Elf64_Phdr| info.dlpi_addr.wrapping_add(header.p_vaddr);
    let mut dynamic = headers.iter().filter(|it| it.p_type == libc::PT_DYNAMIC);
    // SAFETY: the linker has read this section of the object, which is there as long as the object is.
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
        if !is_as_its_file(&giving.pages, begins, length) {
            continue;
        }
        // SAFETY: pages of a file, that nothing of this process may write to, nor has anybody: what is taken away comes
        // again as it was. The object cannot go meanwhile, for the linker holds its lock.
        let given = unsafe { madvise(begins as *mut c_void, length, Advice::LinuxDontNeed) };
        if given.is_ok() {
            giving.bytes += length;
        }
    }
    0
}

/// Whether the linker had to change code of an object, which would be lost with its pages.
///
/// # Safety
/// The object's dynamic section is there, at this address and with so many bytes.
unsafe fn has_changed_code(address: u64, bytes: u64) -> bool {
    let entries = bytes as usize / size_of::<[u64; 2]>();
    // SAFETY: of pairs of words, as the caller says.
    let all = unsafe { std::slice::from_raw_parts(address as usize as *const [u64; 2], entries) };
    let mut used = all.iter().take_while(|[tag, _]| *tag != 0);
    used.any(|[tag, value]| *tag == DT_TEXTREL || *tag == DT_FLAGS && value & DF_TEXTREL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the program's code, how much is mapped.
    fn mapped_kilobytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssFile:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn what_was_given_back_comes_again() {
        let text = "all of this goes on".repeat(3);
        let bytes = give_start_back();
        assert!(bytes > 1 << 16, "{bytes}");
        assert!(mapped_kilobytes() > 0);
        assert_eq!(text.to_uppercase(), "ALL OF THIS GOES ON".repeat(3));
        assert!((0.5f64.sin() - 0.479_425_538).abs() < 1e-9, "also of libraries");
        assert_eq!(give_start_back(), bytes);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a file of the test's own")]
    fn pages_that_somebody_wrote_to_are_not_as_their_file_has_them() {
        use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
        let pages = File::open("/proc/self/pagemap").unwrap();
        let length = 2 * rustix::param::page_size();
        let path = std::env::temp_dir().join(format!("thunderhead-code-{}", std::process::id()));
        std::fs::write(&path, vec![7; length]).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let how = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: mappings of our own, of which nobody else knows; they go at the end.
        unsafe {
            let null = std::ptr::null_mut();
            let of_file =
                mmap(null, length, how, MapFlags::PRIVATE, &file, 0).unwrap().cast::<u8>();
            assert!(is_as_its_file(&pages, of_file as usize, length), "nothing is there");
            assert_eq!(of_file.read_volatile(), 7);
            assert!(is_as_its_file(&pages, of_file as usize, length));
            of_file.add(length - 1).write_volatile(8);
            assert!(!is_as_its_file(&pages, of_file as usize, length), "one of two was written to");
            assert!(is_as_its_file(&pages, of_file as usize, length / 2), "the other one was not");
            let moved = mmap_anonymous(null, length, how, MapFlags::PRIVATE).unwrap().cast::<u8>();
            moved.write_volatile(7);
            assert!(!is_as_its_file(&pages, moved as usize, length), "of no file");
            munmap(of_file.cast(), length).unwrap();
            munmap(moved.cast(), length).unwrap();
        }
    }

    #[test]
    fn an_object_whose_code_was_changed_is_found() {
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
