//! Fetches one segment, in pieces, from whichever backup has a copy that can be used.
//!
//! One piece is on its way at a time; the next begins where it ended. A backup that does not answer
//! gives way to the next one that has a copy, and is asked again when that one does not answer
//! either. A copy that is damaged, or that its backup does not give, is not asked for again. When no
//! copy is left, the segment is lost, and the reasons say why.

use super::copies::Copy;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_rpc::{CallError, CallId, Context, Opcode};
use thunderhead_runtime::Time;
use thunderhead_wire::replication::{PieceHead, ReadHead};
use thunderhead_wire::{MasterId, Next, SegmentId};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a piece: copying one takes less than a slice.
const PIECE_BYTES: usize = 256 << 10;

/// The longest segment that the log's format knows.
const SEGMENT_BYTES_MAX: u32 = 1 << 30;

/// The first wait before a backup that did not answer is asked again, and the longest.
const WAIT_MIN: Duration = Duration::from_millis(2);
const WAIT_MAX: Duration = Duration::from_millis(500);

/// A segment that is being fetched.
pub(super) struct Fetch {
    pub(super) segment: SegmentId,
    /// The copies that may be used, the best first.
    copies: Vec<Copy>,
    /// Which of them is being read.
    at: usize,
    pub(super) bytes: Vec<u8>,
    state: State,
    failures: u32,
    /// What is wrong with copies that are not used any more.
    pub(super) reasons: Vec<String>,
}

enum State {
    Due(Time),
    Asked(CallId),
    Whole,
    /// No copy is left.
    Lost,
}

/// What a reply led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    NotOurs,
    /// Bytes have come.
    Progress,
    /// They have not.
    Setback,
}

impl Fetch {
    pub(super) fn new(segment: SegmentId, copies: Vec<Copy>) -> Fetch {
        Fetch {
            segment,
            copies,
            at: 0,
            bytes: Vec::new(),
            state: State::Due(Time(0)),
            failures: 0,
            reasons: Vec::new(),
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        matches!(self.state, State::Whole)
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    /// Asks for what comes next; says when it wants to be called again.
    pub(super) fn ask(
        &mut self,
        context: &mut Context<'_>,
        crashed: MasterId,
        timeout: Duration,
    ) -> Option<Time> {
        let State::Due(at) = self.state else { return None };
        if at > context.now() {
            return Some(at);
        }
        let Some(copy) = self.copies.get(self.at) else {
            self.state = State::Lost;
            return None;
        };
        let (length, address): (u32, SocketAddr) = (copy.length, copy.address);
        if length > SEGMENT_BYTES_MAX {
            self.give_up_copy(format!("{length} bytes are more than a segment has"));
            return self.ask(context, crashed, timeout);
        }
        let have = self.bytes.len() as u32;
        if have >= length {
            self.state = State::Whole;
            return None;
        }
        let wanted = (length - have).min(PIECE_BYTES as u32);
        let head = ReadHead::new(crashed, self.segment, have, wanted);
        let call = context.call(address, Opcode::ReadReplica, &[head.as_bytes()], Some(timeout));
        self.state = State::Asked(call);
        None
    }

    /// What came of a call.
    pub(super) fn reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) -> Heard {
        match self.state {
            State::Asked(asked) if asked == call => {}
            _ => return Heard::NotOurs,
        }
        self.state = State::Due(context.now());
        let error = match outcome {
            Ok(body) => {
                return match self.take(body) {
                    Ok(()) => {
                        self.failures = 0;
                        Heard::Progress
                    }
                    Err(why) => {
                        self.give_up_copy(why);
                        Heard::Setback
                    }
                };
            }
            Err(error) => error,
        };
        let asked = match error {
            CallError::Refused { status, hint, .. } if status.next() == Next::Wait => hint,
            CallError::Congested
            | CallError::Unreachable(_)
            | CallError::Broken
            | CallError::Late => 0,
            _ => {
                self.give_up_copy(error.to_string());
                return Heard::Setback;
            }
        };
        self.failures += 1;
        let most = WAIT_MIN.saturating_mul(1 << self.failures.min(16)).min(WAIT_MAX);
        let wait = Duration::from_nanos(context.random().below(most.as_nanos() as u64) + 1);
        let asked = Duration::from_micros(u64::from(asked));
        self.state = State::Due(context.now() + wait + asked);
        if self.copies.len() > 1 {
            // Copies may differ in length where they were open.
            self.bytes.clear();
            self.at = (self.at + 1) % self.copies.len();
        }
        Heard::Setback
    }

    fn take(&mut self, body: &[u8]) -> Result<(), String> {
        let length = self.copies.get(self.at).map_or(0, |copy| copy.length);
        let Some((head, bytes)) = PieceHead::ref_from_prefix(body).ok() else {
            return Err("the backup's answer makes no sense".into());
        };
        if head.length() != length {
            return Err(format!("it has {} bytes and not {length}", head.length()));
        }
        let left = (length as usize).saturating_sub(self.bytes.len());
        if bytes.is_empty() || bytes.len() > left.min(PIECE_BYTES) {
            return Err(format!("{} bytes came where {left} are left", bytes.len()));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The copy that is being read, or was, is of no use; the next one is read from its beginning.
    pub(super) fn give_up_copy(&mut self, why: String) {
        if self.at < self.copies.len() {
            let copy = self.copies.remove(self.at);
            self.reasons.push(format!("{}: {why}", copy.server));
        }
        self.bytes = Vec::new();
        (self.at, self.failures) = (0, 0);
        self.state = if self.copies.is_empty() { State::Lost } else { State::Due(Time(0)) };
    }

    /// Another copy has been found.
    pub(super) fn add(&mut self, copy: Copy) {
        self.copies.push(copy);
        if self.is_lost() {
            self.state = State::Due(Time(0));
        }
    }

    /// Who has copies that may still be of use.
    pub(super) fn servers(&self) -> String {
        let servers: Vec<String> = self.copies.iter().map(Copy::whose).collect();
        servers.join(", ")
    }
}
