//! Pages of the program itself that only its start needed.
//!
//! The kernel maps the code and the constants of a program when they are first used, and sixteen pages around
//! each with it. A server that has read its arguments, made its storage and found its cluster has used much that it
//! never uses again, and all of it counts as its memory: some 3 or 4 MB of 10 in a server without data. Given back, pages come again when they are used, from the file's in memory.

#![allow(
    unsafe_code,
    reason = "the linker tells of the program's segments, and the kernel takes pages back"
)]

use rustix::mm::{Advice, madvise};
use std::ffi::{c_int, c_void};
use std::mem::size_of;

/// Gives the pages of the program's own code and constants back. Those that are in use come again, each for the price of a
/// fault. Returns how many bytes may have gone. Libraries keep theirs: how they were linked is not known here.
///
/// What a debugger wrote over the code, such as a breakpoint, goes as well.
pub fn give_code_back() -> usize {
    let mut bytes = 0usize;
    // SAFETY: `each` takes what the linker gives it, and gets our counter, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut bytes).cast()) };
    bytes
}

/// Gives back those segments of the first object that nobody may write to: that one is the program.
unsafe extern "C" fn each(
    info: *mut libc::dl_phdr_info,
    size: libc::size_t,
    bytes: *mut c_void,
) -> c_int {
    if info.is_null() || size < size_of::<libc::dl_phdr_info>() {
        return 1;
    }
    // SAFETY: the linker's, for the time of this call; its headers are as many as it says; and the counter is that
    // of `give_code_back`.
    let (info, headers, bytes) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (info, headers, &mut *bytes.cast::<usize>())
    };
    let page = rustix::param::page_size() as u64;
    for header in headers.iter().filter(|it| it.p_type == libc::PT_LOAD) {
        if header.p_flags & libc::PF_W != 0 {
            continue;
        }
        let first = info.dlpi_addr.wrapping_add(header.p_vaddr);
        let begins = first.wrapping_add(page - 1) / page * page;
        let ends = first.wrapping_add(header.p_memsz) / page * page;
        let Some(length) = ends.checked_sub(begins).filter(|length| *length > 0) else { continue };
        let (begins, length) = (begins as usize as *mut c_void, length as usize);
        // SAFETY: a private mapping of a file that nothing of this process may write to: what is taken away
        // comes again as it was.
        if unsafe { madvise(begins, length, Advice::LinuxDontNeed) }.is_ok() {
            *bytes += length;
        }
    }
    1
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
    fn code_that_was_given_back_comes_again() {
        let text = "all of this goes on".repeat(3);
        let bytes = give_code_back();
        assert!(bytes > 1 << 16, "{bytes}");
        assert!(mapped_kilobytes() > 0);
        assert_eq!(text.to_uppercase(), "ALL OF THIS GOES ON".repeat(3));
        assert_eq!(give_code_back(), bytes);
    }
}
