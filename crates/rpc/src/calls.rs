//! Calls in flight, and the connections that carry them.
//!
//! There is one connection for each address, made by the first call to it; calls wait until it is
//! open. When it breaks, its calls fail at once, and the next call makes a new one.

use crate::component::OwnerId;
use crate::context;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_net::{Cause, ConnectionId, Transport};
use thunderhead_runtime::Time;
use thunderhead_wire::Status;
use thunderhead_wire::message::{MESSAGE_HEAD_BYTES, MessageHead};
use zerocopy::IntoBytes;

/// Names a call of one node. An id is reused only after four thousand million other calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(crate) u64);

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server refused: the request was not carried out, or the status names its outcome.
    #[error("{status}")]
    Refused {
        /// The reason.
        status: Status,
        /// The server's addition: for "busy" the microseconds to wait.
        hint: u32,
        /// The first eight bytes of the reply's body, as a number, or 0 if it is shorter: for a
        /// failed condition the object's version.
        detail: u64,
    },
    /// The server answered with a status that this program does not know.
    #[error("the server answered with status {0}, which this program does not know; upgrade it")]
    UnknownStatus(u16),
    /// There is no connection, so the request was not carried out.
    #[error("the server cannot be reached: {0}")]
    Unreachable(Cause),
    /// The connection broke: the request may have been carried out.
    #[error("the connection broke before the reply came; the request may have been carried out")]
    Broken,
    /// The deadline passed: the request may have been carried out.
    #[error("no reply came in time; the request may have been carried out")]
    Late,
    /// Too many bytes wait for this server already, so the request was not sent. It can be sent
    /// once the server has taken some of them.
    #[error(
        "too many bytes wait for the server already; the request was not sent: try again later"
    )]
    Congested,
    /// The request is longer than the server accepts, so it was not sent.
    #[error("the request is longer than the server accepts; send smaller ones")]
    TooLong,
}

impl CallError {
    /// Whether this process alone is the reason, for example because it has no descriptors. The
    /// server was not contacted, so the failure says nothing about it.
    #[must_use]
    pub fn is_own(&self) -> bool {
        matches!(self, CallError::Unreachable(cause) if cause.is_own())
    }

    /// Whether the server's machine reports that no process listens at the address.
    #[must_use]
    pub fn is_connection_refused(&self) -> bool {
        matches!(self, CallError::Unreachable(Cause::Refused))
    }

    /// Whether a program of another cluster listens at the address.
    #[must_use]
    pub fn is_of_another_cluster(&self) -> bool {
        matches!(self, CallError::Unreachable(Cause::WrongCluster))
    }
}

/// The receiver of a call's outcome.
pub(crate) enum OutcomeReceiver {
    /// The service, for one of its owners.
    Service(OwnerId),
    /// A task, or another holder of the slot's other end.
    Slot(crate::tasks::Slot),
}

pub(crate) struct Call {
    to: SocketAddr,
    pub(crate) outcome_for: OutcomeReceiver,
    deadline: Time,
    /// The message to send once there is a connection.
    unsent: Option<Vec<u8>>,
}

struct Session {
    connection: ConnectionId,
    /// The longest message that the peer accepts, once the connection is open.
    most: Option<usize>,
    /// Bytes of the calls that wait for the connection to open.
    unsent_bytes: usize,
}

/// The calls of a node.
#[derive(Default)]
pub(crate) struct Calls {
    slots: Vec<(u32, Option<Call>)>,
    free: Vec<u32>,
    sessions: BTreeMap<SocketAddr, Session>,
    addresses: BTreeMap<ConnectionId, SocketAddr>,
    /// No call's deadline is earlier than this.
    earliest: Option<Time>,
    /// The session that was used last, which is usually the next one too.
    last: Option<(SocketAddr, ConnectionId, usize)>,
}

/// A call that ended without a reply: its id, its receiver and the error.
pub(crate) type FailedCall = (CallId, OutcomeReceiver, CallError);

impl Calls {
    /// Makes a call.
    pub(crate) fn call(
        &mut self,
        transport: &mut dyn Transport,
        to: SocketAddr,
        opcode: u16,
        parts: &[&[u8]],
        timing: (Time, Option<Duration>),
        outcome_for: OutcomeReceiver,
    ) -> Result<CallId, (CallError, OutcomeReceiver)> {
        let (now, timeout) = timing;
        let deadline = timeout.map_or(Time::NEVER, |timeout| now + timeout);
        let timeout_us =
            timeout.map_or(0, |it| u32::try_from(it.as_micros()).unwrap_or(u32::MAX).max(1));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let generation = self.slots[slot as usize].0;
        let id = u64::from(generation) << 32 | u64::from(slot);
        let head = MessageHead::request(id, opcode, timeout_us);
        let mut unsent = None;
        match self.open_session(to) {
            Some((connection, most)) => {
                let bytes: usize = parts.iter().map(|part| part.len()).sum();
                if bytes + MESSAGE_HEAD_BYTES > most {
                    self.free.push(slot);
                    return Err((CallError::TooLong, outcome_for));
                }
                if !transport.takes_more(connection) {
                    self.free.push(slot);
                    return Err((CallError::Congested, outcome_for));
                }
                context::send(transport, connection, &head, parts);
            }
            None => {
                let high = transport.limits().waiting_bytes_high;
                let session = self.connect(transport, to);
                if session.unsent_bytes > high {
                    self.free.push(slot);
                    return Err((CallError::Congested, outcome_for));
                }
                let message = [&[head.as_bytes()], parts].concat().concat();
                session.unsent_bytes += message.len();
                unsent = Some(message);
            }
        }
        if deadline != Time::NEVER {
            self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
        }
        self.slots[slot as usize].1 = Some(Call { to, outcome_for, deadline, unsent });
        Ok(CallId(id))
    }

    /// Returns the open connection to an address, and the longest message that it accepts.
    #[inline]
    fn open_session(&mut self, to: SocketAddr) -> Option<(ConnectionId, usize)> {
        if let Some((last, connection, most)) = self.last
            && last == to
        {
            return Some((connection, most));
        }
        let Session { connection, most, .. } = self.sessions.get(&to)?;
        let (connection, most) = (*connection, (*most)?);
        self.last = Some((to, connection, most));
        Some((connection, most))
    }

    /// Returns the session with an address, and requests a connection if there is none.
    fn connect(&mut self, transport: &mut dyn Transport, to: SocketAddr) -> &mut Session {
        self.sessions.entry(to).or_insert_with(|| {
            let connection = transport.connect(to);
            self.addresses.insert(connection, to);
            Session { connection, most: None, unsent_bytes: 0 }
        })
    }

    /// Handles an opened connection: sends the calls that waited for it. Returns the calls that are
    /// too long for it.
    pub(crate) fn opened(
        &mut self,
        transport: &mut dyn Transport,
        connection: ConnectionId,
    ) -> Vec<FailedCall> {
        let Some(to) = self.addresses.get(&connection).copied() else { return Vec::new() };
        let most = transport.peer(connection).map_or(0, |peer| peer.agreement.message_bytes_max);
        if let Some(session) = self.sessions.get_mut(&to) {
            (session.most, session.unsent_bytes) = (Some(most), 0);
        }
        self.last = Some((to, connection, most));
        let mut too_long = Vec::new();
        for slot in 0..self.slots.len() {
            let (generation, Some(call)) = &mut self.slots[slot] else { continue };
            if call.to != to {
                continue;
            }
            let Some(message) = call.unsent.take() else { continue };
            if message.len() > most {
                too_long.push(u64::from(*generation) << 32 | slot as u64);
            } else {
                transport.send(connection, &[&message]);
            }
        }
        self.end_all(&too_long, |_| CallError::TooLong)
    }

    /// Handles a closed connection: its calls fail.
    pub(crate) fn closed(&mut self, connection: ConnectionId, why: Cause) -> Vec<FailedCall> {
        let Some(to) = self.addresses.remove(&connection) else { return Vec::new() };
        self.sessions.remove(&to);
        if self.last.is_some_and(|(last, ..)| last == to) {
            self.last = None;
        }
        let lost: Vec<u64> = self.ids(|call| call.to == to);
        self.end_all(&lost, |call| match call.unsent {
            Some(_) => CallError::Unreachable(why),
            None => CallError::Broken,
        })
    }

    fn ids(&self, which: impl Fn(&Call) -> bool) -> Vec<u64> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, (_, call))| call.as_ref().is_some_and(&which))
            .map(|(slot, (generation, _))| u64::from(*generation) << 32 | slot as u64)
            .collect()
    }

    fn end_all(&mut self, ids: &[u64], why: impl Fn(&Call) -> CallError) -> Vec<FailedCall> {
        let mut ended = Vec::new();
        for id in ids {
            if let Some(call) = self.take(*id) {
                let error = why(&call);
                if let Some(message) = &call.unsent
                    && let Some(session) = self.sessions.get_mut(&call.to)
                {
                    session.unsent_bytes -= message.len();
                }
                ended.push((CallId(*id), call.outcome_for, error));
            }
        }
        ended
    }

    /// Ends a call, if it is in flight.
    #[inline]
    pub(crate) fn take(&mut self, id: u64) -> Option<Call> {
        let (generation, call) = self.slots.get_mut(id as u32 as usize)?;
        if *generation != (id >> 32) as u32 {
            return None;
        }
        let call = call.take()?;
        // A reply does not come after four thousand million further calls in its slot.
        *generation = generation.wrapping_add(1);
        self.free.push(id as u32);
        Some(call)
    }

    /// Whether a reply over a connection belongs to this call.
    pub(crate) fn is_from(&self, id: u64, connection: ConnectionId) -> bool {
        let call = self.slots.get(id as u32 as usize).and_then(|(_, call)| call.as_ref());
        match (call, self.last) {
            (Some(call), Some((last, known, _))) if call.to == last => known == connection,
            (Some(call), _) => {
                self.sessions.get(&call.to).is_some_and(|it| it.connection == connection)
            }
            _ => false,
        }
    }

    /// Ends the calls whose deadline has passed, and returns them.
    #[inline]
    pub(crate) fn late(&mut self, now: Time) -> Vec<FailedCall> {
        if self.earliest.is_none_or(|earliest| earliest > now) {
            return Vec::new();
        }
        self.end_late(now)
    }

    fn end_late(&mut self, now: Time) -> Vec<FailedCall> {
        let late = self.ids(|call| call.deadline <= now);
        // A request that was never sent was not carried out.
        let ended = self.end_all(&late, |call| match call.unsent {
            Some(_) => CallError::Unreachable(Cause::NoGreeting),
            None => CallError::Late,
        });
        let waiting = self.slots.iter().filter_map(|(_, call)| call.as_ref());
        self.earliest = waiting.map(|call| call.deadline).min().filter(|at| *at != Time::NEVER);
        ended
    }

    /// Returns a time before which no deadline passes.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.earliest
    }

    /// Returns the number of calls in flight.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
