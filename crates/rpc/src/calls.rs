//! Calls that wait for their replies, and the connections they go over.
//!
//! One connection for each address, made when it is first needed; calls wait until it is open.
//! When it breaks, its calls fail at once, and the next call makes a new one.

use crate::context;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_net::{Cause, ConnectionId, Transport};
use thunderhead_runtime::Time;
use thunderhead_wire::Status;
use thunderhead_wire::message::{MESSAGE_HEAD_BYTES, MessageHead};
use zerocopy::IntoBytes;

/// Names a call of one node. Not used again before four thousand million others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(crate) u64);

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server says no: it was not carried out, or the status says what happened.
    #[error("{status}")]
    Refused {
        /// Why.
        status: Status,
        /// What the server adds: for "busy" the microseconds to wait.
        hint: u32,
        /// The first eight bytes of what it says beside that, as a number, 0 if there are none: for
        /// a condition that does not hold the version that the object has.
        detail: u64,
    },
    /// The server says something that this program does not know.
    #[error("the server answered with status {0}, which this program does not know; upgrade it")]
    UnknownStatus(u16),
    /// There is no connection: the request was not carried out.
    #[error("the server cannot be reached: {0}")]
    Unreachable(Cause),
    /// The connection broke: the request may have been carried out.
    #[error("the connection broke before the answer came; the request may have been carried out")]
    Broken,
    /// The deadline passed: the request may have been carried out.
    #[error("no answer came in time; the request may have been carried out")]
    Late,
    /// Too much waits to be sent to this server already: the request was not sent. It can be once
    /// the server has taken some of that.
    #[error("too much waits to be sent to the server already; the request was not sent: try again")]
    Congested,
    /// The request is longer than the server takes; it was not sent.
    #[error("the request is longer than the server takes")]
    TooLong,
}

impl CallError {
    /// Whether this process alone is the reason, such as one without descriptors. The server was not asked: its
    /// silence says nothing about it.
    #[must_use]
    pub fn is_own(&self) -> bool {
        matches!(self, CallError::Unreachable(cause) if cause.is_own())
    }

    /// Whether the server's machine says that nobody listens at that address.
    #[must_use]
    pub fn nobody_listens(&self) -> bool {
        matches!(self, CallError::Unreachable(Cause::Refused))
    }

    /// Whether a program of another cluster is at that address.
    #[must_use]
    pub fn is_of_another_cluster(&self) -> bool {
        matches!(self, CallError::Unreachable(Cause::WrongCluster))
    }
}

/// Whom the outcome of a call is for.
pub(crate) enum For {
    /// The service.
    Service,
    /// A task, or whoever else holds the other end.
    Slot(crate::tasks::Slot),
}

pub(crate) struct Call {
    to: SocketAddr,
    pub(crate) outcome_for: For,
    deadline: Time,
    /// What is to be sent once there is a connection.
    unsent: Option<Vec<u8>>,
}

struct Session {
    connection: ConnectionId,
    /// The longest message that it takes, once it is open.
    most: Option<usize>,
    /// Bytes of the calls that wait until it is open.
    unsent_bytes: usize,
}

/// The calls of a node.
#[derive(Default)]
pub(crate) struct Calls {
    slots: Vec<(u32, Option<Call>)>,
    free: Vec<u32>,
    sessions: BTreeMap<SocketAddr, Session>,
    addresses: BTreeMap<ConnectionId, SocketAddr>,
    /// No call's deadline is earlier.
    earliest: Option<Time>,
    /// The session that was used last: mostly the next one too.
    last: Option<(SocketAddr, ConnectionId, usize)>,
}

/// What becomes of a call, and whose it was.
pub(crate) type Ended = (CallId, For, CallError);

impl Calls {
    /// Makes a call.
    pub(crate) fn call(
        &mut self,
        transport: &mut dyn Transport,
        to: SocketAddr,
        opcode: u16,
        parts: &[&[u8]],
        timing: (Time, Option<Duration>),
        outcome_for: For,
    ) -> Result<CallId, (CallError, For)> {
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

    /// The open connection to an address, and the longest message it takes.
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

    /// The session with an address, whose connection is asked for when there is none.
    fn connect(&mut self, transport: &mut dyn Transport, to: SocketAddr) -> &mut Session {
        self.sessions.entry(to).or_insert_with(|| {
            let connection = transport.connect(to);
            self.addresses.insert(connection, to);
            Session { connection, most: None, unsent_bytes: 0 }
        })
    }

    /// A connection is open: what waited for it is sent. Returns calls that are too long for it.
    pub(crate) fn opened(
        &mut self,
        transport: &mut dyn Transport,
        connection: ConnectionId,
    ) -> Vec<Ended> {
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

    /// A connection is no more: its calls fail.
    pub(crate) fn closed(&mut self, connection: ConnectionId, why: Cause) -> Vec<Ended> {
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

    fn end_all(&mut self, ids: &[u64], why: impl Fn(&Call) -> CallError) -> Vec<Ended> {
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

    /// Ends a call, if it is one that waits.
    #[inline]
    pub(crate) fn take(&mut self, id: u64) -> Option<Call> {
        let (generation, call) = self.slots.get_mut(id as u32 as usize)?;
        if *generation != (id >> 32) as u32 {
            return None;
        }
        let call = call.take()?;
        // Four thousand million calls in one slot: a reply that late does not come.
        *generation = generation.wrapping_add(1);
        self.free.push(id as u32);
        Some(call)
    }

    /// Whether a reply that came over a connection is for this call.
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

    /// Calls whose deadline has passed.
    #[inline]
    pub(crate) fn late(&mut self, now: Time) -> Vec<Ended> {
        if self.earliest.is_none_or(|earliest| earliest > now) {
            return Vec::new();
        }
        self.end_late(now)
    }

    fn end_late(&mut self, now: Time) -> Vec<Ended> {
        let late = self.ids(|call| call.deadline <= now);
        // What was never sent was not carried out.
        let ended = self.end_all(&late, |call| match call.unsent {
            Some(_) => CallError::Unreachable(Cause::NoGreeting),
            None => CallError::Late,
        });
        let waiting = self.slots.iter().filter_map(|(_, call)| call.as_ref());
        self.earliest = waiting.map(|call| call.deadline).min().filter(|at| *at != Time::NEVER);
        ended
    }

    /// When the next deadline passes, at the earliest.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.earliest
    }

    /// Calls that wait.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
