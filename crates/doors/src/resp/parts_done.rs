//! The news of a command that is done in part.
//!
//! A long `LREM` gives its changes to the store in several parts. If the store then refuses another
//! part, the first ones stay. So clients get the event and the message of `CLIENT TRACKING` for the
//! key at once: the command may be executed again, or be refused, or its client may leave.

use super::events::{Events, Kinds};
use super::server::{ClientId, State};
use super::tracking_notes::Op;

impl State {
    /// Ends a command that is not executed again.
    pub(super) fn end_parts(&mut self, id: ClientId, is_done: bool) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.removed = 0;
        }
        if is_done {
            // Its last part has the same notes.
            self.first_part = None;
        }
    }

    /// Forgets the notes of a command that is executed again, but not those of its first parts.
    pub(super) fn take_back_notes(&mut self, events: &mut Events) {
        events.take_back(0);
        self.tracking.take_back();
        self.note_first_part(events);
    }

    /// Forgets the changes of a command that has failed, but not those of its first parts.
    pub(super) fn fail_notes(&mut self, events: &mut Events) {
        events.fail_command();
        self.tracking.fail_command();
        self.note_first_part(events);
    }

    fn note_first_part(&mut self, events: &mut Events) {
        let Some((database, key)) = self.first_part.take() else { return };
        events.note(Kinds::LIST, "lrem", database, &key);
        if self.tracking.is_active() {
            self.tracking.note([Op::Written(key)].into_iter());
        }
    }
}
