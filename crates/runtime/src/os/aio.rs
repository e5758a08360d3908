//! Several writes to one file, all in flight at once.
//!
//! They use the kernel's own asynchronous I/O (`io_submit`). `io_uring` would do as well, but
//! containers often forbid it, and its rings need much more unsafe code than four calls. For a file
//! without direct I/O the kernel does each write during its submission: nothing is gained then, and
//! nothing is lost.
//!
//! It is separate because the kernel reads memory after the call that names it has returned. All
//! writes have ended when [`Queue::write`] returns, even after failures. If the kernel could not
//! guarantee that, the process would end. When a process is killed, the kernel waits for its writes
//! before it closes its files, so the next process that gets their locks comes after them. (It does
//! not wait if another process holds on to the killed process's memory at that moment, as a list of
//! processes does for some microseconds.)

#![allow(unsafe_code, reason = "lending memory to the kernel until it is done")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

/// The most writes in flight: the system has a limited number for all its processes.
pub(super) const AT_ONCE: usize = 32;

/// The contents of a write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// Words, which other threads may write to meanwhile.
    Words(&'a [AtomicU64]),
}

impl Source<'_> {
    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Source::Bytes(bytes) => bytes.len(),
            Source::Words(words) => size_of_val(*words),
        }
    }

    /// Returns the address for the kernel.
    fn address(&self) -> u64 {
        match self {
            Source::Bytes(bytes) => bytes.as_ptr().expose_provenance() as u64,
            Source::Words(words) => words.as_ptr().expose_provenance() as u64,
        }
    }
}

/// The queue through which writes begin and end.
#[derive(Debug, Default)]
pub(super) struct Queue(State);

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Not used yet.
    #[default]
    Unused,
    /// The kernel's name for it.
    Open(libc::c_ulong),
    /// The kernel refuses this process a queue.
    Refused,
}

/// The kernel's `struct iocb`.
#[derive(Default)]
#[repr(C)]
struct Request {
    data: u64,
    /// The kernel's own field, and flags, which are 0.
    key_and_flags: u64,
    operation: u16,
    priority: i16,
    file: u32,
    address: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

/// The kernel's `struct io_event`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    more: i64,
}

const _: () = assert!(size_of::<Request>() == 64 && size_of::<Event>() == 32);

/// `IOCB_CMD_PWRITE`.
const WRITE: u16 = 1;

impl Queue {
    /// Returns a queue that does nothing, as after the kernel's refusal.
    #[cfg(test)]
    pub(super) fn refused() -> Queue {
        Queue(State::Refused)
    }

    /// Begins all the writes, each with its offset, and waits until all have ended. Returns how
    /// many bytes of each, from its beginning, are certainly written. The number is 0 if the write
    /// failed or the kernel refused to begin it. The cause is not returned: the caller writes the
    /// rest in the ordinary way and meets it there.
    pub(super) fn write(&mut self, file: &File, writes: &[(u64, Source<'_>)]) -> Vec<usize> {
        let mut written = vec![0; writes.len()];
        let Some(queue) = self.opened() else { return written };
        let request = |(at, (offset, from)): (usize, &(u64, Source<'_>))| Request {
            data: at as u64,
            operation: WRITE,
            file: file.as_raw_fd().cast_unsigned(),
            address: from.address(),
            bytes: from.len() as u64,
            // The kernel refuses offsets below 0.
            offset: offset.cast_signed(),
            ..Request::default()
        };
        let mut requests: Vec<Request> = writes.iter().enumerate().map(request).collect();
        let mut pointers: Vec<*mut Request> = requests.iter_mut().map(std::ptr::from_mut).collect();
        let mut events = [Event::default(); AT_ONCE];
        let (mut begun, mut under_way) = (0, 0);
        // No code in here may panic: memory that is lent to the kernel must stay.
        while begun < pointers.len() || under_way > 0 {
            let until = pointers.len().min(begun + AT_ONCE - under_way);
            if let Some(next) = pointers.get_mut(begun..until).filter(|next| !next.is_empty()) {
                // SAFETY: the pointers name requests that live until this function returns, and so
                // does their memory: `writes` borrows it. The kernel only reads from there, and
                // bytes that other threads write meanwhile are atomics. The function returns only
                // when no write is in flight.
                let count = unsafe {
                    let count = next.len() as libc::c_long;
                    libc::syscall(libc::SYS_io_submit, queue, count, next.as_mut_ptr())
                };
                match usize::try_from(count) {
                    Ok(count) if count > 0 => {
                        begun += count;
                        under_way += count;
                        continue;
                    }
                    // The first of them cannot begin. While others are in flight there may be no
                    // room for it.
                    _ if under_way == 0 => {
                        begun += 1;
                        continue;
                    }
                    _ => {}
                }
            }
            let least = if begun < pointers.len() { 1 } else { under_way };
            let Ok(over) = wait(queue, least, &mut events) else {
                // Cannot happen with such a queue. Closing it waits for all writes.
                self.close();
                written.fill(0);
                break;
            };
            for event in events.iter().take(over) {
                if let (Some(into), Ok(count)) =
                    (written.get_mut(event.data as usize), usize::try_from(event.result))
                {
                    *into = count;
                }
            }
            under_way = under_way.saturating_sub(over);
        }
        written
    }

    fn opened(&mut self) -> Option<libc::c_ulong> {
        if let State::Unused = self.0 {
            let mut queue: libc::c_ulong = 0;
            // SAFETY: the kernel writes one number there.
            let made = unsafe {
                let at_once = AT_ONCE as libc::c_long;
                libc::syscall(libc::SYS_io_setup, at_once, &raw mut queue)
            };
            self.0 = if made == 0 { State::Open(queue) } else { State::Refused };
        }
        match self.0 {
            State::Open(queue) => Some(queue),
            _ => None,
        }
    }

    /// Waits until no write is in flight, and refuses all later writes.
    fn close(&mut self) {
        if let State::Open(queue) = std::mem::replace(&mut self.0, State::Refused) {
            // SAFETY: the number is from `io_setup`, and is not used again.
            let closed = unsafe { libc::syscall(libc::SYS_io_destroy, queue) };
            if closed != 0 {
                // A write in flight could store later contents of its memory in the file.
                std::process::abort();
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.close();
    }
}

/// Waits until at least so many writes have ended. Returns their number.
fn wait(queue: libc::c_ulong, least: usize, events: &mut [Event; AT_ONCE]) -> io::Result<usize> {
    loop {
        // SAFETY: the kernel writes events into the array, no more than it has room for.
        let count = unsafe {
            let (least, most) = (least as libc::c_long, AT_ONCE as libc::c_long);
            let for_ever = std::ptr::null_mut::<libc::timespec>();
            libc::syscall(libc::SYS_io_getevents, queue, least, most, events.as_mut_ptr(), for_ever)
        };
        match usize::try_from(count) {
            Ok(count) => return Ok(count),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn each_write_is_counted_by_itself_and_a_closed_queue_does_nothing() {
        let path = std::env::temp_dir().join(format!("thunderhead-queue-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let words = [AtomicU64::new(u64::from_ne_bytes(*b"eight by")), AtomicU64::new(0)];
        let writes = [
            (0, Source::Bytes(b"three")),
            (100, Source::Words(&words)),
            (u64::MAX, Source::Bytes(b"no")),
        ];
        let mut queue = Queue::default();
        if queue.opened().is_none() {
            // A kernel or a container without this interface.
            assert_eq!(queue.write(&file, &writes), [0; 3]);
            return std::fs::remove_file(&path).unwrap();
        }
        assert_eq!(queue.write(&file, &writes), [5, 16, 0]);
        let mut found = [0; 8];
        file.read_exact_at(&mut found, 100).unwrap();
        assert_eq!(&found, b"eight by");
        assert!(queue.write(&file, &[]).is_empty());
        queue.close();
        assert!(queue.opened().is_none());
        assert_eq!(queue.write(&file, &writes), [0; 3]);
        std::fs::remove_file(&path).unwrap();
    }
}
