//! Changes that are acknowledged when they are on the disk.

use super::{Event, Ticket};
use crate::layout::FrameNumber;
use std::collections::VecDeque;

/// A change that waits for the disk.
struct PendingAck {
    ticket: Ticket,
    frame: FrameNumber,
}

/// See the module's documentation.
pub(super) struct PendingAcks {
    /// The last ticket that was issued.
    issued: Ticket,
    /// In the order of their tickets.
    waiting: VecDeque<PendingAck>,
}

impl PendingAcks {
    pub(super) fn new() -> PendingAcks {
        PendingAcks { issued: Ticket(0), waiting: VecDeque::new() }
    }

    /// Issues a ticket for a change of a frame.
    pub(super) fn issue(&mut self, frame: FrameNumber) -> Ticket {
        self.issued.0 += 1;
        self.waiting.push_back(PendingAck { ticket: self.issued, frame });
        self.issued
    }

    /// Returns the last ticket that was issued.
    pub(super) fn last_issued(&self) -> Ticket {
        self.issued
    }

    /// Reports the changes of failed frames as failed.
    pub(super) fn fail(
        &mut self,
        has_failed: impl Fn(FrameNumber) -> bool,
        tell: &mut dyn FnMut(Event),
    ) {
        self.waiting.retain(|it| {
            let fails = has_failed(it.frame);
            if fails {
                tell(Event::Failed(it.ticket));
            }
            !fails
        });
    }

    /// Reports the changes up to a ticket as durable.
    pub(super) fn acknowledge_up_to(&mut self, last: Ticket, tell: &mut dyn FnMut(Event)) {
        while let Some(it) = self.waiting.pop_front_if(|it| it.ticket <= last) {
            tell(Event::Durable(it.ticket));
        }
    }
}
