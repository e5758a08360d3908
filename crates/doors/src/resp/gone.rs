//! The fields of hashes that a command finds to have expired.
//!
//! The store knows the time at which an object expires, but not the times of its fields. A reply
//! without an expired field is a promise: the field never returns, not even after a restart with an
//! earlier clock. So before the reply leaves, the server tells the store the latest of these times.

use super::header::Header;
use super::stop::Stop;
use super::store::{Found, Refusal, Store};
use std::cell::Cell;

/// The latest time at which a field expired that a command has found gone; 0 if there is none.
#[derive(Debug, Default)]
pub(super) struct Gone(Cell<u64>);

impl Gone {
    /// Notes that a field is gone that expired at a time.
    #[inline]
    pub(super) fn note(&self, expired: u64) {
        self.0.set(self.0.get().max(expired));
    }

    /// Whether an object of the store is there for a command: a hash is not if all of its fields
    /// have expired.
    #[inline]
    pub(super) fn shows(&self, found: &Found<'_>, now: u64) -> bool {
        let end = Header::over_since(found.kind, found.value, now);
        end.inspect(|end| self.note(*end)).is_none()
    }

    /// Tells the store the noted time, which stays noted if the store refuses.
    ///
    /// # Errors
    /// Only [`Refusal::NotNow`]. Then the command must not be answered.
    #[inline]
    pub(super) fn settle(&self, store: &mut dyn Store) -> Result<(), Refusal> {
        match self.0.get() {
            0 => Ok(()),
            expired => store.note_gone(expired).map(|()| self.0.set(0)),
        }
    }

    /// Settles the notes of a command that has failed: its error may say that a field is gone.
    pub(super) fn settle_failed(
        &self,
        done: Result<(), Stop>,
        store: &mut dyn Store,
    ) -> Result<(), Stop> {
        done.or_else(|stop| self.settle(store).map_err(Stop::from).and(Err(stop)))
    }
}
