//! Moves open replicas to the disk and frees their buffers for other replicas.
//!
//! A master that moves to its next head needs a buffer for it on R backups before it closes the
//! older head, which has R buffers as well. If all buffers are in use, many masters may each hold
//! part of the buffers that they need and wait for each other. The heads of masters that are gone
//! also stay until the masters are recovered, and recoveries need buffers, too. So when a new
//! replica needs a buffer and none is free, an open replica *rests*. The store first chooses one
//! of which the master is gone, then the replica with the longest idle time, which must be
//! at least [`RESTS_AFTER`].
//!
//! A replica that may rest is on the disk already with its header, so resting writes nothing. The
//! replica counts as before, it is read from the disk, and its checksums are kept in memory. It
//! can still be committed, closed or raised to a later epoch, for these change only its header.
//! The header is on the disk before the change is acknowledged, at every durability, because
//! no memory that outlasts the process holds the replica any more. The replica gets no more bytes:
//! its master begins another one, as after a restart.
//!
//! A replacement may rest before it counts, because its master may wait for buffers before it can
//! close it. The replaced replica then stays in memory until the disk records that the new one
//! counts (`replaced`).

use super::frames::IdleReplica;
use super::{State, Store};
use crate::layout::{FrameNumber, ReplicaId};
use crate::limits::RESTS_AFTER;
use thunderhead_runtime::Time;
use thunderhead_wire::MasterId;

impl Store {
    /// Lets the open replicas of a master that is gone rest first.
    pub fn gives_way(&mut self, master: MasterId) {
        let is_filling =
            |number: &FrameNumber| matches!(self.frames[*number].state, State::Filling(_));
        let open: Vec<FrameNumber> = self.frames.frames_of(master).filter(is_filling).collect();
        for number in open {
            self.frames.change(number, |frame| {
                if let State::Filling(filling) = &mut frame.state {
                    filling.is_wanted = false;
                }
            });
        }
    }

    /// Advances the store's clock. Much time may have passed since the last turn.
    pub(crate) fn it_is(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// Whether a replica is open and rests: it gets no more bytes here.
    #[must_use]
    pub fn is_resting(&self, id: ReplicaId) -> bool {
        let frame = self.frames.newest(id).map(|number| &self.frames[number]);
        frame.is_some_and(|frame| matches!(frame.state, State::Resting(_)))
    }

    /// Takes the buffer of one idle replica, if one may rest.
    pub(super) fn one_rests(&mut self) {
        let is_due = |it: &&IdleReplica| !it.is_wanted || self.now.since(it.since) >= RESTS_AFTER;
        let may_rest = |it: &&IdleReplica| {
            let buffer = self.frames[it.frame].buffer();
            buffer.is_some_and(|buffer| !self.buffers.is_pinned(buffer))
        };
        let found = self.frames.idle().take_while(is_due).find(may_rest);
        if let Some(idle) = found.copied() {
            self.rests(idle.frame);
        }
    }

    fn rests(&mut self, number: FrameNumber) {
        let Ok(used) = self.in_buffer(number) else { return };
        let chunks = used.chunks.into_boxed_slice();
        let buffer = self.frames.change(number, |frame| {
            let buffer = frame.buffer();
            frame.state = State::Resting(chunks);
            buffer
        });
        buffer.into_iter().for_each(|buffer| self.buffers.release(buffer));
        tracing::debug!("{} gives its buffer up", used.id);
    }
}
