//! The clock by which items expire, and the marks that keep an expired item from coming back.
//!
//! The log reads no clock of the machine. Its owner gives it a source of the time of day
//! ([`Log::keep_time_by`]); without one, nothing expires.
//!
//! **Once gone, gone.** A caller that was told that an item is absent must never see it again. But
//! the next owner of its tablet may run on a machine whose clock is behind. So the log appends a
//! *clock mark*, a record of its clock, before such an answer leaves ([`Log::settle_clock`]). A
//! replay sets the clock of the new log to the highest mark, and from there it goes on at the pace
//! of its own source. Without such an answer there is no mark, and no caller can notice the
//! difference.

use super::Log;
use crate::error::Error;
use crate::format::entry::{self, EXTRA, Kind};
use crate::format::metadata;
use std::cell::Cell;
use thunderhead_wire::Timestamp;

/// The room that a mark takes.
pub(super) const MARK_BYTES: usize = 16;

/// A source of the time of day.
pub type TimeSource = Box<dyn Fn() -> Timestamp + Send>;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Clock {
    source: Option<TimeSource>,
    /// Milliseconds by which it is ahead of its source.
    ahead: Cell<u64>,
    /// The latest time that it has shown: a source may go back, the clock does not.
    shown: Cell<Timestamp>,
    /// The latest time of which the log has a mark.
    pub(super) marked: Timestamp,
    /// The latest expiry of an item that a caller found to be gone.
    gone: Cell<Timestamp>,
}

impl Clock {
    pub(super) fn now(&self) -> Timestamp {
        let told = self.source.as_ref().map_or(Timestamp::ZERO, |source| source());
        let now = told.after(self.ahead.get()).max(self.shown.get());
        self.shown.set(now);
        now
    }

    /// Sets the clock to at least this time.
    fn reach(&self, time: Timestamp) {
        let now = self.now();
        if now < time {
            self.ahead.set(self.ahead.get().saturating_add(time.0 - now.0));
            self.shown.set(time);
        }
    }

    /// Notes that a caller finds an item gone that expired at a time.
    pub(super) fn note_gone(&self, expires: Timestamp) {
        self.gone.set(self.gone.get().max(expires));
    }

    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.gone.get() > self.marked
    }

    /// The time for the mark in a new head, if the log has any mark.
    pub(super) fn mark_of_head(&self) -> Option<Timestamp> {
        let is_needed = self.marked != Timestamp::ZERO || self.gone.get() != Timestamp::ZERO;
        is_needed.then(|| self.now().max(self.marked).max(self.gone.get()))
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").field("marked", &self.marked).finish_non_exhaustive()
    }
}

impl Log {
    /// Gives the log a source of the time of day, by which its items expire. The clock of the log
    /// never goes back, even if the source does.
    pub fn keep_time_by(&mut self, source: TimeSource) {
        // It has shown a time, which may come from a mark.
        let shown = self.clock.shown.get();
        (self.clock.source, self.clock.ahead) = (Some(source), Cell::new(0));
        self.clock.shown.set(Timestamp::ZERO);
        self.clock.reach(shown);
    }

    /// The time by the log's clock.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.clock.now()
    }

    /// Sets the log's clock to at least the time of another log, whose tablet came here.
    pub fn reach_time(&mut self, time: Timestamp) {
        self.clock.reach(time);
        self.clock.note_gone(time);
    }

    /// Notes that a caller found a part of a value gone, which expired at a time that has come. The
    /// log notes whole items by itself. [`Log::settle_clock`] must follow.
    pub fn note_gone(&mut self, expired: Timestamp) {
        self.clock.note_gone(expired.min(self.clock.now()));
    }

    /// Whether a caller found an item gone whose time no mark has yet.
    #[inline]
    #[must_use]
    pub fn has_found_expired(&self) -> bool {
        self.clock.is_due()
    }

    /// Appends a clock mark if a caller found an expired item gone, and no mark says that its time
    /// has come. Call it before you tell anyone that an object does not exist, or record such an
    /// outcome, and tell it no sooner than [`Log::deletes_durable_at`].
    ///
    /// It ends the open group, so that no crash can leave an outcome without the mark: the group's
    /// earlier outcomes are recorded, then comes the mark, then the outcome that needs it.
    ///
    /// # Errors
    /// [`Error::CleanerBehind`]: do not tell it, and try again shortly.
    #[inline]
    pub fn settle_clock(&mut self) -> Result<(), Error> {
        if self.clock.is_due() { self.mark_clock() } else { Ok(()) }
    }

    #[cold]
    fn mark_clock(&mut self) -> Result<(), Error> {
        self.end_group();
        self.make_room(MARK_BYTES, self.shared.reserves.for_deletes())?;
        if !self.clock.is_due() {
            return Ok(()); // The room was in a new head, which begins with a mark.
        }
        self.append_clock_mark(0);
        // As after a delete: an absent key may be absent only because of this record.
        self.removed = self.head.position();
        Ok(())
    }

    /// Appends a clock mark, which may end a chain of linked entries; room was made before.
    pub(super) fn append_clock_mark(&mut self, linked: u64) {
        let time = self.clock.now().max(self.clock.gone.get()).max(self.clock.marked);
        let body = match linked {
            0 => metadata::encode_clock_mark(time),
            linked => metadata::encode_chain_end(time, linked),
        };
        let mut header = entry::plain(Kind::ClockMark, body.len());
        if linked > 0 {
            header.add_flag(EXTRA);
        }
        let bytes = header.entry_bytes;
        let at = self.head.place(bytes);
        self.head.appender.write(at, &mut header, [&body, &[]], self.seal);
        self.head.appender.advance_idle(bytes);
        self.clock.marked = time;
    }
}
