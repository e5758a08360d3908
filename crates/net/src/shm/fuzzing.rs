//! The entry point of the fuzz target: a peer that writes any value at any place. It accepts any
//! bytes and must never panic.

use super::channel::Channel;
use super::doorbell::Until;
use super::error::Corrupt;
use super::layout::{End, LINE_BYTES, LINE_WORDS, Layout, RING_BYTES_MIN, WORD_BYTES};
use super::mapping::{Mapping, SealedMemory};
use super::ring::header;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use std::sync::atomic::Ordering;

/// A client that keeps to no rules: only the memory and the socket.
pub(super) struct Hostile {
    pub(super) mapping: Mapping,
    pub(super) socket: OwnedFd,
}

/// Returns an honest server with the smallest rings, and a hostile client at its other end.
pub(super) fn honest_and_hostile() -> (Channel, Hostile) {
    let layout = Layout::new(RING_BYTES_MIN).expect("the smallest ring is a ring");
    let memory = SealedMemory::create(layout).expect("the system has memory for a test");
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .expect("the system has sockets for a test");
    let map = || memory.map().expect("the system maps a few pages");
    (Channel::new(map(), one, End::Server), Hostile { mapping: map(), socket: other })
}

impl Hostile {
    /// Writes a word at any place.
    pub(super) fn write(&self, word: usize, value: u64) {
        let words = self.mapping.words();
        words[word % words.len()].store(value, Ordering::Release);
    }

    /// Writes a plausible header at the start of a line of the ring to the server.
    pub(super) fn write_header(&self, line: usize, payload: u64) {
        let ring = self.mapping.layout().ring_written_by(End::Client);
        let lines = ring.len() / LINE_WORDS;
        self.write(ring.start + line % lines * LINE_WORDS, header(payload));
    }

    /// Claims to have consumed this number of lines of the server's bytes.
    pub(super) fn write_consumed(&self, lines: u64) {
        let word = self.mapping.layout().consumed_from(End::Server);
        self.write(word, lines * LINE_BYTES);
    }

    /// Sends bytes over the socket, on which the server expects wake-ups.
    fn shout(&self, bytes: usize) {
        let _ = send(&self.socket, &[b'!'; 255][..bytes], SendFlags::NOSIGNAL);
    }
}

/// Interprets bytes as a hostile peer's writes among an honest end's calls. An honest end that
/// detects an attack stops, as its owner would.
#[doc(hidden)]
pub fn fuzz_hostile(data: &[u8]) {
    let (mut honest, hostile) = honest_and_hostile();
    let mut steps = data.chunks_exact(4);
    for step in &mut steps {
        let &[kind, low, high, more] = step else { unreachable!("chunks have four bytes") };
        let number = usize::from(u16::from_le_bytes([low, high]));
        match kind % 10 {
            // Repeating one byte gives words of all sizes, among them 0 and all ones.
            0 => hostile.write(number, u64::from_ne_bytes([more; WORD_BYTES])),
            1 => hostile.write_header(usize::from(more), number as u64 % 2048),
            2 => hostile.write_consumed(number as u64 % 128),
            3 => hostile.shout(usize::from(more)),
            call => {
                if honest_call(&mut honest, call, number, more).is_err() {
                    return;
                }
            }
        }
    }
}

/// Makes one call of the honest end, and checks its promises. They hold with any peer.
fn honest_call(honest: &mut Channel, call: u8, number: usize, more: u8) -> Result<(), Corrupt> {
    match call {
        4 | 5 => {
            let mut into = vec![more; 3];
            let received = honest.receive(&mut into, number)?;
            assert_eq!(into.len(), 3 + received, "the counted bytes have been copied");
            assert!(received < number + RING_BYTES_MIN / 4, "the limit holds but for one record");
        }
        6 | 7 => {
            let bytes = vec![more; number];
            let sent = honest.send(&[&bytes[..number / 2], &bytes[number / 2..]])?;
            // This may exceed a ring, because the peer may claim to consume during the call.
            assert!(sent <= number, "at most the given bytes are taken");
        }
        8 => {
            let until = [Until::Arrival, Until::Room, Until::Either, Until::Gone][number % 4];
            let _ = honest.prepare_sleep(until);
            let _ = honest.awake(more.is_multiple_of(2));
        }
        _ => {
            let _ = honest.ready();
            honest.flush();
            assert!(!honest.peer_gone(), "the hostile end keeps its socket open");
        }
    }
    Ok(())
}
