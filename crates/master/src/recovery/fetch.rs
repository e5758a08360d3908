//! Fetches a partition's part of one segment, in pieces, from any backup that can give it.
//!
//! One piece is in flight at a time; the next begins where it ended. The shard waits for a busy
//! backup: it reads the segments in their order and has not reached this one. If a backup does not
//! answer, the shard asks the next backup with a replica, and asks the first again if that one does
//! not answer either. A backup without the bytes, or with damaged ones, is not asked again. When no
//! backup remains, the segment is lost, and the reasons tell why.
//!
//! If a log is taken back and the backup is in the same process, the backup hands over the memory
//! that it has read the replica into: no bytes are copied, and no message is sent.

use crate::owner::Owner;
use crate::replication::{LocalReplica, OwnBackup, ReplicaBytes};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_rpc::{CallError, CallId, Context, Opcode};
use thunderhead_runtime::Time;
use thunderhead_runtime::backoff::Backoff;
use thunderhead_wire::control::{Recover, Replicas};
use thunderhead_wire::replication::{PieceHead, RecoveryHead};
use thunderhead_wire::{Next, SegmentId, ServerId};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a piece. Copying one takes less than a slice, even into memory that is touched for the
/// first time, and several fit into the ring between two servers of a host.
pub(super) const PIECE_BYTES: usize = 32 << 10;

/// The longest segment that the log's format knows.
const SEGMENT_BYTES_MAX: u32 = 1 << 30;

/// The most memory that is allocated because of a backup's claim alone.
const TRUSTED_BYTES: usize = 16 << 20;

/// The waits before a backup that did not answer is asked again.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(500));

/// Added to the wait that a busy backup asks for, so that the shards do not all retry at once.
const BUSY_EXTRA: Duration = Duration::from_millis(1);

/// A partition's part of a segment, while it is fetched.
pub(super) struct Fetch {
    pub(super) segment: SegmentId,
    /// The backups that may still be asked.
    backups: Vec<(ServerId, SocketAddr)>,
    /// The index of the present backup.
    at: usize,
    bytes: Vec<u8>,
    /// A buffer that was too short.
    outgrown: Vec<u8>,
    /// All bytes, in memory of the backup of the same process.
    whole: Option<ReplicaBytes>,
    /// The total number of bytes.
    pub(super) length: Option<u32>,
    state: State,
    failures: u32,
    /// The reasons why other backups are not asked any more.
    pub(super) reasons: Vec<String>,
}

enum State {
    Due(Time),
    Asked(CallId),
    Whole,
    /// No backup remains.
    Lost,
}

/// The result of asking a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskResult {
    /// It wants to be called again by then.
    Later(Time),
    /// It has no work until a message arrives.
    Sent,
    /// It was answered at once.
    Answered(FetchEvent),
}

/// The effect of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchEvent {
    NotOurs,
    /// Bytes have come.
    Progress,
    /// The backup answers, but has no bytes yet.
    Busy,
    /// The backup does not answer.
    Silence(ServerId),
    /// The backup has no usable bytes.
    Setback,
}

impl Fetch {
    /// `bytes` is a buffer to use; its content is discarded.
    pub(super) fn new(replicas: Replicas, mut bytes: Vec<u8>) -> Fetch {
        bytes.clear();
        Fetch {
            segment: replicas.segment,
            backups: replicas.at,
            at: 0,
            bytes,
            outgrown: Vec::new(),
            whole: None,
            length: None,
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

    /// The bytes that are here.
    pub(super) fn bytes(&self) -> &[u8] {
        self.whole.as_ref().map_or(&self.bytes, |whole| (**whole).as_ref())
    }

    /// Returns its buffers for reuse.
    pub(super) fn into_buffers(self) -> [Vec<u8>; 2] {
        [self.outgrown, self.bytes]
    }

    /// When it would ask for a piece.
    pub(super) fn due(&self) -> Option<Time> {
        match self.state {
            State::Due(at) => Some(at),
            _ => None,
        }
    }

    /// Whether it would ask for a piece, now or later.
    pub(super) fn is_due(&self) -> bool {
        self.due().is_some()
    }

    /// Bytes of memory that are here or on their way here.
    pub(super) fn held(&self) -> usize {
        self.bytes().len() + if matches!(self.state, State::Asked(_)) { PIECE_BYTES } else { 0 }
    }

    /// Chooses a better backup, before the first piece.
    pub(super) fn prefer(&mut self, is_better: impl Fn(ServerId) -> bool) {
        if self.bytes().is_empty() && self.is_due() {
            let better = self.backups.iter().position(|(server, _)| is_better(*server));
            self.at = better.unwrap_or(self.at);
        }
    }

    /// Asks for the next piece.
    pub(super) fn ask(
        &mut self,
        context: &mut Context<'_>,
        task: &Recover,
        timeout: Duration,
        own: &mut OwnBackup<'_>,
    ) -> AskResult {
        let State::Due(at) = self.state else { return AskResult::Sent };
        if at > context.now() {
            return AskResult::Later(at);
        }
        let Some((server, address)) = self.backups.get(self.at).copied() else {
            self.state = State::Lost;
            return AskResult::Sent;
        };
        let which = (task.recovery, task.partition);
        let have = self.bytes.len() as u32;
        let wanted = PIECE_BYTES as u32;
        let head = RecoveryHead::new(task.crashed, which, self.segment, have, wanted);
        if let Some((_, backup)) = own.as_mut().filter(|(own, _)| *own == server && have == 0)
            && task.take_back
        {
            match backup.replica(context.now(), head.as_bytes()) {
                LocalReplica::Here(whole) => return AskResult::Answered(self.take_whole(whole)),
                LocalReplica::Refused(error) => {
                    return AskResult::Answered(self.failed(context, error));
                }
                LocalReplica::ByMessage => {}
            }
        }
        let (parts, timeout) = ([head.as_bytes()], Some(timeout));
        let call = context.call(Owner::Recovery, address, Opcode::RecoveryData, &parts, timeout);
        self.state = State::Asked(call);
        AskResult::Sent
    }

    fn take_whole(&mut self, whole: ReplicaBytes) -> FetchEvent {
        let length = (*whole).as_ref().len();
        match u32::try_from(length).ok().filter(|length| (1..=SEGMENT_BYTES_MAX).contains(length)) {
            Some(length) => {
                (self.whole, self.length, self.failures) = (Some(whole), Some(length), 0);
                self.state = State::Whole;
                FetchEvent::Progress
            }
            None => {
                self.give_up_copy(&format!("{length} bytes are no segment"));
                FetchEvent::Setback
            }
        }
    }

    /// Takes the reply to a call.
    pub(super) fn reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) -> FetchEvent {
        match self.state {
            State::Asked(asked) if asked == call => {}
            _ => return FetchEvent::NotOurs,
        }
        self.state = State::Due(context.now());
        let error = match outcome {
            Ok(body) => {
                let taken = self.take(body);
                self.failures = 0;
                return match taken {
                    Ok(()) => FetchEvent::Progress,
                    Err(why) => {
                        self.give_up_copy(&why.to_string());
                        FetchEvent::Setback
                    }
                };
            }
            Err(error) => error,
        };
        self.failed(context, error)
    }

    /// Handles a refusal: the backup gives no bytes, or not now.
    fn failed(&mut self, context: &mut Context<'_>, error: CallError) -> FetchEvent {
        match error {
            CallError::Refused { status, hint, .. } if status.next() == Next::Wait => {
                let extra = context.random().below(BUSY_EXTRA.as_nanos() as u64) + 1;
                let wait = Duration::from_micros(u64::from(hint)) + Duration::from_nanos(extra);
                self.state = State::Due(context.now() + wait.min(BACKOFF.longest()));
                FetchEvent::Busy
            }
            // This node has too many messages in flight to that backup.
            CallError::Congested => {
                self.wait(context);
                FetchEvent::Setback
            }
            CallError::Unreachable(_) | CallError::Broken | CallError::Late => {
                self.wait(context);
                let silent = self.backups.get(self.at).map(|(server, _)| *server);
                if self.backups.len() > 1 {
                    // Another backup's part may differ in length.
                    self.begin_again();
                    self.at = (self.at + 1) % self.backups.len();
                }
                silent.map_or(FetchEvent::Setback, FetchEvent::Silence)
            }
            _ => {
                self.give_up_copy(&error.to_string());
                FetchEvent::Setback
            }
        }
    }

    /// Waits before it asks again, longer each time.
    fn wait(&mut self, context: &mut Context<'_>) {
        self.failures += 1;
        let wait = BACKOFF.random_wait(self.failures, context.random());
        self.state = State::Due(context.now() + wait);
    }

    fn take(&mut self, body: &[u8]) -> Result<(), BadPiece> {
        let Some((head, bytes)) = PieceHead::ref_from_prefix(body).ok() else {
            return Err(BadPiece::Malformed);
        };
        let length = *self.length.get_or_insert(head.length());
        if head.length() != length {
            return Err(BadPiece::OtherLength { found: head.length(), length });
        }
        if length > SEGMENT_BYTES_MAX {
            return Err(BadPiece::TooLong { length });
        }
        let left = (length as usize).saturating_sub(self.bytes.len());
        if bytes.is_empty() || bytes.len() > left.min(PIECE_BYTES) {
            return Err(BadPiece::OtherCount { came: bytes.len(), left });
        }
        let needed = (length as usize).min(TRUSTED_BYTES);
        if self.bytes.is_empty() && self.bytes.capacity() < needed {
            // A buffer that grows is copied with its whole capacity, though it holds no bytes.
            let long = Vec::with_capacity(needed.next_power_of_two());
            self.outgrown = std::mem::replace(&mut self.bytes, long);
        }
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() == length as usize {
            self.state = State::Whole;
        }
        Ok(())
    }

    fn begin_again(&mut self) {
        self.bytes.clear();
        (self.whole, self.length) = (None, None);
    }

    /// Discards the present copy, because it is of no use; the next one is read from its beginning.
    pub(super) fn give_up_copy(&mut self, why: &str) {
        if self.at < self.backups.len() {
            let (server, _) = self.backups.remove(self.at);
            self.reasons.push(format!("{server}: {why}"));
        }
        self.begin_again();
        (self.at, self.failures) = (0, 0);
        self.state = if self.backups.is_empty() { State::Lost } else { State::Due(Time(0)) };
    }

    /// The backups that may still be asked.
    pub(super) fn servers(&self) -> String {
        let servers = self.backups.iter().map(|(server, address)| format!("{server} at {address}"));
        servers.collect::<Vec<_>>().join(", ")
    }
}

/// The reason why a piece is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BadPiece {
    /// The answer is no piece.
    Malformed,
    /// The part had another length in an earlier piece.
    OtherLength { found: u32, length: u32 },
    /// No segment is so long.
    TooLong { length: u32 },
    /// The piece is empty, or longer than asked for.
    OtherCount { came: usize, left: usize },
}

impl fmt::Display for BadPiece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadPiece::Malformed => write!(f, "the backup's answer makes no sense"),
            BadPiece::OtherLength { found, length } => {
                write!(f, "it has {found} bytes and not {length}")
            }
            BadPiece::TooLong { length } => {
                write!(f, "{length} bytes are more than a segment has")
            }
            BadPiece::OtherCount { came, left } => {
                write!(f, "{came} bytes came where {left} are left")
            }
        }
    }
}
